//! What people and clients see of a process: one status, and a substate that says what the agent is doing.

use serde::{Deserialize, Serialize};

use super::{Exit, Harness, Hot, Note, Outcome, ParkReason, Phase, Stage, State, Wait, WakeTrigger};
use crate::ids::{AgentId, ConversationId, Epoch, ExecutorId, MessageId, ProcessId, UserId};
use crate::time::Timestamp;

/// `executing` from the first message until the exit, whatever the substate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nothing was started.
    Pending,
    Executing,
    Completed,
    Stopped,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Substate {
    Working,
    Idle,
    Waiting,
    #[serde(rename = "Needs attention")]
    NeedsAttention,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicProcess {
    pub id: ProcessId,
    pub conversation_id: ConversationId,
    pub agent_id: AgentId,
    /// Its place in the conversation's chain, from 1.
    pub ordinal: u32,
    pub status: Status,
    /// `queued`, `waking`, `starting`, `hot_working`, `hot_idle`, `parked` or `ended`.
    pub state: String,
    /// Absent once ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substate: Option<Substate>,
    pub since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub park_reason: Option<ParkReason>,
    /// What ends the present state, in a sentence.
    pub next: String,
    /// How many wait before it for a slot of the same executor; told while it is waking, where the queue is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_before: Option<usize>,
    /// What is booked, whatever the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// The cards that wait for an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_cards: Vec<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    pub epoch: Epoch,
    pub harness: Harness,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<ExecutorId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<ExecutorId>,
    pub starter: UserId,
    pub started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update: Option<Note>,
    /// Inputs that the harness has not taken yet.
    pub undelivered: usize,
}

impl PublicProcess {
    /// Whether it waits for an executor.
    pub fn is_waking(&self) -> bool {
        matches!(self.state.as_str(), "queued" | "waking")
    }

    /// It waits for a slot of this executor, behind so many others.
    pub fn waits_for(&mut self, executor: ExecutorId, before: usize) {
        let place = match before {
            0 => "it is the next".to_owned(),
            1 => "one is before it".to_owned(),
            _ => format!("{before} are before it"),
        };
        self.next = format!("it waits for a free slot of {executor}; {place}");
        self.waiting_before = Some(before);
    }
}

impl State {
    pub fn status(&self) -> Status {
        match &self.phase {
            Phase::Absent => Status::Pending,
            Phase::Waking { .. } | Phase::Hot(_) | Phase::Parked { .. } => Status::Executing,
            Phase::Ended { exit, .. } => match exit.outcome {
                Outcome::Completed => Status::Completed,
                Outcome::Stopped => Status::Stopped,
                Outcome::Failed => Status::Failed,
            },
        }
    }

    pub fn substate(&self) -> Option<Substate> {
        match &self.phase {
            Phase::Absent | Phase::Ended { .. } => None,
            Phase::Waking { .. } => Some(Substate::Working),
            Phase::Hot(hot) => Some(match hot.stage {
                Stage::Idle if self.is_quiet(hot) => Substate::Idle,
                // What was said and is not read yet is work, and so is what goes on beside the turn.
                Stage::Starting | Stage::Working | Stage::Idle => Substate::Working,
            }),
            Phase::Parked { reason, .. } => Some(match reason {
                ParkReason::NeedsAttention { .. } => Substate::NeedsAttention,
                ParkReason::Absent
                | ParkReason::WaitTime
                | ParkReason::WaitEvent
                | ParkReason::Question
                | ParkReason::Drain
                | ParkReason::SegmentCap
                | ParkReason::Crashed { .. } => Substate::Waiting,
            }),
        }
    }

    pub fn public(&self) -> PublicProcess {
        let (name, since, next) = self.standing();
        let (park_reason, exit) = match &self.phase {
            Phase::Parked { reason, .. } => (Some(reason.clone()), None),
            Phase::Ended { exit, .. } => (None, Some(exit.clone())),
            Phase::Absent | Phase::Waking { .. } | Phase::Hot(_) => (None, None),
        };
        PublicProcess {
            id: self.process,
            conversation_id: self.conversation,
            agent_id: self.agent,
            ordinal: self.ordinal,
            status: self.status(),
            state: name.to_owned(),
            substate: self.substate(),
            since,
            park_reason,
            next,
            waiting_before: None,
            wait: self.wait.clone(),
            open_cards: self.cards.iter().map(|card| card.id).collect(),
            exit,
            epoch: self.epoch,
            harness: self.harness,
            harness_version: self.session.as_ref().map(|session| session.version.clone()),
            executor: self.hot().map(|hot| hot.executor),
            volume: self.volume,
            starter: self.starter,
            started_at: self.started_at,
            last_update: self.note.clone(),
            undelivered: self.undelivered.len(),
        }
    }

    /// The state's name, since when, and what ends it.
    fn standing(&self) -> (&'static str, Timestamp, String) {
        match &self.phase {
            Phase::Absent => {
                ("absent", self.started_at, "a message that is accepted starts a process".into())
            }
            Phase::Waking { since, trigger: WakeTrigger::Start, .. } => {
                ("queued", *since, "it starts when an executor has a free slot".into())
            }
            Phase::Waking { since, .. } => {
                ("waking", *since, "it goes on when an executor has a free slot".into())
            }
            Phase::Hot(hot) => match hot.stage {
                Stage::Starting => ("starting", hot.since, "the harness is starting".into()),
                Stage::Idle if self.is_quiet(hot) => {
                    ("hot_idle", hot.since, "a message starts the next turn; without one it parks".into())
                }
                Stage::Idle if !self.has_unread() && !hot.resumes => {
                    let labels: Vec<_> = hot.running.iter().map(|running| running.label.as_str()).collect();
                    let next = format!("the agent goes on when this ends: {}", labels.join("; "));
                    ("hot_working", hot.since, next)
                }
                Stage::Working | Stage::Idle => ("hot_working", hot.since, "the agent works".into()),
            },
            Phase::Parked { since, reason } => ("parked", *since, self.wakes_by(reason)),
            Phase::Ended { at, .. } => ("ended", *at, "a message starts the next process".into()),
        }
    }

    /// Whether nothing is on its way to an idle harness, and nothing goes on beside it.
    fn is_quiet(&self, hot: &Hot) -> bool {
        !self.has_unread() && hot.running.is_empty() && !hot.resumes
    }

    /// Everything that wakes a parked process.
    fn wakes_by(&self, reason: &ParkReason) -> String {
        if let ParkReason::NeedsAttention { what } = reason {
            return format!("{what}; then a message wakes it");
        }
        let mut sources = Vec::new();
        if let ParkReason::Crashed { what, until } = reason {
            sources.push(format!("{what}; it is tried again at {until}"));
        }
        sources.extend(self.wait.as_ref().map(|wait| format!("it waits {} ({})", wait.on, wait.reason)));
        if !self.cards.is_empty() {
            sources.push("an answer to its question wakes it".to_owned());
        }
        sources.push("a message wakes it".to_owned());
        sources.join("; ")
    }
}
