//! What must hold at the end of a run, and once it is calm.

use std::collections::{BTreeMap, BTreeSet};

use contract::messages::record::{InputEntry, InputKind, StateEntry};
use contract::subjects::{Subject, filter};
use contract::topology::{ASSIGN, DEAD, RECORD, TIMERS};
use domain::ids::RecordSeq;
use domain::process::{Cause, ConversationKey, Step};
use tests::invariants::{check_all, fates};

use crate::world::World;

/// What is still under way although every process has ended.
pub(crate) fn unrest(world: &World) -> Option<String> {
    let store = world.model.store();
    let steps = store.steps();
    let left =
        |stream: &str| store.all(stream, ">").into_iter().map(|stored| stored.subject).collect::<Vec<_>>();
    let (assigned, timers) = (left(ASSIGN), left(TIMERS));
    if !assigned.is_empty() || !timers.is_empty() {
        return Some(format!("left over: {assigned:?} {timers:?}"));
    }
    let handled: BTreeSet<_> = steps.iter().filter_map(|(_, step)| seq_of(step)).collect();
    let inputs = store.all(RECORD, &filter::all_inputs());
    if let Some(open) = inputs.iter().find(|stored| !handled.contains(&RecordSeq(stored.sequence))) {
        return Some(format!("input {} of {} has no step", open.sequence, open.subject));
    }
    let mut last: BTreeMap<ConversationKey, u64> = BTreeMap::new();
    for (sequence, step) in &steps {
        last.insert(step.state.key(), *sequence);
    }
    for (key, sequence) in last {
        let shown = store.last(RECORD, &Subject::RecordState(key).to_string());
        let shown = shown.map_or(0, |stored| stored.decode::<StateEntry>().expect("a state").step);
        if shown != sequence {
            return Some(format!(
                "the record of {} shows step {shown} and the log has {sequence}",
                key.conversation
            ));
        }
    }
    None
}

/// What must hold of the whole run.
pub(crate) fn all(world: &World) -> Result<(), String> {
    let steps: Vec<_> = world.model.store().steps().into_iter().map(|(_, step)| step).collect();
    check_all(&steps, usize::MAX).map_err(|breach| format!("{breach:?}"))?;
    if let Some(dead) = world.model.store().all(DEAD, ">").first() {
        return Err(format!("a dead letter: {}", String::from_utf8_lossy(&dead.envelope.body)));
    }
    let mut conversations: BTreeMap<ConversationKey, Vec<Step>> = BTreeMap::new();
    for step in steps {
        conversations.entry(step.state.key()).or_default().push(step);
    }
    for (key, steps) in conversations {
        each_message_once(world, key, &steps)?;
    }
    Ok(())
}

/// Every message has one fate; what was consumed was read once, and nothing was read twice.
fn each_message_once(world: &World, key: ConversationKey, steps: &[Step]) -> Result<(), String> {
    let fates = fates(steps);
    let sessions = world.sessions();
    let none = Vec::new();
    let (heard, told) =
        sessions.get(&key.conversation).map_or((&none, &[][..]), |file| (&file.heard, &file.told));
    if let Some(twice) = heard.iter().enumerate().find(|(at, seq)| heard[..*at].contains(seq)) {
        return Err(format!("{} was read twice in {}: {heard:?}", twice.1, key.conversation));
    }
    if let Some(twice) = told.iter().enumerate().find(|(at, wait)| told[..*at].contains(wait)) {
        return Err(format!("the end of {} was told twice in {}", twice.1, key.conversation));
    }
    for stored in world.model.store().all(RECORD, &filter::inputs(key)) {
        let seq = RecordSeq(stored.sequence);
        let entry: InputEntry = stored.decode().expect("an input");
        if !matches!(entry.what, InputKind::Message { .. } | InputKind::Answer { .. }) {
            continue;
        }
        match fates.get(&seq).map_or(&[][..], Vec::as_slice) {
            ["consumed"] if heard.contains(&seq) => {}
            ["returned" | "duplicate" | "refused"] => {}
            other => {
                return Err(format!(
                    "{seq} of {} came to {other:?} and heard are {heard:?}",
                    key.conversation
                ));
            }
        }
    }
    Ok(())
}

const fn seq_of(step: &Step) -> Option<RecordSeq> {
    match &step.cause {
        Cause::Input { seq, .. } => Some(*seq),
        _ => None,
    }
}
