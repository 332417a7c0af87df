//! Anthropic Messages, as Claude Code speaks it. Blocks that have no meaning for a script are kept as `Other`.

use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::claude_text::{self, Said};
use super::{Piece, Wire, chunks};
use crate::reply::{Reply, ToolCall, Usage};
use crate::request::{AgentKind, Item, ItemKind, RequestView, Role};

const SESSION_HEADER: &str = "x-claude-code-session-id";
const SUB_AGENT_HEADER: &str = "x-claude-code-agent-id";
const COMPACTION_OPENS: &str = "CRITICAL: Respond with TEXT ONLY";
const WORKING_DIRECTORY: &str = "Primary working directory: ";
/// Prefix of the tools of the one MCP server that every harness of ours is given.
const MCP_PREFIX: &str = "mcp__xpander__";
/// How long what was streamed may travel before the socket is closed; without it, it is lost with the socket.
const BEFORE_CUT: Duration = Duration::from_millis(20);
/// What a token count answers: the harness only shows it.
const COUNTED_TOKENS: u64 = 123;
/// Models that Claude Code asks for by default; any other name is answered as well.
const MODELS: [&str; 3] = ["claude-opus-4-8", "claude-sonnet-5", "claude-haiku-4-5-20251001"];

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    model: String,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    system: Content,
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<Tool>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Content,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        input: Value,
    },
    ToolResult {
        tool_use_id: String,
        #[serde(default)]
        content: Content,
        #[serde(default)]
        is_error: bool,
    },
    #[serde(other)]
    Other,
}

// === reading ===

pub(super) fn read(seq: u64, headers: HeaderMap, raw: Bytes) -> Result<RequestView, serde_json::Error> {
    let body: Body = serde_json::from_slice(&raw)?;
    let items: Vec<Item> = body.messages.into_iter().flat_map(items).collect();
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let agent = match items.iter().rfind(|item| item.is_said_by_user()) {
        _ if headers.contains_key(SUB_AGENT_HEADER) => AgentKind::Sub,
        Some(last) if last.text.starts_with(COMPACTION_OPENS) => AgentKind::Compaction,
        _ => AgentKind::Main,
    };
    let system = body.system.joined();
    let working_directory = system
        .split_once(WORKING_DIRECTORY)
        .and_then(|(_, rest)| rest.lines().next())
        .map(|path| path.trim().to_owned());
    Ok(RequestView {
        seq,
        wire: Wire::AnthropicMessages,
        session: header(SESSION_HEADER),
        agent,
        model: body.model,
        stream: body.stream,
        system,
        items,
        tools: body.tools.into_iter().map(|tool| tool.name).collect(),
        working_directory,
        headers,
        raw,
    })
}

fn items(message: Message) -> Vec<Item> {
    let role = match message.role.as_str() {
        "assistant" => Role::Assistant,
        "system" => Role::System,
        _ => Role::User,
    };
    let blocks = match message.content {
        Content::Text(text) => vec![Block::Text { text }],
        Content::Blocks(blocks) => blocks,
    };
    blocks.into_iter().flat_map(|block| block.items(role)).collect()
}

fn item_of(role: Role, said: Said<'_>) -> Item {
    let (kind, text) = match said {
        Said::Words(text) => (ItemKind::Text, text),
        Said::Steer(text) => (ItemKind::Steer, text),
        Said::Injected(text) => (ItemKind::Injected, text),
    };
    Item::new(role, kind, text)
}

impl Block {
    fn items(self, role: Role) -> Vec<Item> {
        match self {
            Self::Text { text } => match role {
                Role::Assistant => vec![Item::new(role, ItemKind::Text, text)],
                Role::System => {
                    claude_text::in_system(&text).into_iter().map(|said| item_of(role, said)).collect()
                }
                Role::User => {
                    claude_text::in_words(&text).into_iter().map(|said| item_of(role, said)).collect()
                }
            },
            Self::ToolUse { id, name, input } => {
                let text = format!("{name} {input}");
                vec![Item::new(role, ItemKind::ToolCall { id, name, input }, text)]
            }
            Self::ToolResult { tool_use_id, content, is_error } => {
                let content = content.joined();
                let (words, mixed_in): (Vec<_>, Vec<_>) = claude_text::in_words(&content)
                    .into_iter()
                    .partition(|said| matches!(said, Said::Words(_)));
                let words: Vec<String> = words.into_iter().map(|said| item_of(role, said).text).collect();
                let kind = ItemKind::ToolResult { call: tool_use_id, is_error };
                let mut items = vec![Item::new(role, kind, words.join("\n"))];
                items.extend(mixed_in.into_iter().map(|said| item_of(role, said)));
                items
            }
            Self::Other => vec![Item::new(role, ItemKind::Other, "")],
        }
    }
}

impl Content {
    fn joined(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Blocks(blocks) => {
                let texts = blocks.into_iter().filter_map(|block| match block {
                    Block::Text { text } => Some(text),
                    _ => None,
                });
                texts.collect::<Vec<_>>().join("\n")
            }
        }
    }
}

impl Default for Content {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

// === writing ===

pub(super) fn tool_name(alias: &str) -> String {
    match alias {
        "shell" => "Bash".to_owned(),
        "agent" => "Agent".to_owned(),
        _ => match alias.strip_prefix("mcp/") {
            Some(tool) => format!("{MCP_PREFIX}{tool}"),
            None => alias.to_owned(),
        },
    }
}

fn tool_input(call: &ToolCall) -> Value {
    let mut input = match &call.input {
        Value::Null => json!({}),
        input => input.clone(),
    };
    if let ("shell", Value::Object(fields)) = (call.alias.as_str(), &mut input) {
        if let Some(background) = fields.remove("background") {
            fields.insert("run_in_background".to_owned(), background);
        }
        fields.entry("description").or_insert_with(|| "Run a command".into());
    }
    input
}

pub(super) fn stream(view: &RequestView, reply: &Reply) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut message = envelope(view, reply.usage, 1);
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    pieces.push(event(&json!({"type": "message_start", "message": message})));

    let mut index = 0;
    if let Some(text) = &reply.text {
        let empty = json!({"type": "text", "text": ""});
        pieces.push(event(&json!({"type": "content_block_start", "index": index, "content_block": empty})));
        for (part, pause) in chunks(reply, text) {
            let delta = json!({"type": "text_delta", "text": part});
            pieces.push(event(&json!({"type": "content_block_delta", "index": index, "delta": delta})));
            pieces.extend(pause.map(Piece::Pause));
        }
    }
    pieces.extend(reply.hold.clone().map(Piece::Hold));
    if reply.cut {
        pieces.extend([Piece::Pause(BEFORE_CUT), Piece::Cut]);
        return pieces;
    }
    if reply.text.is_some() {
        pieces.push(event(&json!({"type": "content_block_stop", "index": index})));
        index += 1;
    }
    for (at, call) in reply.tools.iter().enumerate() {
        let empty = json!({
            "type": "tool_use", "id": tool_id(view, at), "name": tool_name(&call.alias), "input": {},
        });
        let delta = json!({"type": "input_json_delta", "partial_json": tool_input(call).to_string()});
        pieces.push(event(&json!({"type": "content_block_start", "index": index, "content_block": empty})));
        pieces.push(event(&json!({"type": "content_block_delta", "index": index, "delta": delta})));
        pieces.push(event(&json!({"type": "content_block_stop", "index": index})));
        index += 1;
    }
    pieces.push(event(&json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason(reply), "stop_sequence": null},
        "usage": {"output_tokens": reply.usage.output},
    })));
    pieces.push(event(&json!({"type": "message_stop"})));
    pieces
}

/// The answer to a request without `stream`, which Claude sends after a stream broke.
pub(super) fn whole(view: &RequestView, reply: &Reply) -> Value {
    let text = reply.text.iter().map(|text| json!({"type": "text", "text": text}));
    let tools = reply.tools.iter().enumerate().map(|(at, call)| {
        let name = tool_name(&call.alias);
        json!({"type": "tool_use", "id": tool_id(view, at), "name": name, "input": tool_input(call)})
    });
    let mut message = envelope(view, reply.usage, reply.usage.output);
    message["content"] = text.chain(tools).collect();
    message["stop_reason"] = stop_reason(reply).into();
    message
}

pub(super) fn failure(status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

pub(super) fn token_count() -> Value {
    json!({"input_tokens": COUNTED_TOKENS})
}

pub(super) fn models() -> Value {
    let data = MODELS.map(|id| json!({"type": "model", "id": id, "display_name": id}));
    json!({"data": data, "has_more": false, "first_id": MODELS.first(), "last_id": MODELS.last()})
}

pub(super) fn ping() -> Bytes {
    Bytes::from_static(b"event: ping\ndata: {\"type\":\"ping\"}\n\n")
}

fn envelope(view: &RequestView, usage: Usage, output: u64) -> Value {
    json!({
        "id": format!("msg_{}", view.answer_id().simple()),
        "type": "message",
        "role": "assistant",
        "model": view.model,
        "stop_sequence": null,
        "usage": {
            "input_tokens": usage.input,
            "cache_creation_input_tokens": usage.cache_write,
            "cache_read_input_tokens": usage.cache_read,
            "output_tokens": output,
        },
    })
}

fn stop_reason(reply: &Reply) -> &'static str {
    if reply.tools.is_empty() { "end_turn" } else { "tool_use" }
}

fn tool_id(view: &RequestView, at: usize) -> String {
    format!("toolu_{}", Uuid::new_v5(&view.answer_id(), &at.to_be_bytes()).simple())
}

fn event(data: &Value) -> Piece {
    let name = data["type"].as_str().unwrap_or_default();
    Piece::Data(Bytes::from(format!("event: {name}\ndata: {data}\n\n")))
}

#[cfg(test)]
mod tests;
