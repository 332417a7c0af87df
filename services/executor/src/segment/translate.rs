//! What the harness does, as the record, the viewers and the segment take it. Pure.

use contract::messages::record::{Output, PlanItem, PlanStatus};
use domain::ids::{ConversationId, MessageId};
use domain::process::{TaskKind, TurnOutcome};
use domain::segment::Signal;
use serde_json::Value;

use super::live::Change;
use crate::harness::{self, Actor, HarnessEvent, RunState, What};

#[derive(Debug)]
pub(super) struct Translator {
    conversation: ConversationId,
    /// The text of the turn that ended last, until its end is written.
    turn_text: Option<String>,
}

/// What one event comes to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Translated {
    pub(super) live: Option<Change>,
    pub(super) outputs: Vec<Output>,
    pub(super) signal: Option<Signal>,
}

// === impl Translator ===

impl Translator {
    pub(super) const fn new(conversation: ConversationId) -> Self {
        Self { conversation, turn_text: None }
    }

    pub(super) fn take_turn_text(&mut self) -> Option<String> {
        self.turn_text.take()
    }

    pub(super) fn translate(&mut self, event: HarnessEvent) -> Translated {
        let main = event.actor == Actor::Main;
        match event.what {
            What::State(RunState::Running) if main => signal(Signal::Running),
            What::Consumed { uuid } => signal(Signal::Consumed { frame: uuid }),
            What::TurnEnded { outcome, text } if main => {
                let (outcome, failed) = outcome_of(outcome);
                self.turn_text = Some(text).filter(|text| !text.is_empty());
                let outputs = failed.map(|text| Output::Notice { text }).into_iter().collect();
                Translated { outputs, ..signal(Signal::TurnEnded { outcome }) }
            }
            What::MessageStarted { message_id } if main => {
                let message_id = self.message(&message_id);
                Translated { live: Some(Change::Begun(message_id)), ..output(Output::MessageStarted { message_id }) }
            }
            What::TextDelta { message_id, text } if main => {
                Translated { live: Some(Change::More(self.message(&message_id), text)), ..Translated::default() }
            }
            What::MessageDropped { message_id } if main => {
                let message_id = self.message(&message_id);
                Translated { live: Some(Change::Over(message_id)), ..output(Output::MessageDropped { message_id }) }
            }
            What::Text { message_id, text } if main => {
                let message_id = self.message(&message_id);
                Translated { live: Some(Change::Over(message_id)), ..output(Output::Text { message_id, text }) }
            }
            What::ToolStarted { id, name, input } => Translated {
                signal: Some(Signal::ToolStarted { tool: id.clone() }),
                ..output(Output::ToolCall { id, name, input })
            },
            What::ToolEnded { id, is_error, output: text } => Translated {
                signal: Some(Signal::ToolEnded { tool: id.clone() }),
                ..output(Output::ToolResult { id, output: Value::String(text), is_error })
            },
            What::PlanUpdated { items } => output(Output::Plan { items: items.into_iter().map(plan_item).collect() }),
            What::BackgroundStarted { task, command, .. } => {
                signal(Signal::TaskStarted { task, kind: TaskKind::Command, label: command })
            }
            What::BackgroundEnded { task, .. } => signal(Signal::TaskEnded { task }),
            What::SubAgentStarted { id, description, .. } => {
                signal(Signal::TaskStarted { task: id, kind: TaskKind::SubAgent, label: description })
            }
            What::SubAgentEnded { id, .. } => signal(Signal::TaskEnded { task: id }),
            What::Exited(exited) => signal(Signal::Ended { what: exited.to_string() }),
            What::Frozen => signal(Signal::Frozen),
            What::Notice { text } => {
                tracing::debug!(text, "the harness");
                Translated::default()
            }
            // The log and the signals above say what these would.
            What::SessionReady(_)
            | What::State(_)
            | What::TurnEnded { .. }
            | What::MessageStarted { .. }
            | What::TextDelta { .. }
            | What::MessageDropped { .. }
            // A sub-agent speaks to the agent, not to the person.
            | What::Text { .. }
            | What::ModelCallStarted
            | What::ModelCallEnded
            | What::ControlAnswer { .. }
            | What::ControlAsked { .. } => Translated::default(),
        }
    }

    fn message(&self, harness_name: &str) -> MessageId {
        MessageId::of_output(self.conversation, harness_name)
    }
}

fn signal(signal: Signal) -> Translated {
    Translated { signal: Some(signal), ..Translated::default() }
}

fn output(output: Output) -> Translated {
    Translated { outputs: vec![output], ..Translated::default() }
}

/// The outcome, and what the person is told of a failure.
fn outcome_of(outcome: harness::TurnOutcome) -> (TurnOutcome, Option<String>) {
    match outcome {
        harness::TurnOutcome::Completed => (TurnOutcome::Completed, None),
        harness::TurnOutcome::Interrupted => (TurnOutcome::Interrupted, None),
        harness::TurnOutcome::Failed { message, .. } => (TurnOutcome::Failed, Some(message)),
    }
}

fn plan_item(item: harness::PlanItem) -> PlanItem {
    let status = match item.status {
        harness::PlanStatus::Pending => PlanStatus::Pending,
        harness::PlanStatus::InProgress => PlanStatus::InProgress,
        harness::PlanStatus::Completed => PlanStatus::Completed,
    };
    PlanItem { text: item.text, status }
}
