//! What follows from where the segment stands: claim, start, deliver, interrupt, report.

use std::time::Duration;

use uuid::Uuid;

use super::{
    Ask, CLAIM_GIVEN_UP_AFTER, CallAnswer, Contents, Effect, FRAME_BYTES_MAX, Frame, FrameStage, Harness,
    Identity, InFlight, Leaving, REPORT_AGAIN_AFTER, Segment, Settling,
};
use crate::ids::{RecordSeq, ReportNo, WaitId};
use crate::process::{Answer, Outcome, Phase, Report, WakeTrigger};

/// What an earlier segment left of what comes next.
enum Former {
    None,
    /// A frame whose texts are not all at hand.
    Waits,
    Frame(Uuid, Contents),
}

impl Segment {
    pub(super) fn advance(&mut self, now: Duration) -> Vec<Effect> {
        let mut effects = Vec::new();
        effects.extend(self.settle());
        self.see_the_log(now, &mut effects);
        self.give_up_frozen(now);
        if self.leaving.is_some() {
            self.leave(now, &mut effects);
        } else if self.log.hot().is_some() && self.frozen.is_none() {
            if self.harness == Harness::Absent {
                self.harness = Harness::Starting;
                effects.push(Effect::Start);
            }
            self.see_the_wait(now);
            effects.extend(self.interrupt());
            effects.extend(self.settle_down(now));
            effects.extend(self.cut_overdue(now));
            effects.extend(self.deliver(now));
            effects.extend(self.consider_parking(now));
        }
        effects.extend(self.report(now));
        effects
    }

    /// Whether the log shows this segment as the one that holds the conversation.
    pub(super) fn holds(&self) -> bool {
        self.log.epoch == self.me.epoch
            && self
                .log
                .hot()
                .is_some_and(|hot| (hot.executor, hot.incarnation) == (self.me.executor, self.me.incarnation))
    }

    /// Takes the answer of the report in flight, once its number stands in the log.
    fn settle(&mut self) -> Vec<Effect> {
        let Some(in_flight) = self.answered() else { return Vec::new() };
        let thawed = self.thaw(&in_flight.report.events);
        thawed.into_iter().chain(self.answer(in_flight.report.n)).collect()
    }

    /// The report that was in flight, once its number stands in the log.
    fn answered(&mut self) -> Option<InFlight> {
        self.consumed.retain(|input| self.log.undelivered.contains(input));
        let log = &self.log;
        self.told.retain(|wait| log.fired.iter().any(|fired| fired.wait == *wait));
        let me = self.me;
        let reported = self.log.reported.as_ref().filter(|reported| {
            (reported.executor, reported.incarnation, reported.epoch)
                == (me.executor, me.incarnation, me.epoch)
        })?;
        self.in_flight.take_if(|in_flight| in_flight.report.n <= reported.n)
    }

    /// Answers the call that went out in the report.
    fn answer(&mut self, report: ReportNo) -> Option<Effect> {
        let reported = self.log.reported.as_ref()?;
        let asked = self.calls.iter().position(|call| call.reported == Some(report))?;
        let asked = self.calls.remove(asked);
        let finishing = matches!(asked.ask, Ask::Finish { .. });
        let answer = match (&self.log.phase, &reported.answer) {
            (Phase::Ended { exit, .. }, Answer::Done) if finishing && exit.outcome == Outcome::Completed => {
                CallAnswer::Done
            }
            (Phase::Ended { exit, .. }, _) => CallAnswer::AlreadyEnded { outcome: exit.outcome.to_string() },
            (_, Answer::Refused { why }) => CallAnswer::Refused { why: why.clone() },
            (_, Answer::Done) => CallAnswer::Done,
        };
        Some(Effect::Answer { call: asked.call, answer })
    }

    /// Leaves where the log says that there is nothing to hold any more.
    fn see_the_log(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let ours = self.log.epoch == self.me.epoch;
        if let (true, Phase::Ended { exit, .. }) = (ours, &self.log.phase) {
            // What was not reported by now would be declined, and may never be answered.
            self.outbox.clear();
            self.in_flight = None;
            for waiting in self.calls.drain(..) {
                let answer = CallAnswer::AlreadyEnded { outcome: exit.outcome.to_string() };
                effects.push(Effect::Answer { call: waiting.call, answer });
            }
            if !matches!(self.leaving, Some(Leaving::Ended { .. })) {
                let asked = matches!(self.leaving, Some(Leaving::Park { .. }));
                let until = match exit.outcome {
                    Outcome::Completed => now + self.policy.turn_end_grace,
                    Outcome::Stopped | Outcome::Failed => now,
                };
                self.leaving = Some(Leaving::Ended { until, asked });
            }
            return;
        }
        let claiming =
            ours && matches!(self.log.phase, Phase::Waking { .. }) && now < self.began + CLAIM_GIVEN_UP_AFTER;
        // Of another epoch, the log never answers what is still in flight.
        let parked_by_us = ours && matches!(self.leaving, Some(Leaving::Park { reported: true, .. }));
        let fenced = matches!(self.leaving, Some(Leaving::Fenced { .. }));
        if !self.holds() && !claiming && !parked_by_us && !fenced {
            self.leaving = Some(Leaving::Fenced { killed: false });
        }
    }

    /// Carries out the end of a turn that the log asks for. A frame that is not echoed is taken back first, since the
    /// harness would run it at once after the interrupt, and the person would see nothing stop.
    fn interrupt(&mut self) -> Option<Effect> {
        let asked = self.log.hot().and_then(|hot| hot.interrupt);
        let Some(asked) = asked else {
            self.interrupting = None;
            return None;
        };
        if self.harness != Harness::Running {
            return None;
        }
        if let Some(frame) = self.frame.as_mut().filter(|frame| frame.stage == FrameStage::Delivered)
            && self.interrupting.is_none()
        {
            frame.stage = FrameStage::Withdrawing;
            return Some(Effect::Withdraw { frame: frame.id });
        }
        let withdrawing = self.frame.as_ref().is_some_and(|frame| frame.stage == FrameStage::Withdrawing);
        if withdrawing || self.interrupting == Some(asked) {
            return None;
        }
        self.interrupting = Some(asked);
        Some(Effect::Interrupt)
    }

    /// One frame at a time: the next goes in when this one is echoed.
    fn deliver(&mut self, now: Duration) -> Option<Effect> {
        let open = matches!(self.harness, Harness::Idle { .. } | Harness::Running);
        let stopping = self.log.hot().is_some_and(|hot| hot.interrupt.is_some());
        if !open || stopping || self.leaving.is_some() || self.hands_on(now) || self.frame.is_some() {
            return None;
        }
        let waiting = self.waiting();
        match self.former_frame(&waiting) {
            Former::Frame(id, contents) => return Some(self.hand_over(id, contents)),
            Former::Waits => return None,
            Former::None => {}
        }
        // The note of a wait goes in by itself, under an id of its own: whoever gives it again does not know what was said
        // beside it.
        let next = match waiting.fired.first() {
            Some(wait) => Contents { inputs: Vec::new(), fired: vec![*wait] },
            None => Contents { inputs: self.next_inputs(&waiting.inputs), fired: Vec::new() },
        };
        if next != Contents::default() {
            let id = self.frame_id(&next);
            self.frame = Some(Frame { id, contents: next.clone(), stage: FrameStage::Recording });
            return Some(Effect::Record { frame: id, contents: next });
        }
        // Nothing was said; the agent is told why it is awake.
        let cut_off = self.wake.is_some_and(WakeTrigger::resumes);
        (cut_off && waiting == Contents::default()).then(|| {
            let id = Uuid::new_v5(&self.log.segment().uuid(), b"wake");
            self.hand_over(id, Contents::default())
        })
    }

    /// What the harness has not been given yet.
    pub(super) fn waiting(&self) -> Contents {
        let inputs = self.log.deliverable().filter(|input| !self.consumed.contains(input)).collect();
        let fired = self.log.fired.iter().map(|fired| fired.wait).filter(|wait| !self.told.contains(wait));
        Contents { inputs, fired: fired.collect() }
    }

    /// Notices that this segment has booked a wait, and for how long.
    fn see_the_wait(&mut self, now: Duration) {
        let mine = self.log.wait.as_ref().filter(|wait| wait.epoch == self.me.epoch).map(|wait| wait.id);
        if self.settling.map(|settling| settling.wait) != mine {
            let begun = |wait: WaitId| Settling { wait, since: now, spoken: false, interrupted: false };
            self.settling = mine.map(begun);
        }
    }

    /// The call that booked the wait is answered, and the harness has been given its time to end the turn.
    fn settle_down(&mut self, now: Duration) -> Option<Effect> {
        let busy = self.harness != Harness::Running || self.holds_work(now) || !self.calls.is_empty();
        let waits = self.waiting() != Contents::default() || self.frame.is_some();
        let settling = self.settling.as_mut().filter(|settling| !settling.spoken && !settling.interrupted)?;
        if busy || waits || now < settling.since + self.policy.turn_end_grace {
            return None;
        }
        settling.interrupted = true;
        Some(Effect::Interrupt)
    }

    fn hand_over(&mut self, id: Uuid, contents: Contents) -> Effect {
        self.frame = Some(Frame { id, contents: contents.clone(), stage: FrameStage::Delivered });
        Effect::Deliver { frame: id, contents, wake: self.wake.take() }
    }

    /// The first of the frames that earlier segments wrote down and whose contents still wait: the harness knows by its id
    /// whether it has read it. It goes in whole, also before what was held back then, and is overtaken by a later one
    /// that holds some of the same.
    fn former_frame(&mut self, waiting: &Contents) -> Former {
        let waits = |(id, contents): &(Uuid, Contents)| {
            *contents != Contents::default()
                && contents.inputs.iter().all(|input| waiting.inputs.contains(input))
                && contents.fired.iter().all(|wait| waiting.fired.contains(wait))
                && !self.spent.contains(id)
        };
        let overtaken = |at: usize| {
            let (_, first) = &self.former[at];
            self.former[at + 1..].iter().any(|(_, later)| {
                later.inputs.iter().any(|input| first.inputs.contains(input))
                    || later.fired.iter().any(|wait| first.fired.contains(wait))
            })
        };
        let next = (0..self.former.len()).find(|at| waits(&self.former[*at]) && !overtaken(*at));
        let Some(at) = next else { return Former::None };
        if !self.former[at].1.inputs.iter().all(|input| self.known.contains_key(input)) {
            return Former::Waits;
        }
        let (id, contents) = self.former.remove(at);
        Former::Frame(id, contents)
    }

    /// The inputs that go into the next frame: in their order, as far as their texts are at hand.
    fn next_inputs(&self, waiting: &[RecordSeq]) -> Vec<RecordSeq> {
        let mut bytes = 0;
        let mut inputs = Vec::new();
        for input in waiting {
            let Some(size) = self.known.get(input) else { break };
            bytes += size;
            if bytes > FRAME_BYTES_MAX && !inputs.is_empty() {
                break;
            }
            inputs.push(*input);
        }
        inputs
    }

    /// One report at a time: the next goes out when the log holds this one.
    fn report(&mut self, now: Duration) -> Option<Effect> {
        if matches!(self.leaving, Some(Leaving::Fenced { .. })) {
            return None;
        }
        if let Some(in_flight) = &mut self.in_flight {
            if now < in_flight.sent + REPORT_AGAIN_AFTER {
                return None;
            }
            in_flight.sent = now;
            return Some(Effect::Report(in_flight.report.clone()));
        }
        if self.is_being_cut() {
            return None;
        }
        let mut events = std::mem::take(&mut self.outbox);
        let n = self.reported.next();
        // What asks for something comes last, and a claim alone.
        if n.0 > 1
            && let Some(call) = self.calls.iter_mut().find(|call| call.reported.is_none())
        {
            events.push(call.ask.event());
            call.reported = Some(n);
        }
        if events.is_empty() {
            return None;
        }
        let Identity { executor, incarnation, epoch, .. } = self.me;
        let report = Report { executor, incarnation, epoch, n, events };
        self.reported = n;
        self.in_flight = Some(InFlight { report: report.clone(), first_sent: now, sent: now });
        Some(Effect::Report(report))
    }
}
