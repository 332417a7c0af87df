//! Conversations: the list, the record, how far one is, and how far a message has come. Those of a deleted agent can
//! still be read.

use api::{
    Caller, ConversationItem, ConversationRecord, Ids, List, MessageReceipt, PageParams, Params, Problem,
    RunState,
};
use axum::Json;
use axum::extract::State;
use contract::buckets::{Agent, AgentKey, Conversations, filter};
use domain::ids::{AgentId, ConversationId, MessageId, RecordSeq};
use domain::process::ConversationKey;
use reads::{head, queued, rows, standing, thread};
use serde::Deserialize;

use crate::Console;

type Conversation = Ids<(AgentId, ConversationId)>;

/// `?before=…`: the lines of the thread before this one.
#[derive(Debug, Deserialize)]
pub(crate) struct RecordParams {
    before: Option<u64>,
}

/// `GET /v1/agents/{agent_id}/conversations`
pub(crate) async fn list(
    State(console): State<Console>,
    caller: Caller,
    Ids(agent): Ids<AgentId>,
    Params(params): Params<PageParams>,
) -> Result<Json<List<ConversationItem>>, Problem> {
    let agent = console.access.agent_or_deleted(&caller, agent).await?;
    let of_agent = filter::of_agent(AgentKey { org: agent.org, agent: agent.id });
    let rows = rows::<Conversations>(&console.nats, &of_agent).await?;
    ConversationItem::page(rows, &params).map(Json)
}

/// `GET /v1/agents/{agent_id}/conversations/{conversation_id}`
pub(crate) async fn record(
    State(console): State<Console>,
    caller: Caller,
    conversation: Conversation,
    Params(params): Params<RecordParams>,
) -> Result<Json<ConversationRecord>, Problem> {
    let (agent, key) = console.conversation(&caller, conversation).await?;
    let last = head(&console.nats, key).await?.state;
    let handled = last.as_ref().map_or(RecordSeq(0), |state| state.handled);
    let thread = thread(&console.nats, key, handled, params.before).await?;
    let mut record = ConversationRecord::new(key, &agent, last, thread);
    console.queues.tell(&mut record.process).await?;
    Ok(Json(record))
}

/// `GET /v1/agents/{agent_id}/conversations/{conversation_id}/run-state`
pub(crate) async fn run_state(
    State(console): State<Console>,
    caller: Caller,
    conversation: Conversation,
) -> Result<Json<RunState>, Problem> {
    let (agent, key) = console.conversation(&caller, conversation).await?;
    let state = standing(&console.nats, key, &agent).await?;
    let queued = match state.as_ref().filter(|state| state.is_live()) {
        Some(state) => queued(&console.nats, state).await?,
        None => Vec::new(),
    };
    Ok(Json(RunState::new(key.conversation, state.as_ref(), queued)))
}

/// `GET /v1/agents/{agent_id}/conversations/{conversation_id}/messages/{message_id}`
pub(crate) async fn receipt(
    State(console): State<Console>,
    caller: Caller,
    Ids((agent, conversation, message)): Ids<(AgentId, ConversationId, MessageId)>,
) -> Result<Json<MessageReceipt>, Problem> {
    let (_, key) = console.conversation(&caller, Ids((agent, conversation))).await?;
    let receipt = reads::receipt(&console.nats, key, message).await?;
    receipt.map(Json).ok_or(Problem::not_found("message"))
}

// === impl Console ===

impl Console {
    /// A conversation that the caller may see, with its agent.
    pub(crate) async fn conversation(
        &self,
        caller: &Caller,
        Ids((agent, conversation)): Conversation,
    ) -> Result<(Agent, ConversationKey), Problem> {
        let agent = self.access.agent_or_deleted(caller, agent).await?;
        let key = self.access.conversation(&agent, conversation).await?;
        Ok((agent, key))
    }
}
