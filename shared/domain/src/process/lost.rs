//! No executor runs the segment any more. The process wakes again; what the dead segment still reports is fenced by
//! the new epoch.

use super::{Change, Fact, LossReason, State, WakeClass, WakeTrigger, running};
use crate::Refusal;
use crate::ids::{Epoch, ExecutorId};
use crate::time::Timestamp;

pub(super) fn step(
    last: Option<&State>,
    executor: ExecutorId,
    epoch: Epoch,
    why: LossReason,
    now: Timestamp,
) -> Result<Change, Refusal> {
    let lost =
        last.filter(|state| state.epoch == epoch && state.hot().is_some_and(|hot| hot.executor == executor));
    let Some(mut state) = lost.cloned() else {
        return Err(Refusal::Fenced { executor, epoch });
    };
    let class = if state.undelivered.is_empty() { WakeClass::Resume } else { WakeClass::Input };
    let mut facts = running::killed(&mut state);
    facts.push(Fact::Lost { executor, epoch, why });
    facts.push(state.wake(WakeTrigger::ExecutorLost, class, now));
    Ok(Change { facts, state })
}
