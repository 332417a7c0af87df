//! What was accepted and is not decided yet, decided here for showing: right after its 202 a message has started its
//! process, as far as anyone can tell. The same step that the log is written with says so.

use contract::buckets::Agent;
use contract::messages::record::{InputEntry, InputKind};
use domain::Timestamp;
use domain::ids::{MessageId, QuestionId, RecordSeq, UserId};
use domain::process::{Cause, ConversationKey, Decision, Input, Mode, StartWith, State, StopScope, step};

/// An input that the log does not hold yet, without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecided {
    pub seq: RecordSeq,
    pub at: Timestamp,
    pub from: UserId,
    what: Asks,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Asks {
    Message(Mode),
    Answer(MessageId, Vec<QuestionId>),
    Stop(StopScope),
    Archive,
    Retry,
    Fail(String),
}

/// The state with what is undecided applied to it.
pub fn ahead(
    key: ConversationKey,
    agent: &Agent,
    last: Option<State>,
    undecided: &[Undecided],
) -> Option<State> {
    let start = agent.deleted_at.is_none().then_some(StartWith { harness: agent.harness, events: None });
    undecided.iter().fold(last, |state, undecided| {
        let input = match &undecided.what {
            Asks::Message(mode) => Input::Message { mode: *mode, start: start.clone() },
            Asks::Answer(card, questions) => Input::Answer { card: *card, questions: questions.clone() },
            Asks::Stop(scope) => Input::Stop { scope: *scope },
            Asks::Archive => Input::Archive,
            Asks::Retry => Input::Retry,
            Asks::Fail(why) => Input::Fail { why: why.clone() },
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
            InputKind::Answer { card, answers } => {
                Asks::Answer(*card, answers.iter().map(|answer| answer.question).collect())
            }
            InputKind::Stop { scope } => Asks::Stop(*scope),
            InputKind::Archive => Asks::Archive,
            InputKind::Retry => Asks::Retry,
            InputKind::Fail { why } => Asks::Fail(why.clone()),
        };
        Self { seq, at: said.at, from: said.from, what }
    }
}
