//! Which commands and sub-agents run beside the turn, from frames that do not say it in one place.
//!
//! A foreground command that takes more than about 3 s shows as a task too. It is background only from the moment its
//! tool call is answered while it still runs, or when it is moved there.

use std::collections::HashMap;

use super::frames::{TaskNotification, TaskPatch, TaskStarted};
use crate::harness::{Actor, HarnessEvent, TaskEnd, What};

/// Tasks at once. A harness that has more keeps them, we only stop following: nothing is started on their account.
const TASKS_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Tasks {
    open: HashMap<String, Task>,
}

#[derive(Debug)]
struct Task {
    owner: Actor,
    tool: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    SubAgent,
    /// A command the turn waits for.
    Foreground {
        command: String,
    },
    Background,
}

// === impl Tasks ===

impl Tasks {
    /// `owner` made the tool call, whose command was `command`, where it was a command.
    pub(super) fn started(
        &mut self,
        frame: TaskStarted,
        owner: Actor,
        command: Option<String>,
    ) -> Option<HarnessEvent> {
        if self.open.len() >= TASKS_MAX {
            return Some(HarnessEvent::notice(format!("more than {TASKS_MAX} tasks at once")));
        }
        let (kind, event) = if frame.task_type == "local_agent" {
            let what = What::SubAgentStarted {
                id: frame.tool_use_id.clone(),
                kind: frame.subagent_type,
                description: frame.description,
            };
            (Kind::SubAgent, Some(HarnessEvent { actor: owner.clone(), what }))
        } else {
            (Kind::Foreground { command: command.unwrap_or(frame.description) }, None)
        };
        self.open.insert(frame.task_id, Task { owner, tool: frame.tool_use_id, kind });
        event
    }

    /// The tool call was answered, naming a task that goes on without it.
    pub(super) fn moved_to_background(&mut self, task_id: &str) -> Option<HarnessEvent> {
        let task = self.open.get_mut(task_id)?;
        let Kind::Foreground { command } = &mut task.kind else { return None };
        let command = std::mem::take(command);
        task.kind = Kind::Background;
        let what = What::BackgroundStarted { task: task_id.to_owned(), tool: task.tool.clone(), command };
        Some(HarnessEvent { actor: task.owner.clone(), what })
    }

    pub(super) fn updated(&mut self, task_id: &str, patch: &TaskPatch) -> Option<HarnessEvent> {
        match patch.status.as_deref().and_then(end_of) {
            Some(end) => self.ended(task_id, end),
            None if patch.is_backgrounded => self.moved_to_background(task_id),
            None => None,
        }
    }

    pub(super) fn notified(&mut self, frame: &TaskNotification) -> Option<HarnessEvent> {
        end_of(&frame.status).and_then(|end| self.ended(&frame.task_id, end))
    }

    fn ended(&mut self, task_id: &str, end: TaskEnd) -> Option<HarnessEvent> {
        let task = self.open.remove(task_id)?;
        let what = match task.kind {
            Kind::SubAgent => What::SubAgentEnded { id: task.tool, end },
            Kind::Background => What::BackgroundEnded { task: task_id.to_owned(), end },
            // Its tool call says it.
            Kind::Foreground { .. } => return None,
        };
        Some(HarnessEvent { actor: task.owner, what })
    }
}

fn end_of(status: &str) -> Option<TaskEnd> {
    match status {
        "completed" => Some(TaskEnd::Completed),
        "failed" => Some(TaskEnd::Failed),
        "killed" | "stopped" => Some(TaskEnd::Stopped),
        _ => None,
    }
}
