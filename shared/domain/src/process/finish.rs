//! `finish_process`: the only way the agent ends its process. It is held while anything is open; then nothing is
//! recorded but the number of the report.

use super::{Exit, ExitReason, Fact, OpenWork, Outcome, State};
use crate::time::Timestamp;

pub(super) fn step(state: &mut State, summary: &str, now: Timestamp) -> Vec<Fact> {
    let open = open_work(state);
    if !open.is_empty() {
        return vec![Fact::FinishHeld { open }];
    }
    let exit = Exit {
        outcome: Outcome::Completed,
        reason: ExitReason::FinishProcess,
        summary: Some(summary.to_owned()),
    };
    state.end(exit, now)
}

fn open_work(state: &State) -> Vec<OpenWork> {
    let count = state.undelivered.len();
    (count > 0).then_some(OpenWork::Messages { count }).into_iter().collect()
}
