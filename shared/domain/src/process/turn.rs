//! The harness's turns: when it is ready, when one starts and when it ends.

use super::{Fact, Phase, Session, Stage, State, TurnOutcome};

pub(super) fn ready(state: &mut State, session: &Session) -> Fact {
    set_stage(state, Stage::Idle);
    state.session = Some(session.clone());
    Fact::Ready { session: session.clone() }
}

pub(super) fn started(state: &mut State) -> Option<Fact> {
    let running = state.hot().is_some_and(|hot| hot.stage == Stage::Working);
    set_stage(state, Stage::Working);
    if let Phase::Hot(hot) = &mut state.phase {
        hot.resumes = false;
    }
    // The first frame of the segment told it.
    state.killed.clear();
    state.crashes.untold = None;
    (!running).then(|| Fact::TurnStarted { turn: state.turns.next() })
}

/// What was held for the end of the turn may be delivered now, and what asked for it is answered.
pub(super) fn ended(state: &mut State, outcome: TurnOutcome) -> Fact {
    set_stage(state, Stage::Idle);
    if outcome == TurnOutcome::Completed {
        state.crashes.in_a_row = 0;
    }
    state.turns = state.turns.next();
    state.held.clear();
    Fact::TurnEnded { turn: state.turns, outcome }
}

fn set_stage(state: &mut State, stage: Stage) {
    if let Phase::Hot(hot) = &mut state.phase {
        hot.stage = stage;
        if stage == Stage::Idle {
            hot.interrupt = None;
        }
    }
}
