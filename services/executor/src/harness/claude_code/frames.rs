//! Claude Code's stream-json frames: what we read of them, and the ones we write.
//!
//! Reading is lenient: a field that is missing has its empty value, an unknown kind is [`Frame::Unknown`]. The shapes
//! are those of 2.1.197.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use uuid::Uuid;

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Frame {
    System(System),
    StreamEvent(Streamed),
    Assistant(Assistant),
    User(User),
    Result(TurnResult),
    ControlResponse {
        response: Answer,
    },
    ControlRequest {
        request_id: String,
        request: Asked,
    },
    /// About hooks and files; nothing follows from them here.
    Progress,
    Attachment,
    ControlCancelRequest,
    KeepAlive,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub(super) enum System {
    Init(Init),
    SessionStateChanged {
        state: String,
    },
    Status {
        status: Option<String>,
    },
    ApiRetry(Retry),
    CompactBoundary,
    TaskStarted(TaskStarted),
    TaskUpdated {
        task_id: String,
        patch: TaskPatch,
    },
    TaskNotification(TaskNotification),
    TaskProgress,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Deserialize)]
pub(super) struct Init {
    pub session_id: String,
    #[serde(default)]
    pub claude_code_version: String,
    #[serde(default)]
    pub model: String,
    #[serde(default)]
    pub mcp_servers: Vec<McpServer>,
}

#[derive(Debug, Deserialize)]
pub(super) struct McpServer {
    pub name: String,
    #[serde(default)]
    pub status: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Retry {
    #[serde(default)]
    pub attempt: u32,
    #[serde(default)]
    pub retry_delay_ms: f64,
    pub error_status: Option<u16>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TaskStarted {
    pub task_id: String,
    #[serde(default)]
    pub tool_use_id: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub task_type: String,
    #[serde(default)]
    pub subagent_type: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct TaskPatch {
    pub status: Option<String>,
    #[serde(default)]
    pub is_backgrounded: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct TaskNotification {
    pub task_id: String,
    #[serde(default)]
    pub status: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Streamed {
    pub event: Event,
    pub parent_tool_use_id: Option<String>,
}

/// The provider's own stream, as it is passed on.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Event {
    MessageStart {
        message: MessageId,
    },
    ContentBlockStart {
        index: u64,
        content_block: BlockKind,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    ContentBlockStop,
    MessageStop,
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct MessageId {
    #[serde(default)]
    pub id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct BlockKind {
    #[serde(rename = "type")]
    pub kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Delta {
    TextDelta {
        text: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct Assistant {
    pub message: AssistantMessage,
    pub parent_tool_use_id: Option<String>,
    /// Set where the harness itself wrote the text, about a failed call.
    pub error: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AssistantMessage {
    #[serde(default)]
    pub id: String,
    #[serde(default)]
    pub content: Vec<Block>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block {
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
    },
    ToolResult {
        tool_use_id: String,
        #[serde(default)]
        content: Value,
        #[serde(default)]
        is_error: Option<bool>,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct User {
    pub message: UserMessage,
    pub parent_tool_use_id: Option<String>,
    pub uuid: Option<Uuid>,
    #[serde(default, rename = "isReplay")]
    pub is_replay: bool,
    #[serde(default)]
    pub tool_use_result: Value,
}

#[derive(Debug, Deserialize)]
pub(super) struct UserMessage {
    #[serde(default, deserialize_with = "blocks")]
    pub content: Vec<Block>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TurnResult {
    #[serde(default)]
    pub is_error: bool,
    #[serde(default)]
    pub result: String,
    pub terminal_reason: Option<String>,
    pub api_error_status: Option<u16>,
    #[serde(default)]
    pub errors: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub subtype: String,
    pub request_id: String,
    #[serde(default)]
    pub response: Value,
    pub error: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    pub subtype: String,
}

/// Content is a list of blocks, or one text of a person, which is ours and says nothing new.
fn blocks<'de, D: Deserializer<'de>>(content: D) -> Result<Vec<Block>, D::Error> {
    match Value::deserialize(content)? {
        list @ Value::Array(_) => Vec::deserialize(list).map_err(D::Error::custom),
        _ => Ok(Vec::new()),
    }
}

/// A message for the conversation. The harness echoes the uuid when the model has it, and never runs one twice.
///
/// A text that begins with a slash would be a command of the harness itself: `/clear` starts another session, an
/// unknown one is swallowed. A space before it makes it a message, as every text of a person is.
pub fn user_frame(uuid: Uuid, text: &str) -> String {
    let content = if text.starts_with('/') { format!(" {text}") } else { text.to_owned() };
    line(&json!({
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": null,
        "session_id": "",
        "uuid": uuid,
    }))
}

/// Ends the current turn. What is queued runs at once after it: withdraw it first.
pub fn interrupt(request_id: &str) -> String {
    control(request_id, &json!({"subtype": "interrupt"}))
}

/// Ends the session in order: children are killed, the transcript is closed.
pub fn end_session(request_id: &str, reason: &str) -> String {
    control(request_id, &json!({"subtype": "end_session", "reason": reason}))
}

/// Takes a queued message back; the answer's `cancelled` says whether it was still queued.
pub fn cancel_async_message(request_id: &str, uuid: Uuid) -> String {
    control(request_id, &json!({"subtype": "cancel_async_message", "message_uuid": uuid}))
}

/// The answer to a question of the harness that nobody here can decide.
pub fn refuse(request_id: &str, reason: &str) -> String {
    line(&json!({
        "type": "control_response",
        "response": {"subtype": "error", "request_id": request_id, "error": reason},
    }))
}

fn control(request_id: &str, request: &Value) -> String {
    line(&json!({"type": "control_request", "request_id": request_id, "request": request}))
}

fn line(frame: &Value) -> String {
    format!("{frame}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(frame: &str) -> Value {
        assert_eq!(frame.matches('\n').count(), 1, "one line: {frame}");
        serde_json::from_str(frame).unwrap()
    }

    #[test]
    fn a_message_is_one_line_under_its_uuid() {
        let uuid = Uuid::from_u128(7);
        let frame = parsed(&user_frame(uuid, "two\nlines \u{2028} \"quoted\""));
        assert_eq!(frame["uuid"], uuid.to_string());
        assert_eq!(frame["message"]["content"], "two\nlines \u{2028} \"quoted\"");
    }

    #[test]
    fn a_message_is_never_a_command() {
        let content = |text: &str| parsed(&user_frame(Uuid::nil(), text))["message"]["content"].clone();
        assert_eq!(content("/clear"), " /clear");
        assert_eq!(content("not /clear"), "not /clear");
    }

    #[test]
    fn requests_carry_their_id() {
        let uuid = Uuid::from_u128(7);
        for (frame, subtype) in [
            (interrupt("r1"), "interrupt"),
            (end_session("r1", "park"), "end_session"),
            (cancel_async_message("r1", uuid), "cancel_async_message"),
        ] {
            let frame = parsed(&frame);
            assert_eq!((&frame["type"], &frame["request_id"]), (&json!("control_request"), &json!("r1")));
            assert_eq!(frame["request"]["subtype"], subtype);
        }
        assert_eq!(parsed(&refuse("q1", "no"))["response"]["request_id"], "q1");
    }
}
