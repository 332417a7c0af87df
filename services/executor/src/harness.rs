//! What a harness does, in the words every driver translates into.
//!
//! A driver reads its own protocol and says it in these events; the segment knows nothing else of a harness. Silence
//! is no event: what counts as work is said by a model call, an open tool, a background command or a sub-agent.

pub mod claude_code;

use std::fmt;

use serde_json::Value;
use uuid::Uuid;

/// One thing that happened, and whose it was.
#[derive(Debug, Clone, PartialEq)]
pub struct HarnessEvent {
    pub actor: Actor,
    pub what: What,
}

/// The agent itself, or one of the sub-agents its harness runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Actor {
    Main,
    /// By the id of the tool call that started it.
    Sub(String),
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// The session is loaded. Said again when something in it changed.
    SessionReady(Session),
    State(RunState),
    /// A delivered message has reached the model's context; `uuid` is the one it was delivered under.
    Consumed {
        uuid: Uuid,
    },
    /// The turn is over, with the last text of it.
    TurnEnded {
        outcome: TurnOutcome,
        text: String,
    },
    /// A text is being written; deltas follow, then the same id with the whole text.
    MessageStarted {
        message_id: String,
    },
    TextDelta {
        message_id: String,
        text: String,
    },
    /// A text that was begun and given up with its model call; the model does not have it.
    MessageDropped {
        message_id: String,
    },
    /// A complete text. Sub-agents' texts come only whole.
    Text {
        message_id: String,
        text: String,
    },
    ToolStarted {
        id: String,
        name: String,
        input: Value,
    },
    /// A sub-agent's may come after its own end.
    ToolEnded {
        id: String,
        is_error: bool,
        output: String,
    },
    /// The agent's list of what it means to do, whole.
    PlanUpdated {
        items: Vec<PlanItem>,
    },
    /// A command now runs beside the turn. Commands the turn waits for are only tools.
    BackgroundStarted {
        task: String,
        tool: String,
        command: String,
    },
    BackgroundEnded {
        task: String,
        end: TaskEnd,
    },
    SubAgentStarted {
        id: String,
        kind: String,
        description: String,
    },
    SubAgentEnded {
        id: String,
        end: TaskEnd,
    },
    /// The main agent's calls only; the model proxy sees all of them.
    ModelCallStarted,
    ModelCallEnded,
    /// The answer to a request of ours.
    ControlAnswer {
        request_id: String,
        ok: bool,
        body: Value,
    },
    /// The harness asks something that nobody here answers; it must be refused or it waits for ever.
    ControlAsked {
        request_id: String,
        subject: String,
    },
    /// Everything inside stands still, by our order or because our beat was missing, and waits to be thawed.
    Frozen,
    /// For the segment's log, never for the thread.
    Notice {
        text: String,
    },
    /// The last event: nothing lives inside any more.
    Exited(Exited),
}

/// Lines of a harness's error output that are told when it has ended.
const STDERR_SHOWN: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: String,
    pub version: String,
    pub model: String,
    /// Each tool server and its state, as the harness names them.
    pub mcp: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunState {
    Idle,
    Running,
    /// The context is being summarised.
    Compacting,
    /// A model call failed and is tried again.
    Retrying {
        attempt: u32,
        delay_ms: u64,
        status: Option<u16>,
    },
    /// The harness waits for a person's decision.
    WaitingDecision,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOutcome {
    Completed,
    Interrupted,
    /// With the provider's status, where there was one.
    Failed {
        status: Option<u16>,
        message: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanItem {
    /// The harness's own id, by which later changes name it.
    pub id: String,
    pub text: String,
    pub status: PlanStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanStatus {
    Pending,
    InProgress,
    Completed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskEnd {
    Completed,
    Failed,
    /// By an interrupt, a stop, or the end of the harness.
    Stopped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exited {
    /// The harness's own code, 128 + signal where a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended the sandbox itself.
    pub signal: Option<i32>,
    /// The last lines of its error output.
    pub stderr_tail: Vec<String>,
}

// === impl HarnessEvent ===

impl HarnessEvent {
    pub fn main(what: What) -> Self {
        Self { actor: Actor::Main, what }
    }

    pub(crate) fn notice(text: impl Into<String>) -> Self {
        Self::main(What::Notice { text: text.into() })
    }
}

// === impl Exited ===

impl fmt::Display for Exited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(137), _) => {
                write!(f, "the harness was killed (signal 9), as happens when memory runs out")?;
            }
            (Some(code @ 129..=192), _) => write!(f, "the harness was ended by signal {}", code - 128)?,
            (Some(code), _) => write!(f, "the harness exited with {code}")?,
            (None, Some(signal)) => write!(f, "the sandbox was ended by signal {signal}")?,
            (None, None) => write!(f, "the sandbox ended")?,
        }
        let last = self.stderr_tail.len().saturating_sub(STDERR_SHOWN);
        let lines: Vec<_> = self.stderr_tail[last..].iter().map(|line| cleaned(line)).collect();
        if lines.is_empty() { Ok(()) } else { write!(f, "; it last said: {}", lines.join(" / ")) }
    }
}

/// A line without colours and other orders to a terminal.
fn cleaned(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        if character == '\u{1b}' {
            // An order ends with a letter.
            let _ended = rest.by_ref().find(char::is_ascii_alphabetic);
        } else if !character.is_control() {
            text.push(character);
        }
    }
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_says_what_happened_and_the_last_words_without_colours() {
        let exited = |code, lines: &[&str]| {
            let stderr_tail = lines.iter().map(|line| (*line).to_owned()).collect();
            Exited { code: Some(code), signal: None, stderr_tail }.to_string()
        };
        assert_eq!(exited(1, &[]), "the harness exited with 1");
        assert!(exited(137, &[]).contains("signal 9") && exited(137, &[]).contains("memory"));
        let said = exited(134, &["old", "a", "\u{1b}[31mheap\u{1b}[0m out of memory", "b\r"]);
        assert_eq!(said, "the harness was ended by signal 6; it last said: a / heap out of memory / b");
    }
}
