//! The harness has echoed a frame: its inputs are no longer undelivered, and what it told of waits is told. Only the
//! echo takes them off.

use super::{Fact, State};
use crate::ids::{RecordSeq, WaitId};

pub(super) fn step(state: &mut State, inputs: &[RecordSeq], fired: &[WaitId]) -> Option<Fact> {
    let inputs: Vec<_> = inputs.iter().copied().filter(|input| state.undelivered.contains(input)).collect();
    let known = |wait: &WaitId| state.fired.iter().any(|fired| fired.wait == *wait);
    let fired: Vec<_> = fired.iter().copied().filter(known).collect();
    if inputs.is_empty() && fired.is_empty() {
        return None;
    }
    state.undelivered.retain(|input| !inputs.contains(input));
    state.held.retain(|input| !inputs.contains(input));
    state.fired.retain(|told| !fired.contains(&told.wait));
    Some(Fact::Consumed { inputs, fired })
}
