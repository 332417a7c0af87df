//! A step says that a process is waking, or no longer is. What is done follows from its state at the leader, not from
//! the step.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bus::kv::{KvError, Rows};
use bus::{Nats, Port, Reader, Seen, Start};
use contract::Subject;
use contract::buckets::{AgentKey, Executors, Lease};
use contract::messages::assign::Assignment;
use contract::subjects::filter;
use contract::topology::{ASSIGN, PROCESS};
use domain::ids::{ExecutorId, ProcessId};
use domain::placement::{Candidate, Placement, place};
use domain::policy::LEASE_LOST_AFTER;
use domain::process::{ConversationKey, State, Step};
use service::Runtime;
use service::clock::Clock;
use service::telemetry::{continue_from, traceparent_of};
use tracing::Instrument;

use crate::assignments::{assign, present, settle_volume, volume_of, wanted, withdraw};

/// How often everything that is waking is looked at again, whatever the hints said.
const LOOK_EVERY: Duration = Duration::from_secs(5);

pub(crate) struct Waker {
    port: Arc<dyn Port>,
    clock: Arc<dyn Clock>,
    /// The processes that are waking or were assigned.
    concerns: HashMap<ProcessId, Concern>,
    executors: HashMap<ExecutorId, Seated>,
}

struct Concern {
    key: ConversationKey,
    assigned: Option<ExecutorId>,
    /// The trace that led to the wake.
    traceparent: Option<String>,
}

/// An executor's lease, and when it was last seen to change.
struct Seated {
    lease: Lease,
    changed: Duration,
}

/// Follows the log until the shutdown begins.
pub(crate) async fn follow(nats: Nats, runtime: Runtime) {
    let check = runtime.health.check("waker");
    let stop = runtime.shutdown.draining_token();
    let clock = Arc::clone(&runtime.clock);
    let mut waker = Waker {
        port: Arc::new(nats.clone()),
        clock: Arc::clone(&clock),
        concerns: HashMap::new(),
        executors: HashMap::new(),
    };
    waker.read_assigned(&nats).await;
    let mut leases = Rows::<Executors>::open(&nats, ">");
    let mut steps = Reader::open(&nats, PROCESS, filter::all_logs(), Start::LastOfEach);
    let mut caught_up = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            seen = steps.next() => match seen {
                Seen::CaughtUp => {
                    caught_up = true;
                    check.ready();
                    waker.look_at_all().await;
                }
                Seen::Message(stored) => match stored.decode::<Step>() {
                    Ok(step) => {
                        let traceparent = stored.envelope.traceparent.clone();
                        waker.on_step(&step.state, traceparent, caught_up).await;
                    }
                    Err(error) => tracing::error!(subject = stored.subject, %error, "a step that cannot be read"),
                },
            },
            (key, lease) = leases.changed() => {
                if let Ok(executor) = key.parse()
                    && waker.on_lease(executor, lease.cloned())
                {
                    waker.look_at_all().await;
                }
            }
            () = clock.sleep(LOOK_EVERY) => waker.look_at_all().await,
        }
    }
}

// === impl Waker ===

impl Waker {
    /// What stood in the queues before this instance began.
    async fn read_assigned(&mut self, nats: &Nats) {
        let mut reader = Reader::open(nats, ASSIGN, "assign.>", Start::LastOfEach);
        while let Seen::Message(stored) = reader.next().await {
            if let (Ok(Subject::Assign(executor, ..)), Ok(assignment)) =
                (stored.subject.parse(), stored.decode::<Assignment>())
            {
                let concern = Concern { key: assignment.key, assigned: Some(executor), traceparent: None };
                self.concerns.insert(assignment.process, concern);
            }
        }
    }

    async fn on_step(&mut self, state: &State, traceparent: Option<String>, act: bool) {
        if wanted(state).is_some() {
            let concern = self.concerns.entry(state.process);
            concern.and_modify(|concern| concern.traceparent.clone_from(&traceparent)).or_insert(Concern {
                key: state.key(),
                assigned: None,
                traceparent,
            });
        } else if !self.concerns.contains_key(&state.process) {
            // Nearly every step is of a process that is not and was not waking.
            return;
        }
        if act {
            self.look_at(state.process).await;
        }
    }

    /// Whether the change can matter to what is waking: a renewal alone does not.
    fn on_lease(&mut self, executor: ExecutorId, lease: Option<Lease>) -> bool {
        let now = self.clock.monotonic();
        let Some(lease) = lease else { return self.executors.remove(&executor).is_some() };
        let before = self.executors.insert(executor, Seated { lease: lease.clone(), changed: now });
        before.is_none_or(|before| {
            let what =
                |lease: &Lease| (lease.incarnation, lease.slots, lease.draining, lease.unable.is_some());
            what(&before.lease) != what(&lease) || before.lease.segments.len() > lease.segments.len()
        })
    }

    async fn look_at_all(&mut self) {
        let all: Vec<_> = self.concerns.keys().copied().collect();
        for process in all {
            self.look_at(process).await;
        }
    }

    /// Brings the assignment of one process to what its state at the leader asks for.
    async fn look_at(&mut self, process: ProcessId) {
        let Some(concern) = self.concerns.get(&process) else { return };
        let span = tracing::info_span!("place", process = %process);
        if let Some(traceparent) = &concern.traceparent {
            continue_from(&span, traceparent);
        }
        let looked = self.settle(process, concern.key).instrument(span).await;
        match looked {
            Ok(Some(assigned)) => {
                if let Some(concern) = self.concerns.get_mut(&process) {
                    concern.assigned = assigned;
                }
            }
            Ok(None) => drop(self.concerns.remove(&process)),
            Err(error) => tracing::warn!(%process, %error, "placing waits for the broker"),
        }
    }

    /// Where the process is assigned from now on; `None` if it asks for nothing any more.
    async fn settle(
        &self,
        process: ProcessId,
        key: ConversationKey,
    ) -> Result<Option<Option<ExecutorId>>, KvError> {
        let port = self.port.as_ref();
        let last = port.last(PROCESS, &Subject::Process(key, process).to_string()).await?;
        let state = last.and_then(|stored| stored.decode::<Step>().ok()).map(|step| step.state);
        let present = present(port, process).await?;
        let Some((state, wanted)) = state.and_then(|state| wanted(&state).map(|wanted| (state, wanted)))
        else {
            if present.is_some() {
                withdraw(port, process).await?;
            }
            return Ok(None);
        };
        let agent = AgentKey { org: state.org, agent: state.agent };
        let volume = match state.volume {
            Some(volume) => Some(volume),
            None => volume_of(port, &agent).await?,
        };
        let chosen = match place(state.org, volume, &self.candidates()) {
            Placement::On(chosen) => chosen,
            Placement::Waits(why) => {
                tracing::debug!(?why, "waits for an executor");
                return Ok(Some(present.map(|(at, _)| at)));
            }
        };
        let executor = match volume {
            Some(volume) => volume,
            None => settle_volume(port, &agent, chosen).await?,
        };
        match present {
            Some((at, assigned)) if at == executor && assigned == wanted => return Ok(Some(Some(executor))),
            Some(_) => withdraw(port, process).await?,
            None => {}
        }
        assign(port, executor, &wanted, traceparent_of(&tracing::Span::current())).await?;
        tracing::info!(%executor, epoch = wanted.epoch.0, "assigned");
        Ok(Some(Some(executor)))
    }

    /// The executors that are there, with the room they have once everything assigned is claimed.
    fn candidates(&self) -> Vec<Candidate> {
        let now = self.clock.monotonic();
        let there = |seated: &&Seated| now.saturating_sub(seated.changed) < LEASE_LOST_AFTER;
        let mut all: Vec<_> = self
            .executors
            .iter()
            .filter(|(_, seated)| there(seated))
            .map(|(id, Seated { lease, .. })| {
                let promised = self.concerns.values().filter(|concern| concern.assigned == Some(*id)).count();
                let taken = i64::try_from(lease.segments.len() + promised).unwrap_or(i64::MAX);
                Candidate {
                    id: *id,
                    free: i64::from(lease.slots) - taken,
                    draining: lease.draining,
                    unable: lease.unable.is_some(),
                    orgs: lease.orgs.clone(),
                }
            })
            .collect();
        all.sort_unstable_by_key(|candidate| candidate.id);
        all
    }
}
