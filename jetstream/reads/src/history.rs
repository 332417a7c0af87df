//! The steps of a process, as the log still holds them.

use api::{HistoryStep, Problem};
use bus::{Nats, Port};
use contract::Subject;
use contract::topology::PROCESS;
use domain::ids::ProcessId;
use domain::process::{ConversationKey, Step};

use crate::{decoded, in_time};

/// Steps in one answer; the oldest come first. What is older than the log is in the record.
const STEPS_MAX: usize = 1_000;

pub async fn history(
    nats: &Nats,
    key: ConversationKey,
    process: ProcessId,
) -> Result<Vec<HistoryStep>, Problem> {
    in_time(steps(nats, key, process)).await?
}

async fn steps(nats: &Nats, key: ConversationKey, process: ProcessId) -> Result<Vec<HistoryStep>, Problem> {
    let log = Subject::Process(key, process).to_string();
    let (mut steps, mut from) = (Vec::new(), 1);
    while steps.len() < STEPS_MAX {
        let next = nats.next(PROCESS, &log, from).await.map_err(|error| Problem::unreachable(&error))?;
        let Some(stored) = next else { break };
        steps.push(HistoryStep::new(stored.sequence, &decoded::<Step>(&stored)?));
        from = stored.sequence + 1;
    }
    Ok(steps)
}
