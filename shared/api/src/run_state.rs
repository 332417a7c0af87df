//! What is cheap to poll of a conversation.

use contract::messages::record::{Author, InputEntry, InputKind};
use domain::Timestamp;
use domain::ids::{ConversationId, MessageId, ProcessId, RecordSeq};
use domain::process::{State, Status, Substate};
use serde::Serialize;

use crate::messages::SteerTarget;

/// Waiting messages that are listed with their text; `queue_depth` counts them all.
pub const QUEUED_SHOWN_MAX: usize = 32;

/// `GET …/{conversation_id}/run-state`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunState {
    pub conversation_id: ConversationId,
    /// A turn runs, or is on its way to run.
    pub is_running: bool,
    /// A process is live, whatever it does.
    pub is_steerable: bool,
    pub steer_target: SteerTarget,
    /// The live process.
    pub active_child_id: Option<ProcessId>,
    /// Messages that the harness has not taken yet.
    pub queue_depth: usize,
    pub queued_messages: Vec<QueuedMessage>,
    pub execution_status: Status,
    pub conversation_state: ConversationState,
    pub process_state: Option<String>,
    pub substate: Option<Substate>,
}

/// Clients of old know others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationState {
    Regular,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueuedMessage {
    pub id: MessageId,
    pub text: String,
    pub files: Vec<String>,
    pub user: Option<Author>,
    pub enqueued_at: Timestamp,
    pub idempotency_key: Option<String>,
}

impl RunState {
    /// `state` with what is undecided applied to it.
    pub fn new(conversation: ConversationId, state: Option<&State>, queued: Vec<QueuedMessage>) -> Self {
        let live = state.filter(|state| state.is_live());
        let started = state.filter(|state| state.status() != Status::Pending);
        Self {
            conversation_id: conversation,
            is_running: live.is_some_and(|state| state.substate() == Some(Substate::Working)),
            is_steerable: live.is_some(),
            steer_target: SteerTarget::of(state),
            active_child_id: live.map(|state| state.process),
            queue_depth: live.map_or(0, |state| state.undelivered.len()),
            queued_messages: queued,
            execution_status: state.map_or(Status::Pending, State::status),
            conversation_state: ConversationState::Regular,
            process_state: started.map(|state| state.public().state),
            substate: started.and_then(State::substate),
        }
    }
}

impl QueuedMessage {
    /// `None` for what is no message.
    pub fn new(conversation: ConversationId, input: RecordSeq, said: InputEntry) -> Option<Self> {
        let InputKind::Message { text, files, .. } = said.what else { return None };
        Some(Self {
            id: MessageId::of_input(conversation, input),
            text,
            files,
            user: said.author,
            enqueued_at: said.at,
            idempotency_key: said.idempotency_key,
        })
    }
}

#[cfg(test)]
mod tests {
    use domain::process::Stage;

    use super::*;
    use crate::testing::{conversation, hot, started};

    #[test]
    fn a_live_process_is_steerable_and_runs_only_in_a_turn() {
        let of = |state: Option<&State>| {
            let run = RunState::new(conversation(), state, Vec::new());
            (run.is_running, run.is_steerable, run.execution_status, run.queue_depth)
        };
        assert_eq!(of(None), (false, false, Status::Pending, 0));
        assert_eq!(of(Some(&started(3))), (true, true, Status::Executing, 1));
        assert_eq!(of(Some(&hot(3, Stage::Working))), (true, true, Status::Executing, 0));
        assert_eq!(of(Some(&hot(3, Stage::Idle))), (false, true, Status::Executing, 0));
    }
}
