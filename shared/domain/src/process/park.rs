//! The segment has stopped its harness. The process parks, or wakes at once where there is something to go on with.

use super::{Fact, ParkReason, Phase, State, WakeClass, WakeTrigger, running};
use crate::ids::EventSeq;
use crate::time::Timestamp;

pub(super) fn step(
    state: &mut State,
    reason: &ParkReason,
    unfinished: bool,
    events: Option<EventSeq>,
    now: Timestamp,
) -> Vec<Fact> {
    let mut facts = running::killed(state);
    facts.extend(decide(state, reason, unfinished, events, now));
    facts
}

fn decide(
    state: &mut State,
    reason: &ParkReason,
    unfinished: bool,
    events: Option<EventSeq>,
    now: Timestamp,
) -> Vec<Fact> {
    let parked = Fact::Parked { reason: reason.clone() };
    state.looks_back_to(events);
    // A person has to act first; until then another wake would only fail again.
    let barred = reason.bars();
    if !barred && !state.undelivered.is_empty() {
        return vec![parked, state.wake(WakeTrigger::Message, WakeClass::Input, now)];
    }
    if state.finishing.is_some() {
        return [vec![parked], state.finish_itself(None, now)].concat();
    }
    if !barred && !state.fired.is_empty() {
        return vec![parked, state.wake(WakeTrigger::Wait, WakeClass::Event, now)];
    }
    if !barred && unfinished {
        return vec![parked, state.wake(WakeTrigger::Resume, WakeClass::Resume, now)];
    }
    state.held.clear();
    state.phase = Phase::Parked { since: now, reason: reason.clone() };
    vec![parked]
}
