//! One hot stay of a process, as its executor sees it: when to hand which inputs to the harness, when to interrupt it,
//! what to report, and when to leave. Pure: it is told what happened and answers with what is to be done; the executor's
//! task does it and tells how it went.
//!
//! The truth is the process's log. What stands there as undelivered is delivered until the harness has echoed it; a
//! report is sent again until its number stands there; and whoever the log says holds the conversation, holds it.

mod advance;
mod leave;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;

use crate::ids::{Epoch, ExecutorId, Incarnation, MessageId, RecordSeq, Renewal, ReportNo, TurnNo};
use crate::process::{ParkReason, Report, SegmentEvent, Session, State, TurnOutcome, WakeTrigger};

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
    /// An idle segment parks after this long.
    pub park_after: Duration,
    /// How long the harness may take to end its turn once its process has ended.
    pub turn_end_grace: Duration,
}

/// Something happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// The newest state of the process.
    Log(Box<State>),
    /// The text of an input is at hand; its length in bytes.
    Known {
        input: RecordSeq,
        bytes: usize,
    },
    /// The record holds that the frame goes in.
    Recorded {
        frame: Uuid,
    },
    /// The harness was asked to give the frame back, and had it or not.
    Withdrawn {
        frame: Uuid,
        given_back: bool,
    },
    /// The harness accepts input.
    Ready {
        session: Session,
    },
    /// A turn runs.
    Running,
    /// The harness has echoed a frame.
    Consumed {
        frame: Uuid,
    },
    TurnEnded {
        outcome: TurnOutcome,
    },
    /// Work that goes on beside the turn.
    TaskStarted {
        task: String,
    },
    TaskEnded {
        task: String,
    },
    /// The harness is gone, or could not be started; what a person has to know.
    Ended {
        what: String,
    },
    /// `finish_process` was called.
    Finish {
        summary: String,
    },
    /// `tell_user` was called.
    Noted {
        text: String,
    },
    /// The executor takes no more work and wants to end.
    Drain,
    /// What still runs is not waited for any longer.
    DrainNow,
    /// Time has passed.
    Tick,
}

/// Something is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Report(Report),
    /// Everything for the harness is to be set up; answered by `Ready` or `Ended`.
    Start,
    /// Write down which inputs go in under which id; answered by `Recorded`.
    Record {
        frame: Uuid,
        inputs: Vec<RecordSeq>,
    },
    /// Hand the inputs to the harness under this id. `wake` is told with them.
    Deliver {
        frame: Uuid,
        inputs: Vec<RecordSeq>,
        wake: Option<WakeTrigger>,
    },
    /// Ask for a frame that is not echoed; answered by `Withdrawn`.
    Withdraw {
        frame: Uuid,
    },
    /// End the running turn; answered by `TurnEnded`.
    Interrupt,
    /// End the harness through its protocol; answered by `Ended`.
    EndSession,
    /// End everything inside at once; answered by `Ended`.
    Kill,
    TurnStarted {
        turn: TurnNo,
    },
    TurnEnded {
        turn: TurnNo,
        outcome: TurnOutcome,
    },
    /// Answer the waiting `finish_process`.
    AnswerFinish(FinishAnswer),
    /// The harness is gone without having been asked to; the person is told.
    Crashed {
        what: String,
    },
    /// The segment is over; nothing is left to do.
    Leave,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishAnswer {
    Finished,
    /// The process had ended before; how.
    AlreadyEnded {
        outcome: String,
    },
    /// What is open, and the way out.
    Held {
        open: String,
    },
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
    harness: Harness,
    /// Turns that have ended, the conversation's earlier ones included.
    turns: TurnNo,
    wake: Option<WakeTrigger>,
    frame: Option<Frame>,
    /// Frames of earlier segments whose inputs are still undelivered: the harness may know their ids.
    former: Vec<(Uuid, Vec<RecordSeq>)>,
    /// Ids that the harness gave back. It would echo them without reading them.
    spent: BTreeSet<Uuid>,
    known: BTreeMap<RecordSeq, usize>,
    /// Echoed, and not yet off the log's list.
    consumed: BTreeSet<RecordSeq>,
    /// What the next report tells. Bounded by what the log lets happen: without its answers no input is delivered.
    outbox: Vec<SegmentEvent>,
    in_flight: Option<InFlight>,
    reported: ReportNo,
    /// A `finish_process` that waits, and whether it has been reported.
    finish: Option<FinishCall>,
    /// The request to interrupt that is being carried out.
    interrupting: Option<RecordSeq>,
    tasks: BTreeSet<String>,
    draining: bool,
    leaving: Option<Leaving>,
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
    inputs: Vec<RecordSeq>,
    stage: FrameStage,
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
enum FinishCall {
    /// Its summary goes into a report.
    Waiting(String),
    /// It went out in this report.
    Reported(ReportNo),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Leaving {
    /// The process has ended. Its harness may end its turn until then.
    Ended { until: Duration, asked: bool },
    /// The harness is to end, and then the process parks.
    Park { reason: ParkReason, unfinished: bool, reported: bool },
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
        former: Vec<(Uuid, Vec<RecordSeq>)>,
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
            harness: Harness::Absent,
            wake,
            frame: None,
            former,
            spent: BTreeSet::new(),
            known: BTreeMap::new(),
            consumed: BTreeSet::new(),
            outbox: vec![SegmentEvent::Claim { renewal: me.renewal }],
            in_flight: None,
            reported: ReportNo(0),
            finish: None,
            interrupting: None,
            tasks: BTreeSet::new(),
            draining: false,
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
        let mut effects = Vec::new();
        match signal {
            Signal::Log(state) => self.log = *state,
            Signal::Known { input, bytes } => drop(self.known.insert(input, bytes)),
            Signal::Recorded { frame } => effects.extend(self.recorded(frame)),
            Signal::Withdrawn { frame, given_back } => self.withdrawn(frame, given_back),
            Signal::Ready { session } => {
                self.harness = Harness::Idle { since: now };
                self.outbox.push(SegmentEvent::Ready { session });
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
                self.harness = Harness::Idle { since: now };
                self.turns = self.turns.next();
                self.outbox.push(SegmentEvent::TurnEnded { outcome });
                effects.push(Effect::TurnEnded { turn: self.turns, outcome });
            }
            Signal::TaskStarted { task } => drop(self.tasks.insert(task)),
            Signal::TaskEnded { task } => drop(self.tasks.remove(&task)),
            Signal::Ended { what } => effects.extend(self.harness_ended(what)),
            Signal::Finish { summary } => effects.extend(self.finish_called(summary)),
            Signal::Noted { text } => {
                // The pill shows the latest; what is not reported yet is overtaken.
                self.outbox.retain(|event| !matches!(event, SegmentEvent::Noted { .. }));
                self.outbox.push(SegmentEvent::Noted { text });
            }
            Signal::Drain => self.draining = true,
            Signal::DrainNow => effects.extend(self.drain_now()),
            Signal::Tick => {}
        }
        effects.extend(self.advance(now));
        effects
    }

    /// When [`Signal::Tick`] has something to say at the latest.
    pub fn next_tick(&self) -> Option<Duration> {
        let again = self.in_flight.as_ref().map(|in_flight| in_flight.sent + REPORT_AGAIN_AFTER);
        let claim = self.log.hot().is_none().then_some(self.began + CLAIM_GIVEN_UP_AFTER);
        let park = match self.harness {
            Harness::Idle { since } if self.leaving.is_none() => Some(since + self.policy.park_after),
            _ => None,
        };
        let ended = match self.leaving {
            Some(Leaving::Ended { until, asked: false }) => Some(until),
            _ => None,
        };
        let leave = self
            .in_flight
            .as_ref()
            .filter(|_| self.draining)
            .map(|in_flight| in_flight.first_sent + LEAVE_UNANSWERED_AFTER);
        [again, claim, park, ended, leave].into_iter().flatten().min()
    }

    fn recorded(&mut self, frame: Uuid) -> Option<Effect> {
        let wake = self.wake;
        let current = self.frame.as_mut().filter(|current| current.id == frame)?;
        if current.stage != FrameStage::Recording {
            return None;
        }
        current.stage = FrameStage::Delivered;
        self.wake = None;
        Some(Effect::Deliver { frame, inputs: current.inputs.clone(), wake })
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
        self.consumed.extend(current.inputs.iter().copied());
        if !current.inputs.is_empty() {
            self.outbox.push(SegmentEvent::Consumed { inputs: current.inputs });
        }
    }

    fn finish_called(&mut self, summary: String) -> Option<Effect> {
        if let crate::process::Phase::Ended { exit, .. } = &self.log.phase {
            let outcome = exit.outcome.to_string();
            return Some(Effect::AnswerFinish(FinishAnswer::AlreadyEnded { outcome }));
        }
        self.finish = Some(FinishCall::Waiting(summary));
        None
    }

    /// The id an input goes in under: its own, unless the harness gave that one back in this segment.
    fn frame_id(&self, input: RecordSeq) -> Uuid {
        let own = MessageId::of_input(self.log.conversation, input).uuid();
        let mut id = own;
        let mut attempt = 0_u32;
        while self.spent.contains(&id) {
            attempt += 1;
            id = Uuid::new_v5(&own, &attempt.to_be_bytes());
        }
        id
    }
}
