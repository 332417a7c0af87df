//! `ASSIGN`, the queue of every executor: at most one message per process, executor and class. An executor's ack does
//! not free the subject, a purge does, and the waker purges.

use bus::kv::{self, KvError, Revision};
use bus::{BusError, Outgoing, Port};
use contract::Subject;
use contract::buckets::{AgentKey, Volumes};
use contract::messages::assign::Assignment;
use contract::subjects::filter;
use contract::topology::ASSIGN;
use domain::ids::{ExecutorId, ProcessId};
use domain::process::State;

/// What the process asks for while it is waking; `None` otherwise.
pub(crate) fn wanted(state: &State) -> Option<Assignment> {
    match state.phase {
        domain::process::Phase::Waking { class, .. } => {
            Some(Assignment { key: state.key(), process: state.process, epoch: state.epoch, class })
        }
        _ => None,
    }
}

/// Where the process is assigned now, and what the assignment says.
pub(crate) async fn present(
    port: &dyn Port,
    process: ProcessId,
) -> Result<Option<(ExecutorId, Assignment)>, BusError> {
    let Some(stored) = port.last(ASSIGN, &filter::assignments_of(process)).await? else { return Ok(None) };
    match (stored.subject.parse(), stored.decode::<Assignment>()) {
        (Ok(Subject::Assign(executor, _, _)), Ok(assignment)) => Ok(Some((executor, assignment))),
        // What cannot be read assigns nothing; it is purged before the next one.
        _ => Ok(None),
    }
}

/// Assigns a process that is assigned nowhere.
pub(crate) async fn assign(
    port: &dyn Port,
    executor: ExecutorId,
    wanted: &Assignment,
    traceparent: Option<String>,
) -> Result<(), BusError> {
    let subject = Subject::Assign(executor, wanted.class, wanted.process);
    let message = Outgoing::message(&subject, wanted).traced(traceparent);
    match port.publish(message).await {
        // Another waker was first; whether it said the same is seen at the next look.
        Ok(_) | Err(BusError::Occupied) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes back every assignment of the process.
pub(crate) async fn withdraw(port: &dyn Port, process: ProcessId) -> Result<(), BusError> {
    port.purge(ASSIGN, &filter::assignments_of(process), 0).await
}

/// The executor whose volume holds the agent's files.
pub(crate) async fn volume_of(port: &dyn Port, agent: &AgentKey) -> Result<Option<ExecutorId>, KvError> {
    Ok(kv::get::<Volumes>(port, agent).await?.value)
}

/// Settles where the agent's files will be; who was first with it decides.
pub(crate) async fn settle_volume(
    port: &dyn Port,
    agent: &AgentKey,
    chosen: ExecutorId,
) -> Result<ExecutorId, KvError> {
    match kv::put::<Volumes>(port, agent, &chosen, Revision(0)).await {
        Ok(_) => Ok(chosen),
        Err(BusError::Conflict) => Ok(volume_of(port, agent).await?.unwrap_or(chosen)),
        Err(error) => Err(error.into()),
    }
}
