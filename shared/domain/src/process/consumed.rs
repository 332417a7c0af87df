//! The harness has echoed inputs: they are no longer undelivered. Only the echo takes them off.

use super::{Fact, State};
use crate::ids::RecordSeq;

pub(super) fn step(state: &mut State, inputs: &[RecordSeq]) -> Option<Fact> {
    let inputs: Vec<_> = inputs.iter().copied().filter(|input| state.undelivered.contains(input)).collect();
    if inputs.is_empty() {
        return None;
    }
    state.undelivered.retain(|input| !inputs.contains(input));
    state.held.retain(|input| !inputs.contains(input));
    Some(Fact::Consumed { inputs })
}
