//! One request as a script sees it: the conversation flattened to items, and the few facts that matching needs.
//! It is the same view for every wire; how a provider's body becomes one is the wire's business.

use std::fmt;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::wire::Wire;

/// Namespace of the ids that answers carry; drawn once for this crate.
const ANSWERS: Uuid = Uuid::from_u128(0x7d0c_2a55_93f4_4e1b_8a6f_2f6b_11c9_5e08);

/// Who of the harness asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    Main,
    Sub,
    /// The harness wants its own conversation summed up, to make room.
    Compaction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    User,
    Assistant,
    /// An item that the harness put into the conversation in its own name.
    System,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ItemKind {
    /// Words of the person, or of the model.
    Text,
    /// A message that reached the model in the middle of its turn, without what the harness wrapped round it.
    Steer,
    /// Reminders, marks of an interrupt, echoes of local commands: nobody said it.
    Injected,
    /// The item's text is the name and the input.
    ToolCall {
        id: String,
        name: String,
        input: Value,
    },
    ToolResult {
        call: String,
        is_error: bool,
    },
    /// Images, thinking and whatever else has no text.
    Other,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    pub role: Role,
    pub kind: ItemKind,
    pub text: String,
}

/// One request for a message.
#[derive(Clone)]
pub struct RequestView {
    /// Counts the requests of this server, from 1.
    pub seq: u64,
    pub wire: Wire,
    /// The harness's own name of the conversation; one server serves many.
    pub session: Option<String>,
    pub agent: AgentKind,
    pub model: String,
    pub stream: bool,
    pub headers: HeaderMap,
    /// The system prompt, its blocks joined by line ends.
    pub system: String,
    pub items: Vec<Item>,
    pub(crate) tools: Vec<String>,
    pub(crate) working_directory: Option<String>,
    pub(crate) raw: Bytes,
}

pub(crate) fn authorization(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION).or_else(|| headers.get("x-api-key"))?.to_str().ok()
}

// === impl RequestView ===

impl RequestView {
    /// The names of the tools on offer, as the harness spells them.
    pub fn tools(&self) -> &[String] {
        &self.tools
    }

    /// Whether the tool behind an alias is on offer.
    pub fn offers(&self, alias: &str) -> bool {
        self.tools.contains(&self.wire.tool_name(alias))
    }

    /// Where the harness says it works.
    pub fn working_directory(&self) -> Option<&str> {
        self.working_directory.as_deref()
    }

    /// Everything a person said, steers included, in order.
    pub fn user_texts(&self) -> Vec<&str> {
        self.items.iter().filter(|item| item.is_said_by_user()).map(|item| item.text.as_str()).collect()
    }

    pub fn last_user(&self) -> Option<&str> {
        self.items.iter().rfind(|item| item.is_said_by_user()).map(|item| item.text.as_str())
    }

    pub fn last_tool_result(&self) -> Option<&str> {
        let is_result = |item: &&Item| matches!(item.kind, ItemKind::ToolResult { .. });
        self.items.iter().rfind(is_result).map(|item| item.text.as_str())
    }

    /// Whether any text of the request, the system prompt included, has this in it.
    pub fn contains(&self, needle: &str) -> bool {
        self.system.contains(needle) || self.items.iter().any(|item| item.text.contains(needle))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The credential as it came, in whichever of the two headers that providers take.
    pub fn authorization(&self) -> Option<&str> {
        authorization(&self.headers)
    }

    /// The body, read anew at each call: views are kept, and a parsed body weighs several times its bytes.
    pub fn body(&self) -> Value {
        serde_json::from_slice(&self.raw).unwrap_or_default()
    }

    pub fn raw_body(&self) -> &Bytes {
        &self.raw
    }

    /// The seed of the answer's ids. The body makes it differ from every other answer in the conversation, also after
    /// the server was started anew; the count tells a repeated request from the first.
    pub(crate) fn answer_id(&self) -> Uuid {
        let session = self.session.as_deref().unwrap_or_default();
        let seed = [session.as_bytes(), &self.seq.to_be_bytes(), &self.raw].concat();
        Uuid::new_v5(&ANSWERS, &seed)
    }
}

/// Leaves out headers and texts: a view may end up in a log line, what it holds must not.
impl fmt::Debug for RequestView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestView")
            .field("seq", &self.seq)
            .field("session", &self.session)
            .field("agent", &self.agent)
            .field("model", &self.model)
            .field("items", &self.items.len())
            .finish_non_exhaustive()
    }
}

// === impl Item ===

impl Item {
    pub(crate) fn new(role: Role, kind: ItemKind, text: impl Into<String>) -> Self {
        Self { role, kind, text: text.into() }
    }

    pub(crate) fn is_said_by_user(&self) -> bool {
        self.kind == ItemKind::Steer || (self.role == Role::User && self.kind == ItemKind::Text)
    }
}

// === impl AgentKind ===

impl fmt::Display for AgentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Main => "main",
            Self::Sub => "sub",
            Self::Compaction => "compaction",
        })
    }
}
