//! The answers to a card of questions.

use api::{AnswersBody, Caller, Ids, JsonBody, MessageAccepted, Problem};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use domain::ids::{AgentId, ConversationId};
use domain::process::Mode;
use reads::card;

use crate::Ingress;
use crate::accept::Place;

/// `POST /v1/agents/{agent_id}/conversations/{conversation_id}/answers`
pub(crate) async fn answer(
    State(ingress): State<Ingress>,
    caller: Caller,
    Ids((agent, conversation)): Ids<(AgentId, ConversationId)>,
    JsonBody(body): JsonBody<AnswersBody>,
) -> Result<(StatusCode, Json<MessageAccepted>), Problem> {
    let agent = ingress.access.agent(&caller, agent).await?;
    let key = ingress.access.conversation(&agent, conversation).await?;
    let decision = body.card()?;
    let questions = card(&ingress.nats, key, decision).await?.ok_or(Problem::not_found("card"))?;
    let saying = body.saying(decision, &questions)?;
    let accepted = ingress.accept(&caller, &agent, Place::existing(key), saying).await?;
    ingress.verdict(&accepted).await?;
    let answer = MessageAccepted::new(conversation, accepted.input, Mode::Auto, accepted.last.state.as_ref());
    Ok((StatusCode::ACCEPTED, Json(answer)))
}
