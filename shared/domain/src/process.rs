//! A process: its state, the causes that change it, and [`step`], the one place where that is decided.
//!
//! A step is one message on the process's subject. It holds its cause, the facts that follow and the whole new state,
//! so the last step *is* the state and the steps before it *are* the history. One file per transition stands below.

mod cause;
mod claim;
mod consumed;
mod crash;
mod finish;
mod idle;
mod lost;
mod message;
mod noted;
mod park;
mod public;
mod questions;
mod reasons;
mod report;
mod retry;
mod running;
mod state;
mod stop;
mod turn;
mod wait;

use serde::{Deserialize, Serialize};

use crate::Refusal;
use crate::ids::{AgentId, Epoch, ProcessId, RecordSeq, TurnNo, UserId};
use crate::policy;
use crate::time::Timestamp;

pub use cause::{Cause, Fact, Input, LossReason, Mode, StartWith, StopScope, TurnOutcome};
pub use public::{PublicProcess, Status, Substate};
pub use questions::{Card, CardClosed, OpenQuestion};
pub use reasons::{ParkReason, WakeClass, WakeTrigger};
pub use report::{Answer, Report, SegmentEvent};
pub use state::{
    ConversationKey, Crashes, Exit, ExitReason, Harness, Hot, Note, OpenWork, Outcome, Phase, Reported,
    Running, Session, Stage, State, TaskKind,
};
pub use wait::{
    EventDigest, EventKey, Fired, GITHUB_KINDS, LookBack, Wait, WaitClosed, WaitOn, WaitOutcome, WaitRequest,
    wakes,
};

/// One decided change. Applying `cause` to the state before it at time `at` gives it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub at: Timestamp,
    pub cause: Cause,
    pub facts: Vec<Fact>,
    pub state: State,
}

/// What a cause comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a step has happened only once it is appended to the log"]
pub enum Decision {
    Append(Box<Step>),
    /// A repeated report; the log holds its answer.
    Repeated,
}

/// Decides what `cause` does. `last` is the state of the last process of the conversation's chain, `None` where the
/// conversation has no step yet.
///
/// A numbered cause comes to a step, also when it is declined. `Err` is for what takes no number, for what stands in
/// the log already, and for a segment that no longer holds the conversation: the log shows it who does.
pub fn step(
    key: ConversationKey,
    last: Option<&State>,
    cause: Cause,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let change = match &cause {
        Cause::Input { seq, from, agent, input } => {
            if *seq <= last.map_or(RecordSeq(0), |state| state.handled) {
                return Err(Refusal::AlreadyHandled { input: *seq });
            }
            let mut change = Arrived { key, last, seq: *seq, from: *from, agent: *agent, now }.step(input);
            change.state.handled = *seq;
            change
        }
        Cause::Report(report) => match report::step(last, report, now)? {
            Some(change) => change,
            None => return Ok(Decision::Repeated),
        },
        Cause::Lost { executor, epoch, why } => lost::step(last, *executor, *epoch, *why, now)?,
        Cause::Happened { wait, event } => wait::happened(last, *wait, event, now)?,
        Cause::Nudge { since } => idle::nudge(last, *since)?,
        Cause::SelfFinish { since } => idle::self_finish(last, *since, now)?,
        Cause::Due { wait } => wait::due(last, *wait, now)?,
    };
    Ok(Decision::Append(Box::new(Step { at: now, cause, facts: change.facts, state: change.state })))
}

/// What one transition comes to.
struct Change {
    facts: Vec<Fact>,
    state: State,
}

/// An input, as the transitions for inputs see it.
struct Arrived<'a> {
    key: ConversationKey,
    last: Option<&'a State>,
    seq: RecordSeq,
    from: UserId,
    agent: AgentId,
    now: Timestamp,
}

impl Arrived<'_> {
    fn step(&self, input: &Input) -> Change {
        match input {
            Input::Message { mode, start } => message::step(self, *mode, start.as_ref()),
            Input::Answer { card, questions } => questions::answered(self, *card, questions),
            Input::Stop { scope: StopScope::Turn } => stop::turn(self),
            Input::Stop { scope: StopScope::Process } => stop::process(self),
            Input::Archive => stop::archive(self),
            Input::Retry => retry::step(self),
            Input::Fail { why } => stop::fail(self, why),
            Input::Duplicate { of } => self.nothing_but(Fact::Duplicate { input: self.seq, of: *of }),
            Input::Dead { error } => {
                self.nothing_but(Fact::Dead { input: self.seq, error: shown(error, policy::ERROR_SHOWN_MAX) })
            }
        }
    }

    fn refused(&self, why: Refusal) -> Change {
        self.nothing_but(Fact::Refused { input: Some(self.seq), why })
    }

    /// The state as it was, or *absent* on the process that the input would have started.
    fn nothing_but(&self, fact: Fact) -> Change {
        let state =
            self.last.cloned().unwrap_or_else(|| self.next_process(Harness::ClaudeCode, Phase::Absent));
        Change { facts: vec![fact], state }
    }

    /// The process that this input starts, with what the chain hands on.
    fn next_process(&self, harness: Harness, phase: Phase) -> State {
        let last = self.last;
        State {
            org: self.key.org,
            agent: self.agent,
            conversation: self.key.conversation,
            process: ProcessId::started_by(self.key.conversation, self.seq),
            ordinal: last.map_or(0, |state| state.ordinal),
            epoch: last.map_or(Epoch(0), |state| state.epoch),
            handled: last.map_or(RecordSeq(0), |state| state.handled),
            undelivered: Vec::new(),
            held: Vec::new(),
            turns: last.map_or(TurnNo(0), |state| state.turns),
            harness,
            session: last.and_then(|state| state.session.clone()),
            volume: last.and_then(|state| state.volume),
            fired: Vec::new(),
            killed: last.map_or_else(Vec::new, |state| state.killed.clone()),
            crashes: Crashes::default(),
            nudged: false,
            finishing: None,
            wait: None,
            look_back: last.map_or_else(LookBack::default, |state| state.look_back.clone()),
            cards: Vec::new(),
            starter: self.from,
            started_at: self.now,
            note: None,
            reported: None,
            phase,
        }
    }
}

/// The first `max` characters, with a mark where something was cut.
fn shown(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
