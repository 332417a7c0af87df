//! An operator has mended what a process needed, and has it tried again.

use super::{Arrived, Change, Fact, Phase, WakeClass, WakeTrigger};
use crate::Refusal;

pub(super) fn step(arrived: &Arrived<'_>) -> Change {
    let Some(mut state) = arrived.last.cloned() else { return arrived.refused(Refusal::NothingToStop) };
    match &state.phase {
        Phase::Parked { .. } => {
            let class = if state.undelivered.is_empty() { WakeClass::Resume } else { WakeClass::Input };
            state.crashes.in_a_row = 0;
            let waking = state.wake(WakeTrigger::Resume, class, arrived.now);
            Change { facts: vec![waking], state }
        }
        Phase::Ended { exit, .. } => arrived.refused(Refusal::AlreadyEnded { exit: exit.clone() }),
        Phase::Absent => arrived.refused(Refusal::NothingToStop),
        Phase::Waking { .. } | Phase::Hot(_) => arrived.nothing_but(Fact::NothingRan { input: arrived.seq }),
    }
}
