//! A process's history, and one sentence about it.

use domain::Timestamp;
use domain::ids::{ProcessId, UserId};
use domain::process::{Cause, Fact, Input, PublicProcess, Step};
use serde::Serialize;

/// One step of `GET /v1/processes/{process_id}/history`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryStep {
    /// Its place in the log.
    pub id: u64,
    pub at: Timestamp,
    /// What led to it: `message`, `stop`, `report`, `due`, …
    pub cause: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<UserId>,
    pub facts: Vec<Fact>,
    pub state: String,
}

/// `GET /v1/processes/{process_id}/explain`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    pub process_id: ProcessId,
    /// What it does, the last proof of life, and what wakes it.
    pub sentence: String,
    /// When it last did or was told anything.
    pub last_sign: Timestamp,
    pub process: PublicProcess,
}

// === impl HistoryStep ===

impl HistoryStep {
    pub fn new(sequence: u64, step: &Step) -> Self {
        let (cause, by) = match &step.cause {
            Cause::Input { from, input, .. } => (name(input), Some(*from)),
            Cause::Report(_) => ("report", None),
            Cause::Lost { .. } => ("lost", None),
            Cause::Happened { .. } => ("event", None),
            Cause::Due { .. } => ("due", None),
            Cause::Nudge { .. } => ("nudge", None),
            Cause::SelfFinish { .. } => ("self_finish", None),
        };
        Self {
            id: sequence,
            at: step.at,
            cause,
            by,
            facts: step.facts.clone(),
            state: step.state.public().state,
        }
    }
}

const fn name(input: &Input) -> &'static str {
    match input {
        Input::Message { .. } => "message",
        Input::Answer { .. } => "answer",
        Input::Stop { .. } => "stop",
        Input::Archive => "archive",
        Input::Retry => "retry",
        Input::Fail { .. } => "fail",
        Input::Duplicate { .. } => "duplicate",
        Input::Dead { .. } => "dead",
    }
}

// === impl Explanation ===

impl Explanation {
    /// `last` is when the last step was taken.
    pub fn new(process: PublicProcess, last: Timestamp) -> Self {
        let does = match process.substate {
            Some(substate) => format!("{substate:?}"),
            None => format!("{:?}", process.status),
        };
        let mut sentence = format!("{does} ({}) since {}: {}", process.state, process.since, process.next);
        if let Some(note) = &process.last_update {
            sentence.push_str(&format!("; it last said, at {}: {}", note.at, note.text));
        }
        sentence.push_str(&format!("; its last sign was at {last}"));
        Self { process_id: process.id, sentence, last_sign: last, process }
    }
}
