//! What changes a process, and the facts that follow.

use serde::{Deserialize, Serialize};

use super::{
    CardClosed, EventDigest, Exit, Harness, OpenWork, ParkReason, Report, Session, WaitClosed, WakeTrigger,
};
use crate::Refusal;
use crate::ids::{
    AgentId, Epoch, EventSeq, ExecutorId, MessageId, QuestionId, RecordSeq, TurnNo, UserId, WaitId,
};
use crate::time::Timestamp;

/// What changes a process. Inputs carry their number in the record, reports the number their segment gave them; the
/// rest is guarded by the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum Cause {
    /// What somebody said to the conversation.
    Input {
        seq: RecordSeq,
        from: UserId,
        agent: AgentId,
        #[serde(flatten)]
        input: Input,
    },
    Report(Report),
    /// The registry has found that no executor runs the segment any more.
    Lost {
        executor: ExecutorId,
        epoch: Epoch,
        why: LossReason,
    },
    /// What the process waits for has happened.
    Happened {
        wait: WaitId,
        event: Box<EventDigest>,
    },
    /// Nobody has needed the process for long; the person is asked.
    Nudge {
        /// Since when it is idle.
        since: Timestamp,
    },
    /// Nobody has needed it for longer; it finishes.
    SelfFinish {
        /// Since when it is idle, or is to finish.
        since: Timestamp,
    },
    /// A timer of the wait has rung.
    Due {
        wait: WaitId,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub enum Input {
    Message {
        mode: Mode,
        /// What a process of the agent starts with; absent when the agent is gone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start: Option<StartWith>,
    },
    /// Every question of a card is answered.
    Answer {
        card: MessageId,
        questions: Vec<QuestionId>,
    },
    Stop {
        scope: StopScope,
    },
    Archive,
    /// An operator tries again what needed attention.
    Retry,
    /// An operator gives the process up.
    Fail {
        why: String,
    },
    /// The same delivery stands in the record already.
    Duplicate {
        of: RecordSeq,
    },
    /// No handler could take the entry.
    Dead {
        error: String,
    },
}

/// The agent's settings that a process keeps for its life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartWith {
    pub harness: Harness,
    /// The last event there was, so that what comes from here on is found by a wait that is booked later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventSeq>,
}

/// How a message meets a running turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Into the live process, else it starts one.
    #[default]
    Auto,
    /// Into the live process, else it is refused.
    Steer,
    /// As `auto`, but not before the running turn has ended.
    Queue,
    /// As `auto`, and the running turn ends first.
    Interrupt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopScope {
    /// The running turn; the process stays in progress.
    #[default]
    Turn,
    /// The process: it ends as Stopped.
    Process,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossReason {
    /// The lease has not changed for [`crate::policy::LEASE_LOST_AFTER`].
    LeaseExpired,
    /// The executor runs as another incarnation.
    Restarted,
    /// The executor lives and does not list the segment.
    NotListed,
}

/// What follows from a cause. Readers of the log act on these; [`State`] says where that leaves the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    Started {
        ordinal: u32,
    },
    /// The input waits for the harness of this process.
    Routed {
        input: RecordSeq,
    },
    /// The running turn is to end.
    Interrupting {
        input: RecordSeq,
    },
    Waking {
        trigger: WakeTrigger,
        epoch: Epoch,
    },
    Claimed {
        executor: ExecutorId,
        epoch: Epoch,
    },
    Ready {
        session: Session,
    },
    /// The harness has taken these inputs, and the notes of these waits.
    Consumed {
        inputs: Vec<RecordSeq>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fired: Vec<WaitId>,
    },
    TurnStarted {
        turn: TurnNo,
    },
    TurnEnded {
        turn: TurnNo,
        outcome: TurnOutcome,
    },
    Noted,
    WaitBooked {
        wait: WaitId,
    },
    WaitClosed {
        wait: WaitId,
        closed: WaitClosed,
    },
    Asked {
        card: MessageId,
    },
    /// The agent took these questions back.
    Withdrawn {
        questions: Vec<QuestionId>,
    },
    CardClosed {
        card: MessageId,
        closed: CardClosed,
    },
    /// A command or sub-agent goes on beside the turn.
    TaskStarted {
        task: String,
    },
    TaskEnded {
        task: String,
    },
    /// It ran when its segment ended.
    TaskKilled {
        task: String,
        label: String,
    },
    /// The person is asked whether the process is still needed.
    Nudged,
    FinishHeld {
        open: Vec<OpenWork>,
    },
    /// The harness ended without having been asked to.
    Crashed {
        what: String,
    },
    /// The segment stood still while its executor could not reach the broker, or was itself stopped.
    StoodStill {
        seconds: u64,
    },
    Parked {
        reason: ParkReason,
    },
    Lost {
        executor: ExecutorId,
        epoch: Epoch,
        why: LossReason,
    },
    Ended {
        exit: Exit,
    },
    /// These inputs were not read before the process ended.
    Returned {
        inputs: Vec<RecordSeq>,
    },
    /// A numbered cause was declined.
    Refused {
        /// The input that was declined; absent where it was a report.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<RecordSeq>,
        why: Refusal,
    },
    Duplicate {
        input: RecordSeq,
        of: RecordSeq,
    },
    Dead {
        input: RecordSeq,
        error: String,
    },
    /// A stop that found nothing to stop any more.
    NothingRan {
        input: RecordSeq,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnOutcome {
    Completed,
    Interrupted,
    Failed,
}
