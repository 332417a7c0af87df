//! Stopping a turn or a process, and archiving. Also where the agent was deleted: what lives has to be stoppable.

use api::{ArchiveBody, Caller, Ids, JsonBody, Problem, Saying, StopAccepted, StopBody};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use contract::messages::record::InputKind;
use domain::ids::{AgentId, ConversationId, MessageId};

use crate::Ingress;
use crate::accept::{Accepted, Place};

type Conversation = Ids<(AgentId, ConversationId)>;

/// `POST /v1/agents/{agent_id}/conversations/{conversation_id}/stop`
pub(crate) async fn stop(
    State(ingress): State<Ingress>,
    caller: Caller,
    conversation: Conversation,
    JsonBody(StopBody { scope }): JsonBody<StopBody>,
) -> Result<(StatusCode, Json<StopAccepted>), Problem> {
    let accepted = ingress.control(&caller, conversation, InputKind::Stop { scope }).await?;
    let step = ingress.verdict(&accepted).await?;
    let answer = StopAccepted {
        scope: Some(scope),
        process: step.map(|step| step.state.public()),
        ..accepted_control(&accepted)
    };
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

/// `POST /v1/agents/{agent_id}/conversations/{conversation_id}/archive`
pub(crate) async fn archive(
    State(ingress): State<Ingress>,
    caller: Caller,
    conversation: Conversation,
    JsonBody(ArchiveBody {}): JsonBody<ArchiveBody>,
) -> Result<(StatusCode, Json<StopAccepted>), Problem> {
    let accepted = ingress.control(&caller, conversation, InputKind::Archive).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted_control(&accepted))))
}

fn accepted_control(accepted: &Accepted) -> StopAccepted {
    let conversation = accepted.key.conversation;
    StopAccepted {
        message_id: MessageId::of_input(conversation, accepted.input),
        conversation_id: conversation,
        scope: None,
        process: None,
    }
}

impl Ingress {
    async fn control(
        &self,
        caller: &Caller,
        Ids((agent, conversation)): Conversation,
        what: InputKind,
    ) -> Result<Accepted, Problem> {
        let agent = self.access.agent_or_deleted(caller, agent).await?;
        let key = self.access.conversation(&agent, conversation).await?;
        self.accept(caller, &agent, Place::existing(key), Saying::control(what)).await
    }
}
