//! The segment has stopped its harness. The process parks, or wakes at once where there is something to go on with.

use super::{Fact, ParkReason, Phase, State, WakeClass, WakeTrigger};
use crate::time::Timestamp;

pub(super) fn step(state: &mut State, reason: &ParkReason, unfinished: bool, now: Timestamp) -> Vec<Fact> {
    let parked = Fact::Parked { reason: reason.clone() };
    // A person has to act first; until then another wake would only fail again.
    let barred = matches!(reason, ParkReason::NeedsAttention { .. });
    if !barred && !state.undelivered.is_empty() {
        return vec![parked, state.wake(WakeTrigger::Message, WakeClass::Input, now)];
    }
    if !barred && unfinished {
        return vec![parked, state.wake(WakeTrigger::Resume, WakeClass::Resume, now)];
    }
    state.held.clear();
    state.phase = Phase::Parked { since: now, reason: reason.clone() };
    vec![parked]
}
