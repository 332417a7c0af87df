//! What is answered, said without any provider's words. A wire writes it down; this file knows no wire.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One answer. Empty fields mean "no such part", so a scenario names only what it wants.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reply {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolCall>,
    pub usage: Usage,
    /// Answers with an error status; text and tools are then not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail: Option<Failure>,
    /// Waits so long before the first byte.
    pub delay_ms: u64,
    /// Streams the text word by word with this pause after each; without it the text is one piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_ms: Option<u64>,
    /// Waits for this gate before the first byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_before: Option<String>,
    /// Keeps the stream open after the text until this gate is released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// Closes the socket after the text, in the middle of the stream.
    pub cut: bool,
}

/// A call of a tool by its alias. `shell`, `agent` and `mcp/<tool>` are resolved by the wire to the name and input
/// that the harness offers there; any other alias is the tool's own name, its input untouched.
/// `shell` takes `command`, and if wanted `description` and `background`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    pub alias: String,
    #[serde(default)]
    pub input: Value,
}

/// The tokens that the answer claims to have used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
}

/// An error answered in the place of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    pub status: u16,
    pub message: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

// === impl Reply ===

impl Reply {
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    pub fn tool(alias: impl Into<String>, input: Value) -> Self {
        Self::default().and_tool(alias, input)
    }

    pub fn fail(status: u16, message: impl Into<String>) -> Self {
        let fail = Failure { status, message: message.into(), headers: BTreeMap::new() };
        Self { fail: Some(fail), ..Self::default() }
    }

    #[must_use]
    pub fn and_tool(mut self, alias: impl Into<String>, input: Value) -> Self {
        self.tools.push(ToolCall { alias: alias.into(), input });
        self
    }

    /// Adds a header to an error; a message has none of its own.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Some(fail) = &mut self.fail {
            fail.headers.insert(name.into(), value.into());
        }
        self
    }

    #[must_use]
    pub fn with_usage(self, usage: Usage) -> Self {
        Self { usage, ..self }
    }

    #[must_use]
    pub fn delayed(self, by: Duration) -> Self {
        Self { delay_ms: millis(by), ..self }
    }

    #[must_use]
    pub fn chunked(self, pause: Duration) -> Self {
        Self { chunk_ms: Some(millis(pause)), ..self }
    }

    #[must_use]
    pub fn held_before(self, gate: impl Into<String>) -> Self {
        Self { hold_before: Some(gate.into()), ..self }
    }

    #[must_use]
    pub fn held(self, gate: impl Into<String>) -> Self {
        Self { hold: Some(gate.into()), ..self }
    }

    #[must_use]
    pub fn cut(self) -> Self {
        Self { cut: true, ..self }
    }
}

// === impl Usage ===

impl Default for Usage {
    /// Small and not zero, so that a test of the ledger sees something.
    fn default() -> Self {
        Self { input: 10, output: 5, cache_read: 0, cache_write: 0 }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reply_is_written_with_only_the_fields_it_needs() {
        let reply: Reply = serde_json::from_value(json!({
            "text": "start", "tools": [{"alias": "shell", "input": {"command": "ls"}}], "chunk_ms": 30,
        }))
        .unwrap();
        let built = Reply::text("start").and_tool("shell", json!({"command": "ls"}));
        assert_eq!(reply, built.chunked(Duration::from_millis(30)));
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        let refused = serde_json::from_value::<Reply>(json!({"txt": "start"}));
        assert!(refused.unwrap_err().to_string().contains("txt"));
    }
}
