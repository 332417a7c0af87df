//! What must hold of a conversation's log, whoever wrote it. One function per invariant of docs/invariants.md; the
//! property tests call them after every step, runs of real processes at their end.

use std::collections::BTreeMap;

use domain::ids::{ProcessId, RecordSeq};
use domain::process::{
    Cause, ConversationKey, Decision, Fact, Input, ParkReason, Phase, SegmentEvent, State, Step, StopScope,
    step,
};

/// A breach, with what shows it.
#[derive(Debug)]
pub struct Breach(pub &'static str, pub String);

type Check = fn(ConversationKey, &[Step]) -> Result<(), String>;

const CHECKS: [(&str, Check); 7] = [
    ("I1 one live epoch per conversation", one_live_epoch),
    ("I2 an input ends in exactly one step, in order", each_input_one_step),
    ("I3 a process ends only by finish or stop", ends_only_when_told),
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
                report.events.iter().any(|event| matches!(event, SegmentEvent::Finish { .. }))
            }
            Cause::Lost { .. } | Cause::Happened { .. } | Cause::Due { .. } => false,
        };
        if ended && !told {
            return Err(format!("ended by {:?}", after.cause));
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
            && !matches!(reason, ParkReason::NeedsAttention { .. })
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
