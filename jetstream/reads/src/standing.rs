//! How a conversation stands: the last step of its log, and what was accepted since.

use api::{Problem, QUEUED_SHOWN_MAX, QueuedMessage, Undecided, ahead};
use bus::{Nats, Port};
use contract::Subject;
use contract::buckets::Agent;
use contract::messages::record::InputEntry;
use contract::subjects::filter;
use contract::topology::{PROCESS, RECORD};
use domain::ids::{ProcessId, RecordSeq};
use domain::process::{Cause, ConversationKey, State, Step};

use crate::decoded;

/// Inputs behind the log that are looked at. The steerer takes them within milliseconds; more of them are a flood, or
/// no steerer runs, and the first ones show that well enough.
const UNDECIDED_MAX: usize = 32;

/// The last step: its sequence, 0 for none, and the state it left.
#[derive(Debug, Clone, Default)]
pub struct Head {
    pub sequence: u64,
    pub state: Option<State>,
}

pub async fn head(nats: &Nats, key: ConversationKey) -> Result<Head, Problem> {
    let last = nats.last(PROCESS, &filter::log(key)).await.map_err(|error| Problem::unreachable(&error))?;
    match last {
        None => Ok(Head::default()),
        Some(stored) => {
            let state = decoded::<Step>(&stored)?.state;
            Ok(Head { sequence: stored.sequence, state: Some(state) })
        }
    }
}

/// The last state, with what is undecided applied to it.
pub async fn standing(nats: &Nats, key: ConversationKey, agent: &Agent) -> Result<Option<State>, Problem> {
    let Head { state, .. } = head(nats, key).await?;
    let handled = state.as_ref().map_or(RecordSeq(0), |state| state.handled);
    let (mut undecided, mut from) = (Vec::new(), handled.next());
    while undecided.len() < UNDECIDED_MAX {
        let next = nats.next(RECORD, &filter::inputs(key), from.0).await;
        let Some(stored) = next.map_err(|error| Problem::unreachable(&error))? else { break };
        let seq = RecordSeq(stored.sequence);
        undecided.push(Undecided::new(seq, &decoded::<InputEntry>(&stored)?));
        from = seq.next();
    }
    Ok(ahead(key, agent, state, &undecided))
}

/// The message that started the process, where the log still holds its first step.
pub async fn started_by(
    nats: &Nats,
    key: ConversationKey,
    process: ProcessId,
) -> Result<Option<RecordSeq>, Problem> {
    let log = Subject::Process(key, process).to_string();
    let first = nats.next(PROCESS, &log, 1).await.map_err(|error| Problem::unreachable(&error))?;
    let Some(first) = first else { return Ok(None) };
    Ok(match decoded::<Step>(&first)?.cause {
        Cause::Input { seq, .. } => Some(seq),
        Cause::Report(_)
        | Cause::Lost { .. }
        | Cause::Happened { .. }
        | Cause::Due { .. }
        | Cause::Nudge { .. }
        | Cause::SelfFinish { .. } => None,
    }
    .filter(|seq| ProcessId::started_by(key.conversation, *seq) == process))
}

/// The first of the messages that wait for the harness, with their texts.
pub async fn queued(nats: &Nats, state: &State) -> Result<Vec<QueuedMessage>, Problem> {
    let mut queued = Vec::new();
    for seq in state.undelivered.iter().take(QUEUED_SHOWN_MAX) {
        let stored = nats.at(RECORD, seq.0).await.map_err(|error| Problem::unreachable(&error))?;
        if let Some(stored) = stored {
            let said = decoded::<InputEntry>(&stored)?;
            queued.extend(QueuedMessage::new(state.conversation, *seq, said));
        }
    }
    Ok(queued)
}
