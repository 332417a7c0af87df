//! A stop: of the running turn, or of the process.

use super::{Arrived, Change, Exit, ExitReason, Fact, Outcome, Phase, Stage, shown};
use crate::Refusal;
use crate::policy;

/// The turn is interrupted by its segment, which reports its end; the process stays in progress.
pub(super) fn turn(arrived: &Arrived<'_>) -> Change {
    let Some(mut state) = arrived.last.cloned() else {
        return arrived.refused(Refusal::NothingToStop);
    };
    let fact = match &mut state.phase {
        Phase::Absent => return arrived.refused(Refusal::NothingToStop),
        Phase::Ended { exit, .. } => {
            let exit = exit.clone();
            return arrived.refused(Refusal::AlreadyEnded { exit });
        }
        Phase::Hot(hot) if hot.stage == Stage::Working => {
            hot.interrupt = Some(arrived.seq);
            Fact::Interrupting { input: arrived.seq }
        }
        Phase::Hot(_) | Phase::Waking { .. } | Phase::Parked { .. } => {
            Fact::NothingRan { input: arrived.seq }
        }
    };
    Change { facts: vec![fact], state }
}

/// The process ends as Stopped, whatever it did. Its segment sees that in the log and gives its slot back.
pub(super) fn process(arrived: &Arrived<'_>) -> Change {
    match arrived.last {
        Some(state) if state.is_live() => ended(arrived, ExitReason::UserStop),
        Some(state) => match &state.phase {
            Phase::Ended { exit, .. } => arrived.refused(Refusal::AlreadyEnded { exit: exit.clone() }),
            _ => arrived.refused(Refusal::NothingToStop),
        },
        None => arrived.refused(Refusal::NothingToStop),
    }
}

/// Archiving stops what lives, and is content where nothing does.
pub(super) fn archive(arrived: &Arrived<'_>) -> Change {
    match arrived.last {
        Some(state) if state.is_live() => ended(arrived, ExitReason::Archived),
        _ => arrived.nothing_but(Fact::NothingRan { input: arrived.seq }),
    }
}

/// An operator gives the process up.
pub(super) fn fail(arrived: &Arrived<'_>, why: &str) -> Change {
    match arrived.last {
        Some(state) if state.is_live() => {
            let summary = Some(shown(why, policy::ERROR_SHOWN_MAX));
            exit(arrived, Exit { outcome: Outcome::Failed, reason: ExitReason::Operator, summary })
        }
        _ => process(arrived),
    }
}

fn ended(arrived: &Arrived<'_>, reason: ExitReason) -> Change {
    exit(arrived, Exit { outcome: Outcome::Stopped, reason, summary: None })
}

fn exit(arrived: &Arrived<'_>, exit: Exit) -> Change {
    let Change { mut state, .. } = arrived.nothing_but(Fact::NothingRan { input: arrived.seq });
    let facts = state.end(exit, arrived.now);
    Change { facts, state }
}
