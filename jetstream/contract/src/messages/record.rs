//! The record: a conversation's durable thread. Inputs (`in`), what segments say (`out`) and how its processes stand
//! (`state`), in one order.

use domain::Timestamp;
use domain::ids::{AgentId, Epoch, MessageId, ProcessId, QuestionId, RecordSeq, TurnNo, UserId, WaitId};
use domain::process::{Fact, Mode, PublicProcess, StopScope, TurnOutcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::Message;

/// An input: what a person, a channel or a program said to a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputEntry {
    pub at: Timestamp,
    pub agent: AgentId,
    /// The owner of the credential that said it.
    pub from: UserId,
    /// Whom the client names as the author; shown, never trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    pub source: Source,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    #[serde(flatten)]
    pub what: InputKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum InputKind {
    Message {
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<String>,
        mode: Mode,
    },
    /// Every question of a card is answered.
    Answer {
        card: MessageId,
        answers: Vec<Answer>,
    },
    Stop {
        scope: StopScope,
    },
    Archive,
    /// An operator tries again what needed attention.
    Retry,
    /// An operator gives the process up.
    Fail {
        why: String,
    },
}

/// What was answered to a question, which stands here again so that nobody has to look it up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub question: QuestionId,
    pub text: String,
    pub answer: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Api,
}

/// What a segment says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputEntry {
    pub at: Timestamp,
    pub process: ProcessId,
    pub epoch: Epoch,
    #[serde(flatten)]
    pub what: Output,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Output {
    /// These inputs go into the harness as one frame. Written before the frame, so that a crash in between is told
    /// from one before it.
    InHarness {
        frame: Uuid,
        inputs: Vec<RecordSeq>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fired: Vec<WaitId>,
    },
    TurnStarted {
        turn: TurnNo,
    },
    /// A text begins; its pieces are on the live subject.
    MessageStarted {
        message_id: MessageId,
    },
    /// A text was begun and given up; the agent does not have it.
    MessageDropped {
        message_id: MessageId,
    },
    /// A whole text.
    Text {
        message_id: MessageId,
        text: String,
    },
    ToolCall {
        id: String,
        name: String,
        input: Value,
    },
    ToolResult {
        id: String,
        output: Value,
        is_error: bool,
    },
    Plan {
        items: Vec<PlanItem>,
    },
    /// `tell_user`.
    Note {
        text: String,
    },
    /// `tell_user` with questions.
    Card {
        card: MessageId,
        questions: Vec<Question>,
    },
    TurnEnded {
        turn: TurnNo,
        outcome: TurnOutcome,
        text: Option<String>,
    },
    /// The runtime tells the person something that the agent did not.
    Notice {
        text: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub id: QuestionId,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Whether more than one option may be chosen.
    pub multiple: bool,
    /// Whether a text that is none of the options answers it.
    pub free_text: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanItem {
    pub text: String,
    pub status: PlanStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    Pending,
    InProgress,
    Completed,
}

/// How a process stands after the steps up to `step`, and what they were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateEntry {
    /// The sequence in `PROCESS` of the last step told here.
    pub step: u64,
    pub facts: Vec<DatedFact>,
    pub process: PublicProcess,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatedFact {
    pub at: Timestamp,
    #[serde(flatten)]
    pub fact: Fact,
}

impl InputEntry {
    /// Tells a repeated delivery from an idempotency key that is used for something else.
    pub fn content_hash(&self) -> String {
        // Made of our own types, whose serialisation cannot fail and keeps its order.
        crate::buckets::sha256_hex(&serde_json::to_vec(&self.what).unwrap_or_default())
    }
}

impl Message for InputEntry {
    const KIND: &'static str = "input";
}

impl Message for OutputEntry {
    const KIND: &'static str = "output";
}

impl Message for StateEntry {
    const KIND: &'static str = "state";
}
