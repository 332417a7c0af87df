//! What a segment is told, and what it says is to be done.

use uuid::Uuid;

use crate::Refusal;
use crate::ids::{QuestionId, RecordSeq, TurnNo, WaitId};
use crate::process::{
    Card, Report, SegmentEvent, Session, State, TaskKind, TurnOutcome, WaitRequest, WakeTrigger,
};

/// What goes into the harness together: inputs, and the notes of waits that are over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    pub inputs: Vec<RecordSeq>,
    pub fired: Vec<WaitId>,
}

/// A call of the agent's, as long as it waits for its answer. Numbered by the executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallNo(pub u64);

/// What a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// `finish_process`.
    Finish { summary: String },
    /// `wait_for`.
    Wait(WaitRequest),
    /// `wait_for` with `cancel`.
    CancelWait,
    /// `tell_user` with questions.
    Questions(Card),
    /// `tell_user` with `withdraw`.
    Withdraw { questions: Vec<QuestionId> },
}

/// Something happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// The newest state of the process.
    Log(Box<State>),
    /// The text of an input is at hand; its length in bytes.
    Known {
        input: RecordSeq,
        bytes: usize,
    },
    /// The record holds that the frame goes in.
    Recorded {
        frame: Uuid,
    },
    /// The harness was asked to give the frame back, and had it or not.
    Withdrawn {
        frame: Uuid,
        given_back: bool,
    },
    /// The harness accepts input.
    Ready {
        session: Session,
    },
    /// A turn runs.
    Running,
    /// The harness has echoed a frame.
    Consumed {
        frame: Uuid,
    },
    TurnEnded {
        outcome: TurnOutcome,
    },
    /// A tool of the turn runs.
    ToolStarted {
        tool: String,
    },
    ToolEnded {
        tool: String,
    },
    /// A command or sub-agent goes on beside the turn.
    TaskStarted {
        task: String,
        kind: TaskKind,
        label: String,
    },
    TaskEnded {
        task: String,
    },
    /// The harness is gone; why.
    Ended {
        what: String,
    },
    /// No harness can be started here; what a person has to do.
    Unable {
        what: String,
    },
    /// The executor's lease is not renewed.
    CutOff,
    /// Everything inside stands still, because the executor's beat was missing.
    Frozen,
    /// The executor's lease is renewed.
    Reachable,
    /// The agent called; answered by [`Effect::Answer`].
    Called {
        call: CallNo,
        ask: Ask,
    },
    /// `tell_user` was called.
    Noted {
        text: String,
    },
    /// A viewer of the conversation has shown itself.
    Watched,
    /// Another process needs the slot.
    MakeRoom,
    /// The executor takes no more work and wants to end.
    Drain,
    /// What still runs is not waited for any longer.
    DrainNow,
    /// The executor takes work again.
    DrainOver,
    /// Time has passed.
    Tick,
}

/// Something is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Report(Report),
    /// Everything for the harness is to be set up; answered by `Ready` or `Ended`.
    Start,
    /// Write down what goes in under which id; answered by `Recorded`.
    Record {
        frame: Uuid,
        contents: Contents,
    },
    /// Hand this to the harness under this id. `wake` is told with it.
    Deliver {
        frame: Uuid,
        contents: Contents,
        wake: Option<WakeTrigger>,
    },
    /// Everything inside is to stand still, and nothing is served to it.
    Freeze,
    /// It goes on.
    Thaw,
    /// Ask for a frame that is not echoed; answered by `Withdrawn`.
    Withdraw {
        frame: Uuid,
    },
    /// End the running turn; answered by `TurnEnded`.
    Interrupt,
    /// End the harness through its protocol; answered by `Ended`.
    EndSession,
    /// End everything inside at once; answered by `Ended`.
    Kill,
    TurnStarted {
        turn: TurnNo,
    },
    TurnEnded {
        turn: TurnNo,
        outcome: TurnOutcome,
    },
    /// Answer a call that waits.
    Answer {
        call: CallNo,
        answer: CallAnswer,
    },
    /// The harness is gone without having been asked to. The person is told where it is not tried again by itself.
    Crashed {
        what: String,
        tried_again: bool,
    },
    /// The segment is over; nothing is left to do.
    Leave,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallAnswer {
    Done,
    /// The process had ended before; how.
    AlreadyEnded {
        outcome: String,
    },
    /// Nothing was done; why, and the way out.
    Refused {
        why: Refusal,
    },
}

impl Ask {
    pub(super) fn event(&self) -> SegmentEvent {
        match self.clone() {
            Self::Finish { summary } => SegmentEvent::Finish { summary },
            Self::Wait(request) => SegmentEvent::Wait(request),
            Self::CancelWait => SegmentEvent::CancelWait,
            Self::Questions(card) => SegmentEvent::Asked(card),
            Self::Withdraw { questions } => SegmentEvent::Withdrawn { questions },
        }
    }
}
