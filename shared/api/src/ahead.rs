//! What was accepted and is not decided yet, decided here for showing: right after its 202 a message has started its
//! process, as far as anyone can tell. The same step that the log is written with says so.

use contract::buckets::Agent;
use contract::messages::record::{InputEntry, InputKind};
use domain::Timestamp;
use domain::ids::{RecordSeq, UserId};
use domain::process::{Cause, ConversationKey, Decision, Input, Mode, StartWith, State, StopScope, step};

/// An input that the log does not hold yet, without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecided {
    pub seq: RecordSeq,
    pub at: Timestamp,
    pub from: UserId,
    what: Asks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Message(Mode),
    Stop(StopScope),
    Archive,
}

/// The state with what is undecided applied to it.
pub fn ahead(
    key: ConversationKey,
    agent: &Agent,
    last: Option<State>,
    undecided: &[Undecided],
) -> Option<State> {
    let start = agent.deleted_at.is_none().then_some(StartWith { harness: agent.harness });
    undecided.iter().fold(last, |state, undecided| {
        let input = match undecided.what {
            Asks::Message(mode) => Input::Message { mode, start: start.clone() },
            Asks::Stop(scope) => Input::Stop { scope },
            Asks::Archive => Input::Archive,
        };
        let cause = Cause::Input { seq: undecided.seq, from: undecided.from, agent: agent.id, input };
        match step(key, state.as_ref(), cause, undecided.at) {
            Ok(Decision::Append(step)) => Some(step.state),
            Ok(Decision::Repeated) | Err(_) => state,
        }
    })
}

impl Undecided {
    pub fn new(seq: RecordSeq, said: &InputEntry) -> Self {
        let what = match &said.what {
            InputKind::Message { mode, .. } => Asks::Message(*mode),
            InputKind::Stop { scope } => Asks::Stop(*scope),
            InputKind::Archive => Asks::Archive,
        };
        Self { seq, at: said.at, from: said.from, what }
    }
}
