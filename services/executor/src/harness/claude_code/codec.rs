//! Claude Code's output lines, translated into harness events. Pure: lines in, events out, no clock and no IO.
//!
//! It never fails: what is not understood becomes a notice and the next line is read.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::frames::{
    Answer, Assistant, Block, Delta, Event, Frame, Init, Streamed, System, TurnResult, User,
};
use super::plan::{self, Plan};
use super::tasks::Tasks;
use crate::harness::{Actor, HarnessEvent, PlanItem, RunState, Session, TurnOutcome, What};

/// Open tool calls that are remembered. A turn has a handful; beyond this a call's command or plan change is missed.
const OPEN_CALLS_MAX: usize = 1_000;
/// Agents whose messages are followed at once; sub-agents that ended are forgotten long before.
const ACTORS_MAX: usize = 1_000;
/// Notices are for a log line.
const NOTICE_CHARS_MAX: usize = 300;
/// `terminal_reason` of a turn that was interrupted begins so.
const ABORTED: &str = "aborted";

#[derive(Debug, Default)]
pub struct Codec {
    session: Option<Session>,
    state: Option<RunState>,
    model_call_open: bool,
    stream: Stream,
    /// Per actor, the message whose blocks are coming in, and how many came.
    blocks: HashMap<Actor, (String, u64)>,
    calls: HashMap<String, Call>,
    tasks: Tasks,
    plan: Plan,
}

/// The main agent's message on its way.
#[derive(Debug, Default)]
struct Stream {
    message: String,
    /// The text block that is open, until it has come whole.
    text: Option<u64>,
}

/// A tool call that is not answered yet.
#[derive(Debug)]
struct Call {
    actor: Actor,
    /// Where it is a command.
    command: Option<String>,
    /// Where it may change the plan: the tool's name and input.
    plan: Option<(String, Value)>,
}

/// What is read of a line when it is not understood, to name it.
#[derive(Deserialize)]
struct Label {
    #[serde(rename = "type")]
    kind: Option<String>,
    subtype: Option<String>,
}

// === impl Codec ===

impl Codec {
    /// For a resumed session: `plan` is what the last [`What::PlanUpdated`] of it said.
    pub fn with_plan(plan: Vec<PlanItem>) -> Self {
        Self { plan: Plan::new(plan), ..Self::default() }
    }

    /// Takes one line of output.
    pub fn push(&mut self, line: &str) -> Vec<HarnessEvent> {
        let mut events = Vec::new();
        if line.trim().is_empty() {
            return events;
        }
        match serde_json::from_str::<Frame>(line) {
            Ok(Frame::Unknown | Frame::System(System::Unknown)) => events.push(unknown(line, None)),
            Ok(frame) => self.frame(frame, &mut events),
            Err(error) => events.push(unknown(line, Some(&error))),
        }
        events
    }

    fn frame(&mut self, frame: Frame, events: &mut Vec<HarnessEvent>) {
        match frame {
            Frame::System(system) => self.system(system, events),
            Frame::StreamEvent(streamed) => self.streamed(streamed, events),
            Frame::Assistant(assistant) => self.assistant(assistant, events),
            Frame::User(user) => self.user(user, events),
            Frame::Result(result) => self.turn_ended(result, events),
            Frame::ControlResponse { response } => events.push(HarnessEvent::main(answer(response))),
            Frame::ControlRequest { request_id, request } => {
                events.push(HarnessEvent::main(What::ControlAsked { request_id, subject: request.subtype }));
            }
            Frame::Progress
            | Frame::Attachment
            | Frame::ControlCancelRequest
            | Frame::KeepAlive
            | Frame::Unknown => {}
        }
    }

    fn system(&mut self, system: System, events: &mut Vec<HarnessEvent>) {
        match system {
            System::Init(init) => self.session(init, events),
            System::SessionStateChanged { state } => match state.as_str() {
                "idle" => self.state(RunState::Idle, events),
                "running" => self.state(RunState::Running, events),
                "requires_action" => self.state(RunState::WaitingDecision, events),
                other => events.push(notice(format!("unknown session state {other}"))),
            },
            System::Status { status } => match status.as_deref() {
                Some("compacting") => self.state(RunState::Compacting, events),
                Some("requesting") => {
                    self.pause_over(events);
                    self.model_call_ended(events);
                    self.model_call_open = true;
                    events.push(HarnessEvent::main(What::ModelCallStarted));
                }
                _ => self.pause_over(events),
            },
            System::ApiRetry(retry) => {
                let (attempt, status) = (retry.attempt, retry.error_status);
                // Whole milliseconds; a cast keeps any nonsense within bounds.
                let delay_ms = retry.retry_delay_ms as u64;
                self.state(RunState::Retrying { attempt, delay_ms, status }, events);
            }
            System::TaskStarted(started) => {
                let call = self.calls.get(&started.tool_use_id);
                let owner = call.map_or(Actor::Main, |call| call.actor.clone());
                let command = call.and_then(|call| call.command.clone());
                events.extend(self.tasks.started(started, owner, command));
            }
            System::TaskUpdated { task_id, patch } => {
                let event = self.tasks.updated(&task_id, &patch);
                self.task_changed(event, events);
            }
            System::TaskNotification(notification) => {
                let event = self.tasks.notified(&notification);
                self.task_changed(event, events);
            }
            System::CompactBoundary => events.push(notice("the context was summarised".to_owned())),
            System::TaskProgress | System::Unknown => {}
        }
    }

    fn session(&mut self, init: Init, events: &mut Vec<HarnessEvent>) {
        let session = Session {
            id: init.session_id,
            version: init.claude_code_version,
            model: init.model,
            mcp: init.mcp_servers.into_iter().map(|server| (server.name, server.status)).collect(),
        };
        // The frame comes with every turn.
        if self.session.as_ref() != Some(&session) {
            self.session = Some(session.clone());
            events.push(HarnessEvent::main(What::SessionReady(session)));
        }
    }

    fn state(&mut self, state: RunState, events: &mut Vec<HarnessEvent>) {
        if state == RunState::Idle {
            self.model_call_ended(events);
        }
        if self.state.as_ref() != Some(&state) {
            self.state = Some(state.clone());
            events.push(HarnessEvent::main(What::State(state)));
        }
    }

    /// Compacting and retrying have no end of their own; the next sign of a model call is it.
    fn pause_over(&mut self, events: &mut Vec<HarnessEvent>) {
        if matches!(self.state, Some(RunState::Compacting | RunState::Retrying { .. })) {
            self.state(RunState::Running, events);
        }
    }

    fn model_call_ended(&mut self, events: &mut Vec<HarnessEvent>) {
        if std::mem::take(&mut self.model_call_open) {
            events.push(HarnessEvent::main(What::ModelCallEnded));
        }
    }

    /// A sub-agent that has ended takes its open calls with it.
    fn task_changed(&mut self, event: Option<HarnessEvent>, events: &mut Vec<HarnessEvent>) {
        if let Some(HarnessEvent { what: What::SubAgentEnded { id, .. }, .. }) = &event {
            let ended = Actor::Sub(id.clone());
            self.calls.retain(|_, call| call.actor != ended);
            self.blocks.remove(&ended);
        }
        events.extend(event);
    }

    fn streamed(&mut self, streamed: Streamed, events: &mut Vec<HarnessEvent>) {
        if streamed.parent_tool_use_id.is_some() {
            return;
        }
        match streamed.event {
            Event::MessageStart { message } => {
                self.pause_over(events);
                self.stream_over(events);
                self.stream.message = message.id;
            }
            Event::ContentBlockStart { index, content_block } if content_block.kind == "text" => {
                self.stream.text = Some(index);
                let message_id = block_id(&self.stream.message, index);
                events.push(HarnessEvent::main(What::MessageStarted { message_id }));
            }
            Event::ContentBlockDelta { index, delta: Delta::TextDelta { text } }
                if self.stream.text == Some(index) =>
            {
                let message_id = block_id(&self.stream.message, index);
                events.push(HarnessEvent::main(What::TextDelta { message_id, text }));
            }
            Event::ContentBlockStop => self.stream.text = None,
            Event::MessageStop => {
                self.stream_over(events);
                self.model_call_ended(events);
            }
            _ => {}
        }
    }

    /// A text that is still open now was broken off.
    fn stream_over(&mut self, events: &mut Vec<HarnessEvent>) {
        let Stream { message, text } = std::mem::take(&mut self.stream);
        let dropped = text.map(|index| What::MessageDropped { message_id: block_id(&message, index) });
        events.extend(dropped.map(HarnessEvent::main));
    }

    fn assistant(&mut self, frame: Assistant, events: &mut Vec<HarnessEvent>) {
        let actor = actor(frame.parent_tool_use_id);
        if actor == Actor::Main && self.stream.message != frame.message.id {
            // Not what was streaming: the call was made again without a stream.
            self.stream_over(events);
        }
        for block in frame.message.content {
            let index = self.count_block(&actor, &frame.message.id);
            let what = match block {
                Block::Text { text } if frame.error.is_some() => What::Notice { text: shortened(text) },
                Block::Text { text } if text.is_empty() => continue,
                Block::Text { text } => {
                    // While it streams, the stream knows the index; blocks without a frame of their own are counted
                    // there and not here.
                    let streamed = if actor == Actor::Main { self.stream.text.take() } else { None };
                    let index = streamed.unwrap_or(index);
                    What::Text { message_id: block_id(&frame.message.id, index), text }
                }
                Block::ToolUse { id, name, input } => {
                    self.remember(&actor, &id, &name, &input);
                    What::ToolStarted { id, name, input }
                }
                Block::ToolResult { .. } | Block::Other => continue,
            };
            events.push(HarnessEvent { actor: actor.clone(), what });
        }
    }

    /// The place of the next block in its message. One frame comes per block.
    fn count_block(&mut self, actor: &Actor, message: &str) -> u64 {
        if self.blocks.len() > ACTORS_MAX {
            self.blocks.clear();
        }
        let (current, count) = self.blocks.entry(actor.clone()).or_default();
        if current != message {
            (*current, *count) = (message.to_owned(), 0);
        }
        *count += 1;
        *count - 1
    }

    fn remember(&mut self, actor: &Actor, id: &str, name: &str, input: &Value) {
        let command = if name == "Bash" { input["command"].as_str().map(str::to_owned) } else { None };
        let plan = (*actor == Actor::Main && plan::concerns(name)).then(|| (name.to_owned(), input.clone()));
        if self.calls.len() < OPEN_CALLS_MAX {
            self.calls.insert(id.to_owned(), Call { actor: actor.clone(), command, plan });
        }
    }

    fn user(&mut self, frame: User, events: &mut Vec<HarnessEvent>) {
        if frame.is_replay {
            events.extend(frame.uuid.map(|uuid| HarnessEvent::main(What::Consumed { uuid })));
            return;
        }
        let actor = actor(frame.parent_tool_use_id);
        for block in frame.message.content {
            let Block::ToolResult { tool_use_id, content, is_error } = block else { continue };
            let is_error = is_error.unwrap_or(false);
            let call = self.calls.remove(&tool_use_id);
            let what = What::ToolEnded { id: tool_use_id, is_error, output: output_text(&content) };
            events.push(HarnessEvent { actor: actor.clone(), what });
            if let Some(task) = frame.tool_use_result["backgroundTaskId"].as_str() {
                events.extend(self.tasks.moved_to_background(task));
            }
            if let Some((tool, input)) = call.and_then(|call| call.plan).filter(|_| !is_error)
                && self.plan.apply(&tool, &input, &frame.tool_use_result)
            {
                let items = self.plan.items().to_vec();
                events.push(HarnessEvent::main(What::PlanUpdated { items }));
            }
        }
    }

    fn turn_ended(&mut self, result: TurnResult, events: &mut Vec<HarnessEvent>) {
        self.model_call_ended(events);
        self.stream_over(events);
        self.calls.retain(|_, call| call.actor != Actor::Main);
        let interrupted = result.terminal_reason.is_some_and(|reason| reason.starts_with(ABORTED));
        let (outcome, text) = match (interrupted, result.is_error) {
            (true, _) => (TurnOutcome::Interrupted, result.result),
            (false, false) => (TurnOutcome::Completed, result.result),
            (false, true) => {
                let message = if result.result.is_empty() { result.errors.join("; ") } else { result.result };
                (TurnOutcome::Failed { status: result.api_error_status, message }, String::new())
            }
        };
        events.push(HarnessEvent::main(What::TurnEnded { outcome, text }));
    }
}

fn actor(parent_tool_use_id: Option<String>) -> Actor {
    parent_tool_use_id.map_or(Actor::Main, Actor::Sub)
}

fn block_id(message: &str, index: u64) -> String {
    format!("{message}.{index}")
}

fn answer(response: Answer) -> What {
    let ok = response.subtype == "success";
    let body = if ok { response.response } else { response.error.map_or(Value::Null, Value::String) };
    What::ControlAnswer { request_id: response.request_id, ok, body }
}

/// A result's text: itself, or its text parts; what is no text is named.
fn output_text(content: &Value) -> String {
    let part = |part: &Value| match (part["type"].as_str(), part["text"].as_str()) {
        (_, Some(text)) => text.to_owned(),
        (Some(kind), None) => format!("[{kind}]"),
        (None, None) => String::new(),
    };
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(part).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

fn unknown(line: &str, error: Option<&serde_json::Error>) -> HarnessEvent {
    let text = match (serde_json::from_str::<Label>(line), error) {
        (Ok(Label { kind: Some(kind), subtype }), error) => {
            let subtype = subtype.map(|subtype| format!("/{subtype}")).unwrap_or_default();
            let error = error.map(|error| format!(": {error}")).unwrap_or_default();
            format!("a frame that is not understood, {kind}{subtype}{error}")
        }
        _ => format!("a line that is no frame: {line}"),
    };
    notice(text)
}

fn notice(text: String) -> HarnessEvent {
    HarnessEvent::notice(shortened(text))
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(NOTICE_CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests;
