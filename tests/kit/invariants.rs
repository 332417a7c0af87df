//! What must hold of a conversation's log, whoever wrote it. One function per invariant of docs/invariants.md; the
//! property tests call them after every step, runs of real processes at their end.

use std::collections::{BTreeMap, BTreeSet};

use domain::ids::{ExecutorId, ProcessId, RecordSeq};
use domain::process::{
    CardClosed, Cause, ConversationKey, Decision, ExitReason, Fact, Input, Phase, SegmentEvent, State, Step,
    StopScope, Wait, WaitClosed, step,
};

/// A breach, with what shows it.
#[derive(Debug)]
pub struct Breach(pub &'static str, pub String);

type Check = fn(ConversationKey, &[Step]) -> Result<(), String>;

const CHECKS: [(&str, Check); 9] = [
    ("I1 one live epoch per conversation", one_live_epoch),
    ("I2 an input ends in exactly one step, in order", each_input_one_step),
    ("I3 a process ends only by finish or stop", ends_only_when_told),
    ("I4 a wait is over once and never early", waits_are_over_once),
    ("I9 a finish is held while work is open", finish_is_held),
    ("I10 only legal transitions", legal_transitions),
    ("I12 parked means that nothing waits, or that a person has to act", parked_is_quiet),
    ("I14 the log replayed equals the state", replays),
    ("I15 one live process per conversation", one_live_process),
];

/// Checks the steps of one conversation in the order of the log.
pub fn check_log(key: ConversationKey, log: &[Step]) -> Result<(), Breach> {
    for (name, check) in CHECKS {
        check(key, log).map_err(|shown| Breach(name, shown))?;
    }
    Ok(())
}

/// Checks the steps of an installation, in the order of the log: each conversation by itself, and that no executor ever
/// ran more than its slots.
pub fn check_all(log: &[Step], slots: usize) -> Result<(), Breach> {
    let mut conversations: BTreeMap<_, Vec<Step>> = BTreeMap::new();
    let mut hot: BTreeMap<ExecutorId, BTreeSet<ProcessId>> = BTreeMap::new();
    for at in log {
        let key = at.state.key();
        conversations.entry((key.org, key.conversation)).or_default().push(at.clone());
        for running in hot.values_mut() {
            running.remove(&at.state.process);
        }
        if let Some(segment) = at.state.hot() {
            let running = hot.entry(segment.executor).or_default();
            running.insert(at.state.process);
            if running.len() > slots {
                return Err(Breach("more hot than slots", format!("{running:?} on {}", segment.executor)));
            }
        }
    }
    for steps in conversations.values() {
        check_log(steps[0].state.key(), steps)?;
    }
    Ok(())
}

fn pairs(log: &[Step]) -> impl Iterator<Item = (&Step, &Step)> {
    log.iter().zip(log.iter().skip(1))
}

/// Epochs never fall, rise by one, and a claimed one is claimed once.
fn one_live_epoch(_: ConversationKey, log: &[Step]) -> Result<(), String> {
    for (before, after) in pairs(log) {
        let rise = after.state.epoch.0.checked_sub(before.state.epoch.0);
        if !matches!(rise, Some(0 | 1)) {
            return Err(format!("epoch {} after {}", after.state.epoch, before.state.epoch));
        }
    }
    let mut claimed = BTreeMap::new();
    for at in log {
        for fact in &at.facts {
            if let Fact::Claimed { executor, epoch } = fact
                && let Some(first) = claimed.insert(*epoch, *executor)
            {
                return Err(format!("epoch {epoch} was claimed by {first} and by {executor}"));
            }
        }
    }
    Ok(())
}

fn each_input_one_step(_: ConversationKey, log: &[Step]) -> Result<(), String> {
    let mut handled = RecordSeq(0);
    for at in log {
        if let Cause::Input { seq, .. } = &at.cause {
            if *seq <= handled {
                return Err(format!("input {seq} after {handled}"));
            }
            handled = *seq;
        }
        if at.state.handled != handled {
            return Err(format!("the state says {} and the log {handled}", at.state.handled));
        }
    }
    Ok(())
}

fn ends_only_when_told(_: ConversationKey, log: &[Step]) -> Result<(), String> {
    for (before, after) in pairs(log) {
        let ended = before.state.is_live() && matches!(after.state.phase, Phase::Ended { .. });
        let told = match &after.cause {
            Cause::Input { input, .. } => {
                matches!(
                    input,
                    Input::Stop { scope: StopScope::Process } | Input::Archive | Input::Fail { .. }
                )
            }
            Cause::Report(report) => {
                let finished = |event: &SegmentEvent| matches!(event, SegmentEvent::Finish { .. });
                before.state.finishing.is_some() || report.events.iter().any(finished)
            }
            Cause::SelfFinish { .. } => true,
            Cause::Lost { .. } | Cause::Happened { .. } | Cause::Due { .. } | Cause::Nudge { .. } => false,
        };
        if ended && !told {
            return Err(format!("ended by {:?}", after.cause));
        }
    }
    Ok(())
}

/// Booked once, closed once, not before its time where a timer rang, and told once.
fn waits_are_over_once(_: ConversationKey, log: &[Step]) -> Result<(), String> {
    let (mut open, mut told) = (BTreeMap::new(), BTreeMap::new());
    for (place, at) in log.iter().enumerate() {
        for fact in &at.facts {
            match fact {
                Fact::WaitBooked { wait } if open.insert(*wait, true).is_some() => {
                    return Err(format!("{wait} was booked twice"));
                }
                Fact::WaitClosed { wait, closed } => {
                    if open.insert(*wait, false) != Some(true) {
                        return Err(format!("{wait} was closed ({closed:?}) while it was not open"));
                    }
                    let before = place.checked_sub(1).and_then(|before| log[before].state.wait.as_ref());
                    let due = before.and_then(Wait::due_at);
                    if matches!(at.cause, Cause::Due { .. }) && due.is_none_or(|due| at.at < due) {
                        return Err(format!("{wait} fired at {} and was due at {due:?}", at.at));
                    }
                }
                Fact::Consumed { fired, .. } => {
                    for wait in fired {
                        if told.insert(*wait, ()).is_some() {
                            return Err(format!("{wait} was told twice"));
                        }
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// What ends by the agent's own call leaves nothing unread, unanswered or booked.
fn finish_is_held(_: ConversationKey, log: &[Step]) -> Result<(), String> {
    for at in log {
        let by_the_agent =
            |fact: &Fact| matches!(fact, Fact::Ended { exit } if exit.reason == ExitReason::FinishProcess);
        let left_open = |fact: &Fact| {
            matches!(
                fact,
                Fact::Returned { .. }
                    | Fact::WaitClosed { closed: WaitClosed::Ended, .. }
                    | Fact::CardClosed { closed: CardClosed::Expired, .. }
            )
        };
        if at.facts.iter().any(by_the_agent) && at.facts.iter().any(left_open) {
            return Err(format!("finished with {:?}", at.facts));
        }
    }
    Ok(())
}

fn legal_transitions(_: ConversationKey, log: &[Step]) -> Result<(), String> {
    for (before, after) in pairs(log) {
        let (from, to) = (phase(&before.state.phase), phase(&after.state.phase));
        let same_process = before.state.process == after.state.process;
        let legal = if same_process {
            matches!(
                (from, to),
                ("waking", "waking" | "hot" | "ended")
                    | ("hot", "hot" | "parked" | "waking" | "ended")
                    | ("parked", "parked" | "waking" | "ended")
                    | ("absent", "absent")
                    | ("ended", "ended")
            )
        } else {
            matches!((from, to), ("ended" | "absent", "waking"))
        };
        if !legal {
            return Err(format!("{from} to {to} by {:?}", after.cause));
        }
    }
    Ok(())
}

fn parked_is_quiet(_: ConversationKey, log: &[Step]) -> Result<(), String> {
    for at in log {
        if let Phase::Parked { reason, .. } = &at.state.phase
            && !reason.bars()
            && at.state.has_unread()
        {
            let State { undelivered, fired, .. } = &at.state;
            return Err(format!("parked ({reason:?}) with {undelivered:?} and {fired:?} unread"));
        }
    }
    Ok(())
}

fn replays(key: ConversationKey, log: &[Step]) -> Result<(), String> {
    let mut state = None;
    for at in log {
        match step(key, state.as_ref(), at.cause.clone(), at.at) {
            Ok(Decision::Append(again)) if *again == *at => state = Some(at.state.clone()),
            other => return Err(format!("{:?} replays as {other:?}", at.cause)),
        }
    }
    Ok(())
}

fn one_live_process(_: ConversationKey, log: &[Step]) -> Result<(), String> {
    let mut live: BTreeMap<ProcessId, bool> = BTreeMap::new();
    for at in log {
        live.insert(at.state.process, at.state.is_live());
        let count = live.values().filter(|live| **live).count();
        if count > 1 {
            return Err(format!("{count} live processes: {live:?}"));
        }
    }
    Ok(())
}

fn phase(phase: &Phase) -> &'static str {
    match phase {
        Phase::Absent => "absent",
        Phase::Waking { .. } => "waking",
        Phase::Hot(_) => "hot",
        Phase::Parked { .. } => "parked",
        Phase::Ended { .. } => "ended",
    }
}

/// What became of the inputs of a log: each ends in exactly one of these.
pub fn fates(log: &[Step]) -> BTreeMap<RecordSeq, Vec<&'static str>> {
    let mut fates: BTreeMap<RecordSeq, Vec<&'static str>> = BTreeMap::new();
    for at in log {
        for fact in &at.facts {
            let (inputs, fate): (Vec<RecordSeq>, _) = match fact {
                Fact::Consumed { inputs, .. } => (inputs.clone(), "consumed"),
                Fact::Returned { inputs } => (inputs.clone(), "returned"),
                Fact::Duplicate { input, .. } => (vec![*input], "duplicate"),
                Fact::Dead { input, .. } => (vec![*input], "dead"),
                Fact::Refused { input: Some(input), .. } => (vec![*input], "refused"),
                _ => continue,
            };
            for input in inputs {
                fates.entry(input).or_default().push(fate);
            }
        }
    }
    fates
}
