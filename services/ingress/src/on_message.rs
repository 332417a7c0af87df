//! A message to a conversation.

use api::{Caller, Ids, JsonBody, MessageAccepted, MessageBody, Problem};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use domain::ids::{AgentId, ConversationId};
use domain::process::Mode;

use crate::Ingress;
use crate::accept::Place;

/// `POST /v1/agents/{agent_id}/conversations/{conversation_id}/messages`
pub(crate) async fn send(
    State(ingress): State<Ingress>,
    caller: Caller,
    Ids((agent, conversation)): Ids<(AgentId, ConversationId)>,
    JsonBody(body): JsonBody<MessageBody>,
) -> Result<(StatusCode, Json<MessageAccepted>), Problem> {
    let (saying, mode) = (body.clone().saying()?, body.mode);
    let agent = ingress.access.agent(&caller, agent).await?;
    let key = ingress.access.conversation(&agent, conversation).await?;
    let accepted = ingress.accept(&caller, &agent, Place::existing(key), saying).await?;
    if mode == Mode::Steer {
        ingress.verdict(&accepted).await?;
    }
    let answer = MessageAccepted::new(conversation, accepted.input, mode, accepted.last.state.as_ref());
    Ok((StatusCode::ACCEPTED, Json(answer)))
}
