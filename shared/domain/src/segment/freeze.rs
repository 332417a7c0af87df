//! A segment whose executor cannot renew its lease stands still: another may hold the process by then. Back on the bus it
//! asks, by a report, and goes on only when the log has taken that from it.

use std::time::Duration;

use super::{Effect, Frozen, Leaving, Segment};
use crate::policy::FROZEN_KILLED_AFTER;
use crate::process::SegmentEvent;

impl Segment {
    pub(super) fn cut_off(&mut self, now: Duration) -> Effect {
        let frozen = self.stands_still(now);
        frozen.cut_off = true;
        frozen.asked = false;
        Effect::Freeze
    }

    pub(super) fn stands_still(&mut self, now: Duration) -> &mut Frozen {
        self.frozen.get_or_insert(Frozen { since: now, cut_off: false, asked: false })
    }

    /// The lease is renewed. Whether the process is still this segment's is for the log to say.
    pub(super) fn reachable(&mut self, now: Duration) {
        let Some(frozen) = &mut self.frozen else { return };
        frozen.cut_off = false;
        if !std::mem::replace(&mut frozen.asked, true) {
            let seconds = now.saturating_sub(frozen.since).as_secs();
            self.outbox.push(SegmentEvent::StoodStill { seconds });
        }
    }

    /// The log has taken these events from this segment.
    pub(super) fn thaw(&mut self, taken: &[SegmentEvent]) -> Option<Effect> {
        let asked = taken.iter().any(|event| matches!(event, SegmentEvent::StoodStill { .. }));
        let thaws = asked && self.frozen.is_some_and(|frozen| !frozen.cut_off);
        thaws.then(|| {
            self.frozen = None;
            Effect::Thaw
        })
    }

    /// What stood still for too long is given up; the registry notices that the lease no longer lists it.
    pub(super) fn give_up_frozen(&mut self, now: Duration) {
        let over = self.frozen.is_some_and(|frozen| now >= frozen.since + FROZEN_KILLED_AFTER);
        if over && self.leaving.is_none() {
            self.leaving = Some(Leaving::Fenced { killed: false });
        }
    }
}
