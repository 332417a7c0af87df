//! Why something that was asked is declined. A refusal is expected, not a failure, and each one says what to do next.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, Epoch, ExecutorId, RecordSeq, ReportNo};
use crate::process::{Exit, OpenWork};

/// The text of a refusal is written for whoever asked: a person, a client or the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "refusal", rename_all = "snake_case")]
pub enum Refusal {
    /// A message would start a process, but its agent is gone.
    #[error("agent {agent} was deleted; start a conversation with another agent")]
    AgentDeleted { agent: AgentId },

    /// `mode=steer` needs a live process.
    #[error("no process is live in this conversation; send the message with mode auto to start the next one")]
    NothingToSteer,

    /// A stop came to a conversation whose process has ended.
    #[error("the process is {} already; send a message to start the next one", exit.outcome)]
    AlreadyEnded { exit: Exit },

    /// A stop came to a conversation in which nothing was ever started.
    #[error("nothing was started in this conversation; send a message to start a process")]
    NothingToStop,

    /// `finish_process` while work is open. Nothing is recorded.
    #[error("the process stays open: {}", open.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    FinishHeld { open: Vec<OpenWork> },

    /// A report came after the process had ended or parked.
    #[error("the process is no longer hot in this segment; end the turn")]
    NoLongerHot,

    /// A report, a claim or a loss of an epoch that is over, or of a segment that another executor holds.
    #[error("epoch {epoch} of {executor} does not hold the conversation; stop what still runs for it")]
    Fenced { executor: ExecutorId, epoch: Epoch },

    /// The files of the conversation are on another executor's volume.
    #[error("the files are on the volume of {volume}; only it may claim the process")]
    OtherVolume { volume: ExecutorId },

    /// A report arrived before the one that precedes it.
    #[error("report {found} came before report {expected}; send that one first")]
    ReportGap { expected: ReportNo, found: ReportNo },

    /// The input stands in the log already, so there is nothing left to decide.
    #[error("input {input} is decided already; read its step in the log")]
    AlreadyHandled { input: RecordSeq },
}
