//! Where a conversation's process stands. Small on purpose: it is written whole with every step.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Answer, Card, Fact, Fired, LookBack, ParkReason, Wait, WaitClosed, WaitOn, WakeClass, WakeTrigger,
    running,
};
use crate::ids::{
    AgentId, ConversationId, Epoch, ExecutorId, Incarnation, OrgId, ProcessId, QuestionId, RecordSeq,
    Renewal, ReportNo, SegmentId, TurnNo, UserId,
};
use crate::time::Timestamp;

/// Whose conversation it is. Every subject of it is built from these two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConversationKey {
    pub org: OrgId,
    pub conversation: ConversationId,
}

/// The state of the last process of a conversation's chain. What the next process takes over (epoch, session, volume,
/// the numbers of inputs and turns) stands here too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub org: OrgId,
    pub agent: AgentId,
    pub conversation: ConversationId,
    pub process: ProcessId,
    /// Its place in the chain, from 1; 0 while nothing was started.
    pub ordinal: u32,
    pub epoch: Epoch,
    /// The highest input that ended in a step.
    pub handled: RecordSeq,
    /// Inputs that the harness has not taken yet, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undelivered: Vec<RecordSeq>,
    /// Those of them that wait for the end of the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<RecordSeq>,
    /// Turns that have ended in this conversation.
    pub turns: TurnNo,
    pub harness: Harness,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// The executor whose volume holds the conversation's files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<ExecutorId>,
    /// Waits that are over and that the harness has not been told of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fired: Vec<Fired>,
    /// What ran beside the turn and was killed with the last segment, until the agent is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub killed: Vec<String>,
    #[serde(default, skip_serializing_if = "Crashes::is_none")]
    pub crashes: Crashes,
    /// The person was asked whether it is still needed, and nothing has happened since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nudged: bool,
    /// Since when it is to finish itself, because nobody needed it any more. A message or an event takes it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finishing: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    #[serde(default, skip_serializing_if = "LookBack::is_unset")]
    pub look_back: LookBack,
    /// Cards that wait for an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<Card>,
    /// Whose message started the process.
    pub starter: UserId,
    pub started_at: Timestamp,
    /// The latest progress note, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
    /// The segment's last report with its answer, so that a repeated one is answered alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<Reported>,
    pub phase: Phase,
}

/// Where a process stands. What is valid only there is in the variant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// The conversation's first input was refused; nothing was started.
    Absent,
    /// On its way to an executor.
    Waking {
        since: Timestamp,
        trigger: WakeTrigger,
        class: WakeClass,
    },
    Hot(Hot),
    Parked {
        since: Timestamp,
        reason: ParkReason,
    },
    Ended {
        at: Timestamp,
        exit: Exit,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hot {
    pub executor: ExecutorId,
    pub incarnation: Incarnation,
    /// The renewal that preceded the claim: a lease from the second after it on lists the segment.
    pub renewal: Renewal,
    pub since: Timestamp,
    pub stage: Stage,
    /// Its turn begins by itself once the harness is ready, and has not begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumes: bool,
    /// The input that asked for the end of the running turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<RecordSeq>,
    /// What goes on beside the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<Running>,
}

/// A command or sub-agent that goes on beside the turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The harness's own name for it.
    pub task: String,
    pub kind: TaskKind,
    /// The command, or what the sub-agent is for, shortened.
    pub label: String,
    pub since: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    Command,
    SubAgent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The sandbox and the harness are being set up.
    Starting,
    Working,
    Idle,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub outcome: Outcome,
    pub reason: ExitReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Completed,
    Stopped,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    FinishProcess,
    UserStop,
    Archived,
    Operator,
    /// Nobody needed it any more.
    SelfFinish,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Harness {
    ClaudeCode,
}

/// What the harness's crashes leave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crashes {
    /// Since the last turn that succeeded, or the last message.
    pub in_a_row: u8,
    /// Why it crashed the last time, until the agent is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untold: Option<String>,
}

/// The harness's own conversation, and the version it was last run with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub id: String,
    pub version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub at: Timestamp,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    pub executor: ExecutorId,
    pub incarnation: Incarnation,
    pub epoch: Epoch,
    pub n: ReportNo,
    pub answer: Answer,
}

/// What holds `finish_process`, with the way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "open", rename_all = "snake_case")]
pub enum OpenWork {
    /// Messages that came and are not read yet.
    Messages {
        count: usize,
    },
    /// What the agent waited for has happened, and it is not told yet.
    Happened {
        count: usize,
    },
    Questions {
        questions: Vec<QuestionId>,
    },
    Wait {
        on: WaitOn,
    },
    /// Background commands that still run.
    Commands {
        labels: Vec<String>,
    },
    SubAgents {
        labels: Vec<String>,
    },
}

// === impl State ===

impl State {
    pub const fn key(&self) -> ConversationKey {
        ConversationKey { org: self.org, conversation: self.conversation }
    }

    /// Started and not ended.
    pub const fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Waking { .. } | Phase::Hot(_) | Phase::Parked { .. })
    }

    pub fn segment(&self) -> SegmentId {
        SegmentId::of(self.process, self.epoch)
    }

    pub const fn hot(&self) -> Option<&Hot> {
        match &self.phase {
            Phase::Hot(hot) => Some(hot),
            _ => None,
        }
    }

    /// The inputs that may go into the harness now, in their order.
    pub fn deliverable(&self) -> impl Iterator<Item = RecordSeq> + '_ {
        self.undelivered.iter().copied().filter(|seq| !self.held.contains(seq))
    }

    /// Whether something waits for the harness.
    pub fn has_unread(&self) -> bool {
        !self.undelivered.is_empty() || !self.fired.is_empty()
    }

    /// Sets out for an executor under the next epoch.
    pub(super) fn wake(&mut self, trigger: WakeTrigger, class: WakeClass, now: Timestamp) -> Fact {
        self.epoch = self.epoch.next();
        self.held.clear();
        self.nudged = false;
        self.phase = Phase::Waking { since: now, trigger, class };
        Fact::Waking { trigger, epoch: self.epoch }
    }

    /// Ends the process and gives back what was not read.
    pub(super) fn end(&mut self, exit: Exit, now: Timestamp) -> Vec<Fact> {
        let mut facts = running::killed(self);
        facts.push(Fact::Ended { exit: exit.clone() });
        self.held.clear();
        self.fired.clear();
        facts.extend(self.close_wait(WaitClosed::Ended));
        facts.extend(self.expire_cards());
        let unread = std::mem::take(&mut self.undelivered);
        if !unread.is_empty() {
            facts.push(Fact::Returned { inputs: unread });
        }
        self.phase = Phase::Ended { at: now, exit };
        facts
    }
}

// === impl Crashes ===

impl Crashes {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

// === impl Display ===

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "Completed",
            Self::Stopped => "Stopped",
            Self::Failed => "Failed",
        })
    }
}

impl fmt::Display for OpenWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Messages { count: 1 } => {
                f.write_str("a message arrived that you have not read; end your turn to receive it")
            }
            Self::Messages { count } => {
                write!(f, "{count} messages arrived that you have not read; end your turn to receive them")
            }
            Self::Happened { .. } => {
                f.write_str("what you waited for has happened; end your turn to receive what it was")
            }
            Self::Questions { questions } => {
                let ids: Vec<_> = questions.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "questions are open ({}); wait for the answer with wait_for, or take them back with tell_user and \
                     withdraw",
                    ids.join(", ")
                )
            }
            Self::Wait { on } => {
                write!(
                    f,
                    "a wait {on} is booked; end your turn to wait, or cancel it with wait_for and cancel"
                )
            }
            Self::Commands { labels } => write!(
                f,
                "background commands still run ({}); end your turn to be woken when they end, or stop them",
                labels.join("; ")
            ),
            Self::SubAgents { labels } => {
                write!(f, "sub-agents still run ({}); let them end, or stop them", labels.join("; "))
            }
        }
    }
}
