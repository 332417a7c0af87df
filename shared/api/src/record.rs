//! The conversation record: what a client gets of a conversation, whoever asks and however.

use contract::buckets::Agent;
use contract::messages::record::{Answer, Author, PlanItem, Question};
use domain::Timestamp;
use domain::ids::{AgentId, ConversationId, MessageId, OrgId, ProcessId, TurnNo, UserId};
use domain::process::{
    ConversationKey, Harness, Mode, Outcome, PublicProcess, State, Status, StopScope, TurnOutcome,
};
use serde::Serialize;
use serde_json::Value;

use crate::ahead::ahead;
use crate::messages::MessageInput;
use crate::receipt::Receipt;
use crate::thread::Thread;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConversationRecord {
    /// The conversation's id, as in `conversation_id`.
    pub id: ConversationId,
    pub conversation_id: ConversationId,
    pub agent_id: AgentId,
    pub organization_id: OrgId,
    /// Of the last process: `executing` from its first message until its exit.
    pub status: Status,
    /// Its summary where it has completed, else the last text of the agent in it.
    pub result: Option<String>,
    /// The message that started it.
    pub input: Option<MessageInput>,
    pub created_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub execution_kind: ExecutionKind,
    pub harness_cli: Harness,
    pub process: Option<PublicProcess>,
    /// The chain, the latest last.
    pub processes: Vec<ProcessCard>,
    /// The latest entries of the thread, or those before the one that was asked for.
    pub activity: Vec<Activity>,
    /// What `?before=` takes to get the entries before these; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_before: Option<u64>,
}

/// Every task is a resident process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionKind {
    Resident,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessCard {
    pub id: ProcessId,
    pub ordinal: u32,
    pub status: Status,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    pub summary: Option<String>,
    /// The beginning of the message that started it.
    pub title: Option<String>,
}

/// One line of the thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Activity {
    /// Its place in the record.
    pub id: u64,
    pub created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_id: Option<ProcessId>,
    /// Said by a segment that was over when it arrived.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    #[serde(flatten)]
    pub what: Happened,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Happened {
    UserMessage {
        role: Speaker,
        content: Content,
        mode: Mode,
        user: Option<Author>,
        #[serde(flatten)]
        fate: Fate,
    },
    Stop {
        scope: StopScope,
        #[serde(flatten)]
        fate: Fate,
    },
    Archive {
        #[serde(flatten)]
        fate: Fate,
    },
    Retry {
        #[serde(flatten)]
        fate: Fate,
    },
    Fail {
        why: String,
        #[serde(flatten)]
        fate: Fate,
    },
    /// A card of questions.
    AskUserQuestions {
        decision_id: MessageId,
        status: CardStatus,
        questions: Vec<Question>,
    },
    Answers {
        decision_id: MessageId,
        answers: Vec<Answer>,
        #[serde(flatten)]
        fate: Fate,
    },
    AgentMessage {
        role: Speaker,
        content: Content,
        message_id: MessageId,
    },
    ToolCall {
        tool_call_id: String,
        tool_name: String,
        payload: Value,
        result: Option<ToolResult>,
    },
    /// The result of a call that is not among the entries shown.
    ToolResult {
        tool_call_id: String,
        #[serde(flatten)]
        result: ToolResult,
    },
    Plan {
        items: Vec<PlanItem>,
    },
    Note {
        text: String,
    },
    Notice {
        text: String,
    },
    TurnStarted {
        turn: TurnNo,
    },
    TurnFinished {
        turn: TurnNo,
        outcome: TurnOutcome,
    },
    ProcessState {
        process: Box<PublicProcess>,
    },
    /// Written by a newer program.
    Unknown {
        kind: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CardStatus {
    /// Its text is there, and it is not open yet.
    Asking,
    Open,
    Answered,
    Withdrawn,
    Expired,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    User,
    Agent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Content {
    pub text: String,
    pub files: Vec<String>,
}

/// Whose input it was, and what has become of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fate {
    pub message_id: MessageId,
    pub from: UserId,
    pub receipt: Receipt,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolResult {
    pub at: Timestamp,
    pub output: Value,
    pub is_error: bool,
}

// === impl ConversationRecord ===

impl ConversationRecord {
    /// `last` is the last state in the log, read before the thread.
    pub fn new(key: ConversationKey, agent: &Agent, last: Option<State>, mut thread: Thread) -> Self {
        let state = ahead(key, agent, last, thread.undecided());
        let process = state.as_ref().filter(|state| state.status() != Status::Pending).map(State::public);
        if let Some(process) = &process {
            thread.show(process);
        }
        thread.settle_controls();
        let said = process.as_ref().and_then(|process| thread.last_text(process.id).map(str::to_owned));
        Self {
            id: key.conversation,
            conversation_id: key.conversation,
            agent_id: agent.id,
            organization_id: key.org,
            status: process.as_ref().map_or(Status::Pending, |process| process.status),
            result: process.as_ref().and_then(|process| result(process, said)),
            input: process
                .as_ref()
                .map_or_else(|| thread.first_input(), |process| thread.input_of(process.id)),
            created_at: thread.created_at(),
            started_at: process.as_ref().map(|process| process.started_at),
            finished_at: process.as_ref().and_then(finished_at),
            execution_kind: ExecutionKind::Resident,
            harness_cli: process.as_ref().map_or(agent.harness, |process| process.harness),
            process,
            activity_before: thread.before(),
            processes: thread.take_cards(),
            activity: thread.take_activity(),
        }
    }

    /// What is known of a process when it starts on an open stream.
    pub fn of_start(org: OrgId, process: &PublicProcess, input: Option<MessageInput>) -> Self {
        Self {
            id: process.conversation_id,
            conversation_id: process.conversation_id,
            agent_id: process.agent_id,
            organization_id: org,
            status: process.status,
            result: None,
            input,
            created_at: None,
            started_at: Some(process.started_at),
            finished_at: finished_at(process),
            execution_kind: ExecutionKind::Resident,
            harness_cli: process.harness,
            process: Some(process.clone()),
            processes: Vec::new(),
            activity: Vec::new(),
            activity_before: None,
        }
    }
}

/// What a process has come to; `said` is the last text of the agent in it.
pub(crate) fn result(process: &PublicProcess, said: Option<String>) -> Option<String> {
    let exit = process.exit.as_ref().filter(|exit| exit.outcome == Outcome::Completed);
    exit.and_then(|exit| exit.summary.clone()).or(said)
}

fn finished_at(process: &PublicProcess) -> Option<Timestamp> {
    process.exit.is_some().then_some(process.since)
}

// === impl ProcessCard ===

impl ProcessCard {
    pub fn new(process: &PublicProcess, title: Option<String>) -> Self {
        Self {
            id: process.id,
            ordinal: process.ordinal,
            status: process.status,
            started_at: process.started_at,
            finished_at: finished_at(process),
            summary: process.exit.as_ref().and_then(|exit| exit.summary.clone()),
            title,
        }
    }
}
