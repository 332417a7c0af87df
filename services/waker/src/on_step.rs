//! A step says that a process is waking, or no longer is. What is done follows from its state at the leader, not from
//! the step.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bus::kv::{KvError, Rows};
use bus::{Bus, Port, Reader, Seen, Start, Steps, Told};
use contract::Subject;
use contract::buckets::{AgentKey, Executors, Lease};
use contract::messages::assign::Assignment;
use contract::subjects::filter;
use contract::topology::{ASSIGN, PROCESS};
use domain::ids::{ExecutorId, ProcessId};
use domain::placement::{Candidate, Placement, place};
use domain::policy::LEASE_LOST_AFTER;
use domain::process::{ConversationKey, State, Step};
use futures_util::{FutureExt, StreamExt};
use service::Runtime;
use service::clock::{Clock, Every};
use service::telemetry::{continue_from, traceparent_of};
use tracing::Instrument;

use crate::assignments::{assign, present, settle_volume, volume_of, wanted, withdraw};

/// How often what is waking is looked at again, whatever the hints said.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Processes that are looked at again at one time; the others come next time, so that a storm is not slowed down by it.
const LOOKED_AT_MAX: usize = 200;

/// Steps that are read before what they say is acted on.
const STEPS_MAX: usize = 64;

/// Processes that are placed at once, where their files are settled: each waits for the broker most of its time.
const PLACED_AT_ONCE: usize = 16;

pub(crate) struct Waker {
    port: Arc<dyn Port>,
    clock: Arc<dyn Clock>,
    /// The processes that are waking or were assigned.
    concerns: BTreeMap<ProcessId, Concern>,
    /// Where looking again goes on.
    looked_at: Option<ProcessId>,
    executors: HashMap<ExecutorId, Seated>,
}

struct Concern {
    key: ConversationKey,
    assigned: Option<ExecutorId>,
    /// Its files are on one volume, so there is nothing to choose.
    settled: bool,
    /// The trace that led to the wake.
    traceparent: Option<String>,
}

/// Where a process is assigned; `None` if it asks for nothing any more.
type Placed = Result<Option<Option<ExecutorId>>, KvError>;

/// An executor's lease, and when it was last seen to change.
struct Seated {
    lease: Lease,
    changed: Duration,
}

/// Follows the log until the shutdown begins.
pub(crate) async fn follow(bus: Bus, runtime: Runtime, mut steps: Steps) {
    let check = runtime.health.check("waker");
    let stop = runtime.shutdown.draining_token();
    let clock = Arc::clone(&runtime.clock);
    let mut waker = Waker {
        port: bus.port(),
        clock: Arc::clone(&clock),
        concerns: BTreeMap::new(),
        looked_at: None,
        executors: HashMap::new(),
    };
    waker.read_assigned(&bus).await;
    let mut leases = Rows::<Executors>::open(&bus, ">");
    let mut caught_up = false;
    let mut look = Every::new(&clock, LOOK_EVERY);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = look.next() => {
                let again = waker.again();
                waker.look_at(again).await;
            }
            (key, lease) = leases.changed() => {
                if let Ok(executor) = key.parse()
                    && waker.on_lease(executor, lease.cloned())
                {
                    let unplaced = waker.unplaced();
                    waker.look_at(unplaced).await;
                }
            }
            told = steps.next() => {
                let mut told = Some(told);
                let mut changed = Vec::new();
                while let Some(next) = told {
                    match next {
                        Told::CaughtUp => {
                            caught_up = true;
                            check.ready();
                            changed.extend(waker.concerns.keys());
                        }
                        Told::Step(step) => {
                            changed.extend(waker.on_step(&step.state, step.traceparent.as_deref()));
                        }
                    }
                    told = if changed.len() < STEPS_MAX { steps.next().now_or_never() } else { None };
                }
                if caught_up {
                    waker.look_at(changed).await;
                }
            }
        }
    }
}

// === impl Waker ===

impl Waker {
    /// What stood in the queues before this instance began.
    async fn read_assigned(&mut self, bus: &Bus) {
        let mut reader = Reader::open(bus, ASSIGN, filter::all_assignments(), Start::LastOfEach);
        while let Seen::Message(stored) = reader.next().await {
            if let (Ok(Subject::Assign(executor, ..)), Ok(assignment)) =
                (stored.subject.parse(), stored.decode::<Assignment>())
            {
                let concern = Concern {
                    key: assignment.key,
                    assigned: Some(executor),
                    settled: true,
                    traceparent: None,
                };
                self.concerns.insert(assignment.process, concern);
            }
        }
    }

    /// The process, where it is waking or was.
    fn on_step(&mut self, state: &State, traceparent: Option<&str>) -> Option<ProcessId> {
        if wanted(state).is_none() {
            // Nearly every step is of a process that is not and was not waking.
            return self.concerns.contains_key(&state.process).then_some(state.process);
        }
        let concern = self.concerns.entry(state.process).or_insert(Concern {
            key: state.key(),
            assigned: None,
            settled: false,
            traceparent: None,
        });
        concern.settled = state.volume.is_some();
        concern.traceparent = traceparent.map(str::to_owned);
        Some(state.process)
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

    /// What is waking and has no executor that could take it.
    fn unplaced(&self) -> Vec<ProcessId> {
        let could = |executor: ExecutorId| {
            let seated = self.executors.get(&executor);
            seated.is_some_and(|seated| !seated.lease.draining && seated.lease.unable.is_none())
        };
        let unplaced = |(_, concern): &(&ProcessId, &Concern)| !concern.assigned.is_some_and(could);
        self.concerns.iter().filter(unplaced).map(|(process, _)| *process).collect()
    }

    /// Some of what is waking, in turn.
    fn again(&mut self) -> Vec<ProcessId> {
        let behind = self.looked_at.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.concerns.range((behind, Bound::Unbounded)).map(|(process, _)| *process);
        let next: Vec<_> = next.take(LOOKED_AT_MAX).collect();
        self.looked_at = next.last().copied().filter(|_| next.len() == LOOKED_AT_MAX);
        next
    }

    /// Brings the assignments of these processes to what their states at the leader ask for.
    async fn look_at(&mut self, mut processes: Vec<ProcessId>) {
        let mut seen = HashSet::new();
        processes.retain(|process| seen.insert(*process));
        let is_settled =
            |process: &ProcessId| self.concerns.get(process).is_some_and(|concern| concern.settled);
        let (settled, open): (Vec<_>, Vec<_>) = processes.into_iter().partition(is_settled);
        let placed: Vec<_> = futures_util::stream::iter(settled)
            .map(|process| self.place(process))
            .buffer_unordered(PLACED_AT_ONCE)
            .collect()
            .await;
        for (process, placed) in placed {
            self.note(process, placed);
        }
        // Where somebody has to choose, each choice counts for the next.
        for process in open {
            let (process, placed) = self.place(process).await;
            self.note(process, placed);
        }
    }

    async fn place(&self, process: ProcessId) -> (ProcessId, Placed) {
        let Some(concern) = self.concerns.get(&process) else { return (process, Ok(None)) };
        let span = tracing::info_span!("place", process = %process);
        if let Some(traceparent) = &concern.traceparent {
            continue_from(&span, traceparent);
        }
        (process, self.settle(process, concern.key).instrument(span).await)
    }

    fn note(&mut self, process: ProcessId, placed: Placed) {
        match placed {
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
    async fn settle(&self, process: ProcessId, key: ConversationKey) -> Placed {
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
