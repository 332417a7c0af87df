//! Leaving in the middle of the work, since the executor drains or the segment has had its time. Both wait for a boundary,
//! at which nothing is cut off: between two tools of a turn, or between two turns. What goes on beside the turn would be
//! killed, so there is no boundary while it holds its process.

use std::time::Duration;

use super::{Contents, Effect, Harness, Leaving, Segment};
use crate::policy::SEGMENT_CAP_GRACE;
use crate::process::ParkReason;

impl Segment {
    /// Why this segment goes at its next boundary.
    pub(super) fn is_to_go(&self, now: Duration) -> Option<ParkReason> {
        if self.draining {
            return Some(ParkReason::Drain);
        }
        let has_had_its_time = now >= self.began + self.policy.cap && !self.holds_work(now);
        has_had_its_time.then_some(ParkReason::SegmentCap)
    }

    /// Whether what waits is left to the next segment.
    pub(super) fn hands_on(&self, now: Duration) -> bool {
        match self.is_to_go(now) {
            Some(ParkReason::Drain) => true,
            // While the turn runs, whoever steers it is heard in it.
            Some(_) => matches!(self.harness, Harness::Idle { .. }) && self.waiting() != Contents::default(),
            None => false,
        }
    }

    pub(super) fn tool_ended(&mut self, tool: &str, now: Duration) -> Option<Effect> {
        self.tools.remove(tool);
        let between_tools =
            self.harness == Harness::Running && self.tools.is_empty() && self.calls.is_empty();
        // A turn that is about to end anyway is let end.
        let ends_anyway =
            self.settling.is_some_and(|settling| !settling.spoken) || self.interrupting.is_some();
        let stays = self.frozen.is_some() || self.log.hot().is_none() || self.holds_work(now);
        let reason = self.is_to_go(now).filter(|_| between_tools && !ends_anyway && !stays)?;
        self.cut(reason)
    }

    /// When a segment that has had its time is not waited for any longer; never while something goes on beside its turn.
    pub(super) fn cut_at(&self) -> Option<Duration> {
        let works = self.harness == Harness::Running && self.tasks.is_empty() && self.leaving.is_none();
        works.then_some(self.began + self.policy.cap + SEGMENT_CAP_GRACE)
    }

    pub(super) fn cut_overdue(&mut self, now: Duration) -> Option<Effect> {
        let overdue = self.cut_at().is_some_and(|at| now >= at);
        if overdue { self.cut(ParkReason::SegmentCap) } else { None }
    }

    /// The end of a turn that is cut off is told with the park, so that nobody takes it for the agent's own. A call waits
    /// for its answer, and is told at once.
    pub(super) fn is_being_cut(&self) -> bool {
        let gone = matches!(self.harness, Harness::Absent | Harness::Gone);
        let parks = matches!(self.leaving, Some(Leaving::Park { reported: false, .. }));
        parks && !gone && self.calls.iter().all(|call| call.reported.is_some())
    }

    /// What runs is not waited for: it is cut off, and goes on in the next segment.
    pub(super) fn cut(&mut self, reason: ParkReason) -> Option<Effect> {
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
            Harness::Running | Harness::Idle { .. } if self.frozen.is_some() => (true, Effect::Kill),
            Harness::Running => (true, Effect::EndSession),
            Harness::Idle { .. } => (self.frame.is_some() || !self.tasks.is_empty(), Effect::EndSession),
        };
        self.leaving = Some(Leaving::park(reason, unfinished));
        Some(effect)
    }
}
