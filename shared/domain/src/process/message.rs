//! A message: it goes into the live process, or starts the next one of the chain.

use super::{Arrived, Change, Fact, Mode, Phase, Stage, StartWith, State, WakeClass, WakeTrigger};
use crate::Refusal;

pub(super) fn step(arrived: &Arrived<'_>, mode: Mode, start: Option<&StartWith>) -> Change {
    match (arrived.last, start) {
        (Some(state), _) if state.is_live() => {
            let mut change = steer(arrived, state.clone(), mode);
            // With one question open, what is typed is its answer.
            if let Some(card) = state.answered_by_text() {
                change.facts.extend(change.state.close_card(card));
            }
            change
        }
        _ if mode == Mode::Steer => arrived.refused(Refusal::NothingToSteer),
        (_, None) => arrived.refused(Refusal::AgentDeleted { agent: arrived.agent }),
        (_, Some(start)) => begin(arrived, start),
    }
}

fn begin(arrived: &Arrived<'_>, start: &StartWith) -> Change {
    let mut state = arrived.next_process(start.harness, Phase::Absent);
    state.ordinal += 1;
    state.undelivered = vec![arrived.seq];
    state.looks_back_to(start.events);
    let waking = state.wake(WakeTrigger::Start, WakeClass::Input, arrived.now);
    let facts = vec![Fact::Started { ordinal: state.ordinal }, Fact::Routed { input: arrived.seq }, waking];
    Change { facts, state }
}

/// Whatever the process does, the message is held on its subject until a segment delivers it.
pub(super) fn steer(arrived: &Arrived<'_>, mut state: State, mode: Mode) -> Change {
    let mut facts = vec![Fact::Routed { input: arrived.seq }];
    // Somebody needs it after all.
    state.finishing = None;
    state.crashes.in_a_row = 0;
    state.undelivered.push(arrived.seq);
    match &mut state.phase {
        Phase::Hot(hot) => match (mode, hot.stage) {
            (Mode::Queue, Stage::Starting | Stage::Working) => state.held.push(arrived.seq),
            (Mode::Interrupt, Stage::Working) => {
                hot.interrupt = Some(arrived.seq);
                facts.push(Fact::Interrupting { input: arrived.seq });
            }
            _ => {}
        },
        // A person does not wait behind events and resumed segments.
        Phase::Waking { class, .. } => *class = WakeClass::Input,
        Phase::Parked { .. } => facts.push(state.wake(WakeTrigger::Message, WakeClass::Input, arrived.now)),
        Phase::Absent | Phase::Ended { .. } => {}
    }
    Change { facts, state }
}
