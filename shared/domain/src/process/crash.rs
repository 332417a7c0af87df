//! The harness has ended without having been asked to. The process rests, for longer each time, and goes on; one that
//! crashes again and again waits for a person.

use super::{Change, Fact, ParkReason, Phase, State, WakeClass, WakeTrigger, running, shown};
use crate::Refusal;
use crate::ids::{EventSeq, WaitId};
use crate::policy;
use crate::time::Timestamp;

pub(super) fn step(state: &mut State, what: &str, events: Option<EventSeq>, now: Timestamp) -> Vec<Fact> {
    let what = shown(what, policy::ERROR_SHOWN_MAX);
    let mut facts = running::killed(state);
    facts.push(Fact::Crashed { what: what.clone() });
    state.looks_back_to(events);
    state.crashes.in_a_row = state.crashes.in_a_row.saturating_add(1);
    state.crashes.untold = Some(what.clone());
    if state.finishing.is_some() {
        facts.extend(state.finish_itself(None, now));
        return facts;
    }
    let rest = policy::CRASH_BACK_OFF.get(usize::from(state.crashes.in_a_row) - 1);
    let reason = match rest {
        Some(rest) => ParkReason::Crashed { what, until: now.plus(*rest) },
        None => ParkReason::NeedsAttention {
            what: format!("the harness crashed {} times in a row: {what}", state.crashes.in_a_row),
        },
    };
    facts.push(Fact::Parked { reason: reason.clone() });
    state.held.clear();
    state.phase = Phase::Parked { since: now, reason };
    facts
}

/// It has rested for long enough. `None` where it does not rest under this timer.
pub(super) fn rested(state: &State, timer: WaitId, now: Timestamp) -> Option<Result<Change, Refusal>> {
    let until = state.rests_until().filter(|_| timer == state.rest())?;
    if now < until {
        return Some(Err(Refusal::NotYetDue { wait: timer, until }));
    }
    let mut state = state.clone();
    let class = if state.undelivered.is_empty() { WakeClass::Resume } else { WakeClass::Input };
    let waking = state.wake(WakeTrigger::Crashed, class, now);
    Some(Ok(Change { facts: vec![waking], state }))
}

impl State {
    /// Whether it is tried again by itself if its harness crashes now.
    pub(crate) fn is_tried_again(&self) -> bool {
        usize::from(self.crashes.in_a_row) < policy::CRASH_BACK_OFF.len()
    }

    /// Until when it rests after a crash.
    const fn rests_until(&self) -> Option<Timestamp> {
        match &self.phase {
            Phase::Parked { reason: ParkReason::Crashed { until, .. }, .. } => Some(*until),
            _ => None,
        }
    }

    /// What its timer is named by while it rests.
    fn rest(&self) -> WaitId {
        WaitId::rest(self.process, self.epoch)
    }

    /// The timer that it needs: that of its rest, or else that of its wait.
    pub fn timer(&self) -> Option<(WaitId, Timestamp)> {
        let rest = self.rests_until().map(|until| (self.rest(), until));
        let wait = self.wait.as_ref().filter(|_| self.is_live());
        rest.or_else(|| wait.and_then(|wait| Some((wait.id, wait.due_at()?))))
    }
}
