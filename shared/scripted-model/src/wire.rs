//! The providers' wires: how each reads a request and writes a reply. One file per wire, one match per question.

mod anthropic;
mod claude_text;

use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use serde_json::Value;

use crate::reply::Reply;
use crate::request::RequestView;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wire {
    AnthropicMessages,
}

/// What a stream consists of; the server plays it in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Data(Bytes),
    Pause(Duration),
    Hold(String),
    Cut,
}

/// The request is not one of this wire.
#[derive(Debug, thiserror::Error)]
#[error("the body could not be read as a {wire:?} request; compare it with the provider's reference")]
pub(crate) struct Unreadable {
    wire: Wire,
    #[source]
    source: serde_json::Error,
}

/// A text as it is streamed: whole, or word by word with a pause after each. The parts joined are the text.
fn chunks(reply: &Reply, text: &str) -> Vec<(String, Option<Duration>)> {
    match reply.chunk_ms {
        None => vec![(text.to_owned(), None)],
        Some(pause) => text
            .split_inclusive(char::is_whitespace)
            .map(|word| (word.to_owned(), Some(Duration::from_millis(pause))))
            .collect(),
    }
}

// === impl Wire ===

impl Wire {
    pub(crate) fn read(self, seq: u64, headers: HeaderMap, raw: Bytes) -> Result<RequestView, Unreadable> {
        match self {
            Self::AnthropicMessages => anthropic::read(seq, headers, raw),
        }
        .map_err(|source| Unreadable { wire: self, source })
    }

    /// The name by which this wire's harness offers the tool behind an alias.
    pub fn tool_name(self, alias: &str) -> String {
        match self {
            Self::AnthropicMessages => anthropic::tool_name(alias),
        }
    }

    pub(crate) fn stream(self, view: &RequestView, reply: &Reply) -> Vec<Piece> {
        match self {
            Self::AnthropicMessages => anthropic::stream(view, reply),
        }
    }

    pub(crate) fn whole(self, view: &RequestView, reply: &Reply) -> Value {
        match self {
            Self::AnthropicMessages => anthropic::whole(view, reply),
        }
    }

    pub(crate) fn failure(self, status: u16, message: &str) -> Value {
        match self {
            Self::AnthropicMessages => anthropic::failure(status, message),
        }
    }

    pub(crate) fn token_count(self) -> Value {
        match self {
            Self::AnthropicMessages => anthropic::token_count(),
        }
    }

    pub(crate) fn models(self) -> Value {
        match self {
            Self::AnthropicMessages => anthropic::models(),
        }
    }

    /// What keeps a silent stream alive.
    pub(crate) fn ping(self) -> Bytes {
        match self {
            Self::AnthropicMessages => anthropic::ping(),
        }
    }
}
