//! What goes on beside the turn: background commands and sub-agents.

use super::{Fact, Phase, Running, State, TaskKind, shown};
use crate::policy;
use crate::time::Timestamp;

pub(super) fn started(
    state: &mut State,
    task: &str,
    kind: TaskKind,
    label: &str,
    now: Timestamp,
) -> Option<Fact> {
    let Phase::Hot(hot) = &mut state.phase else { return None };
    if hot.running.len() >= policy::RUNNING_SHOWN_MAX || hot.running.iter().any(|known| known.task == task) {
        return None;
    }
    let label = shown(label, policy::RUNNING_LABEL_MAX);
    hot.running.push(Running { task: task.to_owned(), kind, label, since: now });
    Some(Fact::TaskStarted { task: task.to_owned() })
}

pub(super) fn ended(state: &mut State, task: &str) -> Option<Fact> {
    let Phase::Hot(hot) = &mut state.phase else { return None };
    let before = hot.running.len();
    hot.running.retain(|known| known.task != task);
    (hot.running.len() < before).then(|| Fact::TaskEnded { task: task.to_owned() })
}

/// What still runs ends with its segment. The agent is told when it wakes.
pub(super) fn killed(state: &mut State) -> Vec<Fact> {
    let Phase::Hot(hot) = &mut state.phase else { return Vec::new() };
    let running = std::mem::take(&mut hot.running);
    state.killed.extend(running.iter().map(|task| task.label.clone()));
    state.killed.truncate(policy::KILLED_SHOWN_MAX);
    running.into_iter().map(|task| Fact::TaskKilled { task: task.task, label: task.label }).collect()
}

impl Running {
    /// Whether it still holds its process open.
    pub fn holds(&self, now: Timestamp) -> bool {
        match self.kind {
            TaskKind::Command => now.since(self.since) < policy::BACKGROUND_HOLDS_FOR,
            TaskKind::SubAgent => true,
        }
    }
}
