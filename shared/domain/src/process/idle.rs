//! A process that nobody needs any more: after a while the person is asked once, after a longer one it finishes itself.
//! How long, an operator sets; here is only what it comes to. A message, an answer or an event starts the count anew, since
//! each of them wakes the process; a wait for a time stops it.

use super::{
    Change, Exit, ExitReason, Fact, Outcome, ParkReason, Phase, State, WaitOn, WakeClass, WakeTrigger,
};
use crate::Refusal;
use crate::time::Timestamp;

/// Asks the person whether it is still needed.
pub(super) fn nudge(last: Option<&State>, since: Timestamp) -> Result<Change, Refusal> {
    let mut state = last.filter(|state| state.idle_since() == Some(since) && !state.nudged).cloned();
    let state = state.as_mut().ok_or(Refusal::NotIdle)?;
    state.nudged = true;
    Ok(Change { facts: vec![Fact::Nudged], state: state.clone() })
}

/// Wakes it a last time for a summary; where it has been woken for that already, it ends with its last note.
pub(super) fn self_finish(last: Option<&State>, since: Timestamp, now: Timestamp) -> Result<Change, Refusal> {
    let Some(state) = last.filter(|state| state.is_live()) else { return Err(Refusal::NotIdle) };
    let mut state = state.clone();
    if state.finishing == Some(since) {
        let facts = state.finish_itself(None, now);
        return Ok(Change { facts, state });
    }
    if state.idle_since() != Some(since) {
        return Err(Refusal::NotIdle);
    }
    // The harness cannot run while it needs attention, so there is nothing to wait for.
    if matches!(&state.phase, Phase::Parked { reason, .. } if reason.needs_attention()) {
        let facts = state.finish_itself(None, now);
        return Ok(Change { facts, state });
    }
    state.finishing = Some(now);
    let waking = state.wake(WakeTrigger::SelfFinish, WakeClass::Resume, now);
    Ok(Change { facts: vec![waking], state })
}

impl State {
    /// Since when nothing has happened to it; `None` while something does, or while it waits for a time.
    pub fn idle_since(&self) -> Option<Timestamp> {
        let waits = self.wait.as_ref().is_some_and(|wait| matches!(wait.on, WaitOn::Time { .. }));
        match &self.phase {
            Phase::Parked { reason: ParkReason::Crashed { .. }, .. } => None,
            Phase::Parked { since, .. } if !waits => Some(*since),
            _ => None,
        }
    }

    /// Ends it as Completed, with the summary or else its last note.
    pub(super) fn finish_itself(&mut self, summary: Option<String>, now: Timestamp) -> Vec<Fact> {
        let noted = self.note.as_ref().map(|note| note.text.clone());
        let summary = summary.or(noted).or_else(|| Some("Nobody needed it any more.".into()));
        self.finishing = None;
        self.end(Exit { outcome: Outcome::Completed, reason: ExitReason::SelfFinish, summary }, now)
    }
}
