//! `finish_process`: the only way the agent ends its process. It is held while anything is open; then nothing is
//! recorded but the number of the report.

use super::{Exit, ExitReason, Fact, OpenWork, Outcome, State, TaskKind};
use crate::time::Timestamp;

pub(super) fn step(state: &mut State, summary: &str, now: Timestamp) -> Vec<Fact> {
    // What nobody needs any more is not held by what nobody will do.
    if state.finishing.is_some() {
        return state.finish_itself(Some(summary.to_owned()), now);
    }
    let open = open_work(state, now);
    if !open.is_empty() {
        return vec![Fact::FinishHeld { open }];
    }
    let exit = Exit {
        outcome: Outcome::Completed,
        reason: ExitReason::FinishProcess,
        summary: Some(summary.to_owned()),
    };
    state.end(exit, now)
}

fn open_work(state: &State, now: Timestamp) -> Vec<OpenWork> {
    let mut open = Vec::new();
    let (messages, happened) = (state.undelivered.len(), state.fired.len());
    open.extend((messages > 0).then_some(OpenWork::Messages { count: messages }));
    open.extend((happened > 0).then_some(OpenWork::Happened { count: happened }));
    let questions: Vec<_> = state.cards.iter().flat_map(|card| &card.questions).map(|open| open.id).collect();
    open.extend((!questions.is_empty()).then_some(OpenWork::Questions { questions }));
    open.extend(state.wait.as_ref().map(|wait| OpenWork::Wait { on: wait.on.clone() }));
    let labels = |kind: TaskKind| -> Vec<String> {
        let running = state.hot().into_iter().flat_map(|hot| &hot.running);
        let holding = running.filter(|running| running.kind == kind && running.holds(now));
        holding.map(|running| running.label.clone()).collect()
    };
    let (commands, sub_agents) = (labels(TaskKind::Command), labels(TaskKind::SubAgent));
    open.extend((!commands.is_empty()).then_some(OpenWork::Commands { labels: commands }));
    open.extend((!sub_agents.is_empty()).then_some(OpenWork::SubAgents { labels: sub_agents }));
    open
}
