//! How a segment comes to its end: it parks when nothing is to be done, it gives its slot back when its process has
//! ended, and it goes at once when another holds the conversation.

use std::time::Duration;

use super::{Contents, Effect, Harness, LEAVE_UNANSWERED_AFTER, Leaving, Segment, SegmentPolicy};
use crate::policy::BACKGROUND_HOLDS_FOR;
use crate::process::{ParkReason, SegmentEvent, TaskKind, TurnOutcome, WaitOn};

impl Segment {
    /// Parks an idle segment that waits for something else than a message, or that nobody watches for long enough; at
    /// once when the executor drains.
    pub(super) fn consider_parking(&mut self, now: Duration) -> Option<Effect> {
        let Harness::Idle { since } = self.harness else { return None };
        if !self.is_quiet(now) {
            return None;
        }
        let nothing_waits = self.waiting() == Contents::default();
        let settled = self.settling.is_some_and(|settling| !settling.spoken);
        let reason = match self.is_to_go(now) {
            Some(ParkReason::Drain) => ParkReason::Drain,
            Some(reason) if !nothing_waits => reason,
            _ if nothing_waits && (settled || now >= self.parks_at(since)) => self.park_reason(),
            _ => return None,
        };
        Some(self.park(reason))
    }

    /// Whether another process could have the slot and nobody would notice.
    pub fn could_make_room(&self, now: Duration) -> bool {
        let idle = matches!(self.harness, Harness::Idle { .. }) && self.leaving.is_none();
        let unseen = self.watched.is_none_or(|seen| now >= seen + self.policy.viewer_gone_after);
        let nothing_waits = self.is_quiet(now) && self.waiting() == Contents::default();
        idle && unseen && nothing_waits && self.frozen.is_none() && self.log.hot().is_some()
    }

    pub(super) fn make_room(&mut self, now: Duration) -> Option<Effect> {
        self.could_make_room(now).then(|| self.park(self.park_reason()))
    }

    /// When an idle segment parks if nothing happens.
    pub(super) fn parks_at(&self, idle_since: Duration) -> Duration {
        let SegmentPolicy { park_after, park_watched_after, viewer_gone_after, .. } = self.policy;
        let left = self.watched.map(|seen| seen + park_after.max(viewer_gone_after));
        let unwatched = left.unwrap_or_default().max(idle_since + park_after);
        unwatched.min(idle_since + park_watched_after.max(park_after))
    }

    /// Whether work goes on that holds the segment hot.
    pub(super) fn holds_work(&self, now: Duration) -> bool {
        self.tasks.values().any(|task| match task.kind {
            TaskKind::Command => now < task.since + BACKGROUND_HOLDS_FOR,
            TaskKind::SubAgent => true,
        })
    }

    fn is_quiet(&self, now: Duration) -> bool {
        self.frame.is_none()
            && self.outbox.is_empty()
            && self.in_flight.is_none()
            && self.calls.is_empty()
            && !self.holds_work(now)
    }

    fn park_reason(&self) -> ParkReason {
        match self.log.wait.as_ref().map(|wait| &wait.on) {
            Some(WaitOn::Time { .. }) => ParkReason::WaitTime,
            Some(WaitOn::Event { .. }) => ParkReason::WaitEvent,
            Some(WaitOn::Answer { .. }) => ParkReason::Question,
            None if self.log.cards.is_empty() => ParkReason::Absent,
            None => ParkReason::Question,
        }
    }

    fn park(&mut self, reason: ParkReason) -> Effect {
        self.leaving = Some(Leaving::park(reason, false));
        Effect::EndSession
    }

    /// A person has to act before a harness can run here.
    pub(super) fn unable(&mut self, what: String) {
        self.harness = Harness::Gone;
        if self.leaving.is_none() {
            self.leaving = Some(Leaving::park(ParkReason::NeedsAttention { what }, true));
        }
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
        self.tools.clear();
        self.tasks.clear();
        if self.leaving.is_none() {
            let by = SegmentEvent::Crashed { what: what.clone(), events: None };
            self.leaving = Some(Leaving::Park { by, reported: false });
            effects.push(Effect::Crashed { what, tried_again: self.log.is_tried_again() });
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
                    let deaf = self.harness == Harness::Starting || self.frozen.is_some();
                    effects.push(if deaf { Effect::Kill } else { Effect::EndSession });
                }
            }
            Some(Leaving::Park { by, reported }) => {
                if gone && !std::mem::replace(reported, true) {
                    self.outbox.push(by.clone());
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

impl Leaving {
    pub(super) const fn park(reason: ParkReason, unfinished: bool) -> Self {
        Self::Park { by: SegmentEvent::Park { reason, unfinished, events: None }, reported: false }
    }
}
