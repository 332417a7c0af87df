//! What a segment reports. Reports are numbered per epoch; each tells what has happened since the one before it, in
//! order, and at most its last event asks for something. The answer is the step, on the process's own subject.

use serde::{Deserialize, Serialize};

use super::{
    Card, Change, Fact, ParkReason, Phase, Reported, Session, State, TaskKind, TurnOutcome, WaitRequest,
    claim, consumed, crash, finish, noted, park, questions, running, turn, wait,
};
use crate::Refusal;
use crate::ids::{
    Epoch, EventSeq, ExecutorId, Incarnation, QuestionId, RecordSeq, Renewal, ReportNo, WaitId,
};
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub executor: ExecutorId,
    pub incarnation: Incarnation,
    pub epoch: Epoch,
    pub n: ReportNo,
    pub events: Vec<SegmentEvent>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SegmentEvent {
    /// Asks for the process. Always alone, in report 1.
    Claim {
        renewal: Renewal,
    },
    /// The harness accepts input.
    Ready {
        session: Session,
    },
    /// The harness has echoed a frame with these inputs and the notes of these waits.
    Consumed {
        inputs: Vec<RecordSeq>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fired: Vec<WaitId>,
    },
    TurnStarted,
    TurnEnded {
        outcome: TurnOutcome,
    },
    /// The agent told how far it is.
    Noted {
        text: String,
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
    /// Asks for a wait to be booked.
    Wait(WaitRequest),
    /// Asks for the booked wait to be dropped.
    CancelWait,
    /// Asks the person. The card stands in the record already.
    Asked(Card),
    /// Asks for open questions to be taken back.
    Withdrawn {
        questions: Vec<QuestionId>,
    },
    /// Asks for the end of the process.
    Finish {
        summary: String,
    },
    /// The harness has ended without having been asked to.
    Crashed {
        what: String,
        /// As in `Park`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        events: Option<EventSeq>,
    },
    /// Asks whether the segment still holds the process, after it stood still for so long.
    StoodStill {
        seconds: u64,
    },
    /// The harness has stopped. `unfinished`: in the middle of a turn, which is to go on.
    Park {
        reason: ParkReason,
        unfinished: bool,
        /// The last event there was; written in by whoever appends the report.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        events: Option<EventSeq>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    Done,
    Refused { why: Refusal },
}

/// `None` for a repeated report.
pub(super) fn step(last: Option<&State>, report: &Report, now: Timestamp) -> Result<Option<Change>, Refusal> {
    let fenced = Refusal::Fenced { executor: report.executor, epoch: report.epoch };
    let Some(state) = last.filter(|state| state.epoch == report.epoch) else {
        return Err(fenced);
    };
    let before = state.reported.as_ref().filter(|reported| reported.is_from(report));
    if before.is_some_and(|reported| report.n <= reported.n) {
        return Ok(None);
    }
    let expected = before.map_or(ReportNo(1), |reported| reported.n.next());
    if report.n != expected {
        return Err(Refusal::ReportGap { expected, found: report.n });
    }
    let mut change = match (&state.phase, report.events.as_slice()) {
        (Phase::Waking { .. }, [SegmentEvent::Claim { renewal }]) => {
            claim::step(state.clone(), report, *renewal, now)?
        }
        (Phase::Hot(hot), _) if hot.executor == report.executor && hot.incarnation == report.incarnation => {
            happened(state.clone(), report, now)
        }
        (Phase::Parked { .. } | Phase::Ended { .. }, _) if before.is_some() => Change {
            facts: vec![Fact::Refused { input: None, why: Refusal::NoLongerHot }],
            state: state.clone(),
        },
        _ => return Err(fenced),
    };
    let answer = change.facts.iter().find_map(declined).map_or(Answer::Done, |why| Answer::Refused { why });
    change.state.reported = Some(Reported {
        executor: report.executor,
        incarnation: report.incarnation,
        epoch: report.epoch,
        n: report.n,
        answer,
    });
    Ok(Some(change))
}

fn happened(mut state: State, report: &Report, now: Timestamp) -> Change {
    let mut facts = Vec::new();
    for (place, event) in report.events.iter().enumerate() {
        // Nothing happens in a segment after what ends it.
        if state.hot().is_none() {
            break;
        }
        match event {
            SegmentEvent::Claim { .. } => {}
            SegmentEvent::Ready { session } => facts.push(turn::ready(&mut state, session)),
            SegmentEvent::Consumed { inputs, fired } => {
                facts.extend(consumed::step(&mut state, inputs, fired));
            }
            SegmentEvent::TurnStarted => facts.extend(turn::started(&mut state)),
            SegmentEvent::TurnEnded { outcome } => facts.push(turn::ended(&mut state, *outcome)),
            SegmentEvent::Noted { text } => facts.push(noted::step(&mut state, text, now)),
            SegmentEvent::TaskStarted { task, kind, label } => {
                facts.extend(running::started(&mut state, task, *kind, label, now));
            }
            SegmentEvent::TaskEnded { task } => facts.extend(running::ended(&mut state, task)),
            SegmentEvent::Wait(request) => {
                let id = WaitId::booked_by(state.process, state.epoch, report.n, place);
                facts.extend(wait::book(&mut state, request, id, now));
            }
            SegmentEvent::CancelWait => facts.extend(wait::cancel(&mut state)),
            SegmentEvent::Asked(card) => facts.extend(questions::asked(&mut state, card)),
            SegmentEvent::Withdrawn { questions } => {
                facts.extend(questions::withdrawn(&mut state, questions));
            }
            SegmentEvent::Finish { summary } => facts.extend(finish::step(&mut state, summary, now)),
            SegmentEvent::Crashed { what, events } => {
                facts.extend(crash::step(&mut state, what, *events, now));
            }
            // That it is appended is the answer.
            SegmentEvent::StoodStill { seconds } => facts.push(Fact::StoodStill { seconds: *seconds }),
            SegmentEvent::Park { reason, unfinished, events } => {
                facts.extend(park::step(&mut state, reason, *unfinished, *events, now));
            }
        }
    }
    Change { facts, state }
}

fn declined(fact: &Fact) -> Option<Refusal> {
    match fact {
        Fact::Refused { why, .. } => Some(why.clone()),
        Fact::FinishHeld { open } => Some(Refusal::FinishHeld { open: open.clone() }),
        _ => None,
    }
}

impl Reported {
    fn is_from(&self, report: &Report) -> bool {
        (self.executor, self.incarnation, self.epoch) == (report.executor, report.incarnation, report.epoch)
    }
}
