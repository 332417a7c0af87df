//! How a segment comes to its end: it parks when nothing is to be done, it gives its slot back when its process has
//! ended, and it goes at once when another holds the conversation.

use std::time::Duration;

use super::{Effect, Harness, LEAVE_UNANSWERED_AFTER, Leaving, Segment};
use crate::process::{ParkReason, SegmentEvent, TurnOutcome};

impl Segment {
    /// Parks an idle segment for which nothing was said for long enough, or at once when the executor drains.
    pub(super) fn consider_parking(&mut self, now: Duration) -> Option<Effect> {
        let Harness::Idle { since } = self.harness else { return None };
        let quiet = self.frame.is_none()
            && self.outbox.is_empty()
            && self.in_flight.is_none()
            && self.finish.is_none()
            && self.tasks.is_empty();
        if !quiet {
            return None;
        }
        let nothing_said = self.log.deliverable().all(|input| self.consumed.contains(&input));
        let reason = match self.draining {
            true => ParkReason::Drain,
            false if nothing_said && now >= since + self.policy.park_after => ParkReason::Absent,
            false => return None,
        };
        self.leaving = Some(Leaving::Park { reason, unfinished: false, reported: false });
        Some(Effect::EndSession)
    }

    /// The executor waits no longer: what runs is cut, and goes on elsewhere.
    pub(super) fn drain_now(&mut self) -> Option<Effect> {
        self.draining = true;
        if self.leaving.is_some() {
            return None;
        }
        let (unfinished, effect) = match self.harness {
            Harness::Absent => {
                self.leaving = Some(Leaving::Fenced { killed: false });
                return None;
            }
            Harness::Gone => return None,
            Harness::Starting => (true, Effect::Kill),
            Harness::Running => (true, Effect::EndSession),
            Harness::Idle { .. } => (self.frame.is_some() || !self.tasks.is_empty(), Effect::EndSession),
        };
        self.leaving = Some(Leaving::Park { reason: ParkReason::Drain, unfinished, reported: false });
        Some(effect)
    }

    pub(super) fn harness_ended(&mut self, what: String) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.harness == Harness::Running {
            self.turns = self.turns.next();
            let outcome = TurnOutcome::Interrupted;
            self.outbox.push(SegmentEvent::TurnEnded { outcome });
            effects.push(Effect::TurnEnded { turn: self.turns, outcome });
        }
        self.harness = Harness::Gone;
        self.frame = None;
        self.tasks.clear();
        if self.leaving.is_none() {
            let reason = ParkReason::NeedsAttention { what: what.clone() };
            self.leaving = Some(Leaving::Park { reason, unfinished: true, reported: false });
            effects.push(Effect::Crashed { what });
        }
        effects
    }

    pub(super) fn leave(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let gone = matches!(self.harness, Harness::Absent | Harness::Gone);
        match &mut self.leaving {
            None => {}
            Some(Leaving::Fenced { .. } | Leaving::Ended { .. }) if gone => effects.push(Effect::Leave),
            Some(Leaving::Fenced { killed }) => {
                let again = std::mem::replace(killed, true);
                effects.extend((!again).then_some(Effect::Kill));
            }
            Some(Leaving::Ended { until, asked }) => {
                let may_go_on = self.harness == Harness::Running && now < *until;
                if !may_go_on && !std::mem::replace(asked, true) {
                    let starting = self.harness == Harness::Starting;
                    effects.push(if starting { Effect::Kill } else { Effect::EndSession });
                }
            }
            Some(Leaving::Park { reason, unfinished, reported }) => {
                if gone && !*reported {
                    *reported = true;
                    self.outbox.push(SegmentEvent::Park { reason: reason.clone(), unfinished: *unfinished });
                } else if gone && self.outbox.is_empty() {
                    let unanswered = self.in_flight.as_ref();
                    let given_up = |since: Duration| self.draining && now >= since + LEAVE_UNANSWERED_AFTER;
                    if unanswered.is_none_or(|in_flight| given_up(in_flight.first_sent)) {
                        effects.push(Effect::Leave);
                    }
                }
            }
        }
    }
}
