//! The live stream of a conversation.

use api::{Begin, Caller, Events, Ids, Opening, Params, Problem, ResumeParams, Until, stream};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use domain::ids::{AgentId, ConversationId, RecordSeq};
use domain::process::Status;
use reads::{standing, started_by, watch};

use crate::Console;

/// `GET /v1/agents/{agent_id}/conversations/{conversation_id}/stream`
///
/// Who comes for the first time gets the last process from its start on, who comes back what follows the last event
/// it has.
pub(crate) async fn open(
    State(console): State<Console>,
    caller: Caller,
    conversation: Ids<(AgentId, ConversationId)>,
    Params(params): Params<ResumeParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let seen = params.last_seen(&headers)?;
    let (agent, key) = console.conversation(&caller, conversation).await?;
    let state = standing(&console.nats, key, &agent).await?;
    let process = state.filter(|state| state.status() != Status::Pending).map(|state| state.public());
    let start = match &process {
        Some(process) => started_by(&console.nats, key, process.id).await?,
        None => None,
    };
    // What a text or a message began with may lie before what the client has seen, but not before its process.
    let from =
        start.filter(|start| seen.is_none_or(|seen| start.0 <= seen)).map_or(0, |RecordSeq(start)| start - 1);
    let begin = match (seen, process) {
        (Some(seen), _) => Begin::After(seen),
        (None, Some(process)) => Begin::Process(Box::new(process)),
        (None, None) => Begin::After(0),
    };
    let opening = Opening { events: Events::new(key, begin, None), task: None, until: Until::Left };
    let watch = watch(&console.fanout, &console.nats, key, from).await;
    Ok(stream(opening, watch, &console.runtime))
}
