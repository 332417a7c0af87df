//! Why something that was asked is declined. A refusal is expected, not a failure, and each one says what to do next.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, Epoch, ExecutorId, MessageId, QuestionId, RecordSeq, ReportNo, WaitId};
use crate::policy::{QUESTIONS_OPEN_MAX, WAIT_LEAD_MIN};
use crate::process::{Exit, OpenWork};
use crate::time::Timestamp;

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

    /// A wait that would be over before it begins.
    #[error(
        "{until} is not {} s ahead of now, which is {now}; name a later time, or go on without waiting",
        WAIT_LEAD_MIN.as_secs()
    )]
    WaitTooSoon { until: Timestamp, now: Timestamp },

    /// `wait_for` with `cancel` where nothing is booked.
    #[error("no wait is booked, so there is nothing to cancel; go on")]
    NothingBooked,

    /// Too much has happened that the agent has not read of.
    #[error("what you waited for before has happened and you have not read it; end your turn to receive it")]
    UnreadNotes,

    /// A wait on, or a withdrawal of, questions that are not open.
    #[error("no such question is open: {}; it was answered, withdrawn, or never asked", listed(questions))]
    NoSuchQuestion { questions: Vec<QuestionId> },

    /// A card more would be too many.
    #[error(
        "{open} questions are open, and {QUESTIONS_OPEN_MAX} may be; wait for answers with wait_for, or withdraw some \
         with tell_user"
    )]
    TooManyQuestions { open: usize },

    /// An answer to a card that is closed.
    #[error("the card {card} is closed already; send what you want to say as a message")]
    CardClosed { card: MessageId },

    /// An answer that does not fit its card.
    #[error("the card {card} asks {}; answer each of them once", listed(expected))]
    AnswerMismatch { card: MessageId, expected: Vec<QuestionId> },

    /// An event or a time for a wait that is no longer booked.
    #[error("{wait} is not booked; there is nothing to wake")]
    NotBooked { wait: WaitId },

    /// A nudge or an end for a process that something has happened to since.
    #[error("the process is no longer idle since then; look again later")]
    NotIdle,

    /// A timer that rang before its time.
    #[error("{wait} is due at {until}; ring again then")]
    NotYetDue { wait: WaitId, until: Timestamp },

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

fn listed(questions: &[QuestionId]) -> String {
    questions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
