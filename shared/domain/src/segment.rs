//! One hot stay of a process, as its executor sees it: when to hand which inputs to the harness, when to interrupt it,
//! what to report, and when to leave. Pure: it is told what happened and answers with what is to be done; the executor's
//! task does it and tells how it went.
//!
//! The truth is the process's log. What stands there as undelivered is delivered until the harness has echoed it; a
//! report is sent again until its number stands there; and whoever the log says holds the conversation, holds it.

mod advance;
mod boundary;
mod freeze;
mod leave;
mod signal;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;

use crate::ids::{Epoch, ExecutorId, Incarnation, MessageId, RecordSeq, Renewal, ReportNo, TurnNo, WaitId};
use crate::policy::{BACKGROUND_HOLDS_FOR, FROZEN_KILLED_AFTER};
use crate::process::{ParkReason, Report, SegmentEvent, State, TaskKind, WakeTrigger};

pub use signal::{Ask, CallAnswer, CallNo, Contents, Effect, Signal};

/// One frame holds several waiting inputs, up to this much text: enough for any burst, and far from what a harness
/// would refuse.
const FRAME_BYTES_MAX: usize = 512 * 1024;

/// A report that does not stand in the log after this long is sent again.
const REPORT_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// A claim that is not answered after this long is given up; the process is assigned again where that is right.
const CLAIM_GIVEN_UP_AFTER: Duration = Duration::from_secs(10);

/// An executor that drains leaves a parked segment whose last report is not answered for this long: the report is kept,
/// and the registry appends it when it is back.
const LEAVE_UNANSWERED_AFTER: Duration = Duration::from_secs(5);

/// What an operator sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentPolicy {
    /// An idle segment that nobody watches parks after this long.
    pub park_after: Duration,
    /// An idle segment parks after this long, whoever watches.
    pub park_watched_after: Duration,
    /// A viewer who has not shown itself for this long is gone.
    pub viewer_gone_after: Duration,
    /// How long the harness may take to end its turn once its process has ended or its wait is booked.
    pub turn_end_grace: Duration,
    /// A segment that has been hot for this long goes at its next boundary.
    pub cap: Duration,
}

/// Who this segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub executor: ExecutorId,
    pub incarnation: Incarnation,
    pub epoch: Epoch,
    /// The executor's last renewal before the claim.
    pub renewal: Renewal,
}

#[derive(Debug)]
pub struct Segment {
    me: Identity,
    policy: SegmentPolicy,
    log: State,
    began: Duration,
    /// The time that it was last told.
    now: Duration,
    harness: Harness,
    /// Turns that have ended, the conversation's earlier ones included.
    turns: TurnNo,
    wake: Option<WakeTrigger>,
    frame: Option<Frame>,
    /// Frames of earlier segments whose inputs are still undelivered: the harness may know their ids.
    former: Vec<(Uuid, Contents)>,
    /// Ids that the harness gave back. It would echo them without reading them.
    spent: BTreeSet<Uuid>,
    known: BTreeMap<RecordSeq, usize>,
    /// Echoed, and not yet off the log's list.
    consumed: BTreeSet<RecordSeq>,
    told: BTreeSet<WaitId>,
    /// What the next report tells. Bounded by what the log lets happen: without its answers no input is delivered.
    outbox: Vec<SegmentEvent>,
    in_flight: Option<InFlight>,
    reported: ReportNo,
    /// Calls that wait for their answer, in their order. Bounded by what an agent calls at once.
    calls: Vec<PendingCall>,
    /// The wait that this segment booked and parks for.
    settling: Option<Settling>,
    /// The request to interrupt that is being carried out.
    interrupting: Option<RecordSeq>,
    /// The tools of the turn that run.
    tools: BTreeSet<String>,
    tasks: BTreeMap<String, Task>,
    /// When a viewer was last there.
    watched: Option<Duration>,
    draining: bool,
    frozen: Option<Frozen>,
    leaving: Option<Leaving>,
}

/// Everything inside stands still, since nobody knows whether this segment still holds its process.
#[derive(Debug, Clone, Copy)]
struct Frozen {
    since: Duration,
    /// The executor's lease is not renewed.
    cut_off: bool,
    /// The log is asked.
    asked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harness {
    /// Not asked for.
    Absent,
    Starting,
    Idle {
        since: Duration,
    },
    Running,
    Gone,
}

#[derive(Debug)]
struct Frame {
    id: Uuid,
    contents: Contents,
    stage: FrameStage,
}

#[derive(Debug, Clone, Copy)]
struct Task {
    kind: TaskKind,
    since: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Settling {
    wait: WaitId,
    since: Duration,
    /// Somebody has spoken to the agent since, so that the turn is theirs.
    spoken: bool,
    interrupted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameStage {
    Recording,
    Delivered,
    Withdrawing,
    /// The harness did not give it back: it is being read, and the echo is on its way.
    Kept,
}

#[derive(Debug)]
struct InFlight {
    report: Report,
    first_sent: Duration,
    sent: Duration,
}

#[derive(Debug)]
struct PendingCall {
    call: CallNo,
    ask: Ask,
    /// The report it went out in.
    reported: Option<ReportNo>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Leaving {
    /// The process has ended. Its harness may end its turn until then.
    Ended { until: Duration, asked: bool },
    /// The harness is to end, and then the process parks, by this event.
    Park { by: SegmentEvent, reported: bool },
    /// Another holds the conversation, or the claim was not answered.
    Fenced { killed: bool },
}

// === impl Segment ===

impl Segment {
    /// A segment that is about to claim the process whose newest state is `log`. `former` are the frames that earlier
    /// segments wrote down, oldest first.
    pub fn new(
        me: Identity,
        policy: SegmentPolicy,
        log: State,
        former: Vec<(Uuid, Contents)>,
        now: Duration,
    ) -> (Self, Vec<Effect>) {
        let wake = match log.phase {
            crate::process::Phase::Waking { trigger, .. } => Some(trigger),
            _ => None,
        };
        let mut segment = Self {
            me,
            policy,
            turns: log.turns,
            log,
            began: now,
            now,
            harness: Harness::Absent,
            wake,
            frame: None,
            former,
            spent: BTreeSet::new(),
            known: BTreeMap::new(),
            consumed: BTreeSet::new(),
            told: BTreeSet::new(),
            outbox: vec![SegmentEvent::Claim { renewal: me.renewal }],
            in_flight: None,
            reported: ReportNo(0),
            calls: Vec::new(),
            settling: None,
            interrupting: None,
            tools: BTreeSet::new(),
            tasks: BTreeMap::new(),
            watched: None,
            draining: false,
            frozen: None,
            leaving: None,
        };
        let effects = segment.advance(now);
        (segment, effects)
    }

    /// The newest state this segment knows of.
    pub const fn log(&self) -> &State {
        &self.log
    }

    /// Takes what happened and says what is to be done.
    pub fn on(&mut self, signal: Signal, now: Duration) -> Vec<Effect> {
        self.now = now;
        let mut effects = Vec::new();
        match signal {
            Signal::Log(state) => self.log = *state,
            Signal::Known { input, bytes } => drop(self.known.insert(input, bytes)),
            Signal::Recorded { frame } => effects.extend(self.recorded(frame)),
            Signal::Withdrawn { frame, given_back } => self.withdrawn(frame, given_back),
            Signal::Ready { session } => {
                self.harness = Harness::Idle { since: now };
                self.outbox.push(SegmentEvent::Ready { session });
                effects.extend(self.frozen.map(|_| Effect::Freeze));
                // What asked for its end while it was being set up found nothing to end.
                effects.extend(self.leaving.as_ref().map(|_| Effect::Kill));
            }
            Signal::Running => {
                if self.harness != Harness::Running {
                    self.harness = Harness::Running;
                    self.outbox.push(SegmentEvent::TurnStarted);
                    effects.push(Effect::TurnStarted { turn: self.turns.next() });
                }
            }
            Signal::Consumed { frame } => self.consumed(frame),
            Signal::TurnEnded { outcome } => {
                self.tools.clear();
                self.harness = Harness::Idle { since: now };
                self.turns = self.turns.next();
                self.outbox.push(SegmentEvent::TurnEnded { outcome });
                effects.push(Effect::TurnEnded { turn: self.turns, outcome });
            }
            Signal::ToolStarted { tool } => drop(self.tools.insert(tool)),
            Signal::ToolEnded { tool } => effects.extend(self.tool_ended(&tool, now)),
            Signal::TaskStarted { task, kind, label } => {
                self.tasks.insert(task.clone(), Task { kind, since: now });
                self.outbox.push(SegmentEvent::TaskStarted { task, kind, label });
            }
            Signal::TaskEnded { task } => {
                // What ends with the session is killed by it, and the step that ends the segment says so.
                if self.tasks.remove(&task).is_some() && self.leaving.is_none() {
                    self.outbox.push(SegmentEvent::TaskEnded { task });
                }
            }
            Signal::Ended { what } => effects.extend(self.harness_ended(what)),
            Signal::Unable { what } => self.unable(what),
            Signal::CutOff => effects.push(self.cut_off(now)),
            Signal::Frozen => drop(self.stands_still(now)),
            Signal::Reachable => self.reachable(now),
            Signal::Called { call, ask } => effects.extend(self.called(call, ask)),
            Signal::Watched => self.watched = Some(now),
            Signal::MakeRoom => effects.extend(self.make_room(now)),
            Signal::Noted { text } => {
                // The pill shows the latest; what is not reported yet is overtaken.
                self.outbox.retain(|event| !matches!(event, SegmentEvent::Noted { .. }));
                self.outbox.push(SegmentEvent::Noted { text });
            }
            Signal::Drain => self.draining = true,
            Signal::DrainNow => {
                self.draining = true;
                effects.extend(self.cut(ParkReason::Drain));
            }
            Signal::DrainOver => self.draining = false,
            Signal::Tick => {}
        }
        effects.extend(self.advance(now));
        effects
    }

    /// When [`Signal::Tick`] has something to say at the latest. What was due by the time last told and did not come about
    /// waits for something else than time.
    pub fn next_tick(&self) -> Option<Duration> {
        self.deadlines().into_iter().flatten().filter(|at| *at > self.now).min()
    }

    fn deadlines(&self) -> [Option<Duration>; 8] {
        let again = self.in_flight.as_ref().map(|in_flight| in_flight.sent + REPORT_AGAIN_AFTER);
        let claim = self.log.hot().is_none().then_some(self.began + CLAIM_GIVEN_UP_AFTER);
        if let Some(frozen) = self.frozen.filter(|_| self.leaving.is_none()) {
            let killed = Some(frozen.since + FROZEN_KILLED_AFTER);
            return [again, claim, killed, None, None, None, None, None];
        }
        let park = match self.harness {
            Harness::Idle { since } if self.leaving.is_none() => Some(self.parks_at(since)),
            _ => None,
        };
        let running = |settling: &Settling| self.harness == Harness::Running && !settling.interrupted;
        let settle =
            self.settling.filter(running).map(|settling| settling.since + self.policy.turn_end_grace);
        let ended = match self.leaving {
            Some(Leaving::Ended { until, asked: false }) => Some(until),
            _ => None,
        };
        let leave = self
            .in_flight
            .as_ref()
            .filter(|_| self.draining)
            .map(|in_flight| in_flight.first_sent + LEAVE_UNANSWERED_AFTER);
        let held = self.tasks.values().map(|task| task.since + BACKGROUND_HOLDS_FOR);
        let held = held.filter(|at| *at > self.now).min();
        [again, claim, park, settle, ended, leave, self.cut_at(), held]
    }

    fn recorded(&mut self, frame: Uuid) -> Option<Effect> {
        let wake = self.wake;
        let current = self.frame.as_mut().filter(|current| current.id == frame)?;
        if current.stage != FrameStage::Recording {
            return None;
        }
        current.stage = FrameStage::Delivered;
        self.wake = None;
        Some(Effect::Deliver { frame, contents: current.contents.clone(), wake })
    }

    fn withdrawn(&mut self, frame: Uuid, given_back: bool) {
        if self.frame.as_ref().is_none_or(|current| current.id != frame) {
            return;
        }
        if given_back {
            self.spent.insert(frame);
            self.frame = None;
        } else if let Some(current) = &mut self.frame {
            current.stage = FrameStage::Kept;
        }
    }

    fn consumed(&mut self, frame: Uuid) {
        let Some(current) = self.frame.take_if(|current| current.id == frame) else { return };
        let Contents { inputs, fired } = current.contents;
        if let Some(settling) = self.settling.as_mut().filter(|_| !inputs.is_empty()) {
            settling.spoken = true;
        }
        self.consumed.extend(inputs.iter().copied());
        self.told.extend(fired.iter().copied());
        if !(inputs.is_empty() && fired.is_empty()) {
            self.outbox.push(SegmentEvent::Consumed { inputs, fired });
        }
    }

    fn called(&mut self, call: CallNo, ask: Ask) -> Option<Effect> {
        if let crate::process::Phase::Ended { exit, .. } = &self.log.phase {
            let answer = CallAnswer::AlreadyEnded { outcome: exit.outcome.to_string() };
            return Some(Effect::Answer { call, answer });
        }
        self.calls.push(PendingCall { call, ask, reported: None });
        None
    }

    /// The id a frame goes in under: that of its first input or wait, unless the harness gave that one back in this
    /// segment.
    fn frame_id(&self, contents: &Contents) -> Uuid {
        let input =
            contents.inputs.first().map(|input| MessageId::of_input(self.log.conversation, *input).uuid());
        let wait = contents.fired.first().map(|wait| wait.uuid());
        let own = input.or(wait).unwrap_or_default();
        let mut id = own;
        let mut attempt = 0_u32;
        while self.spent.contains(&id) {
            attempt += 1;
            id = Uuid::new_v5(&own, &attempt.to_be_bytes());
        }
        id
    }
}
