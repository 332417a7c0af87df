//! What all of one run share: the modelled broker, the sessions, and what must never be seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bus::{Bus, LogReading};
use contract::topology::Fleet;
use domain::Timestamp;
use domain::ids::{ConversationId, Epoch};
use domain::policy;
use domain::process::ConversationKey;
use rand::Rng;
use rand::rngs::StdRng;
use scheduler::SchedulerConfig;
use service::Runtime;
use service::clock::Clock;
use service::health::Health;
use service::metrics::Metrics;
use service::shutdown::Shutdown;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::clock::SimClock;
use crate::harness::SessionFile;
use crate::plan::Role;
use crate::wire::{Line, Model};

pub(crate) struct World {
    pub(crate) model: Arc<Model>,
    clock: Arc<dyn Clock>,
    sessions: Mutex<BTreeMap<ConversationId, SessionFile>>,
    /// Under which epoch a harness of the conversation last did something.
    acted: Mutex<BTreeMap<ConversationId, Epoch>>,
    breaches: Mutex<Vec<String>>,
    crashes: Mutex<BTreeSet<ConversationId>>,
    crashed: Notify,
    calm: AtomicBool,
}

/// A role that runs.
pub(crate) struct Running {
    pub(crate) line: Line,
    task: JoinHandle<()>,
}

impl World {
    pub(crate) fn start(fleet: &Fleet, seed: u64) -> Arc<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SimClock::start());
        Arc::new(Self {
            model: Model::start(fleet, Arc::clone(&clock), seed),
            clock,
            sessions: Mutex::default(),
            acted: Mutex::default(),
            breaches: Mutex::default(),
            crashes: Mutex::default(),
            crashed: Notify::new(),
            calm: AtomicBool::new(false),
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    pub(crate) fn rng(&self) -> MutexGuard<'_, StdRng> {
        self.model.rng()
    }

    pub(crate) fn chance(&self, probability: f64) -> bool {
        self.rng().random_bool(probability)
    }

    pub(crate) fn sessions(&self) -> MutexGuard<'_, BTreeMap<ConversationId, SessionFile>> {
        lock(&self.sessions)
    }

    /// Nothing goes wrong any more, and agents bring their work to an end.
    pub(crate) fn calms(&self) {
        self.calm.store(true, Ordering::Relaxed);
        self.model.is_unkind(false);
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// A harness does something. Never two of one conversation: from when a later one has, an earlier one may not.
    pub(crate) fn acts(&self, key: ConversationKey, epoch: Epoch) {
        let last = lock(&self.acted).insert(key.conversation, epoch);
        if let Some(last) = last.filter(|last| last.0 > epoch.0) {
            self.breach(format!(
                "a harness of epoch {epoch} works on {} after one of {last}",
                key.conversation
            ));
        }
    }

    pub(crate) fn breach(&self, what: String) {
        lock(&self.breaches).push(what);
    }

    pub(crate) fn first_breach(&self) -> Option<String> {
        lock(&self.breaches).first().cloned()
    }

    /// The harness of the conversation crashes, now or once it runs.
    pub(crate) fn crash(&self, conversation: ConversationId) {
        lock(&self.crashes).insert(conversation);
        self.crashed.notify_waiters();
    }

    pub(crate) async fn crash_of(&self, key: ConversationKey) -> String {
        loop {
            let crashed = self.crashed.notified();
            if lock(&self.crashes).remove(&key.conversation) {
                return "it ended with signal 9".into();
            }
            crashed.await;
        }
    }

    /// Starts a role: the real one, on the modelled broker.
    pub(crate) fn run(&self, role: Role) -> Running {
        static METRICS: OnceLock<Metrics> = OnceLock::new();
        let line = self.model.connect();
        let bus = Bus::new(line.clone());
        let clock = Arc::clone(&self.clock);
        let shutdown = Shutdown::new(Duration::from_secs(5), Arc::clone(&clock));
        let health = Health::new(shutdown.clone());
        let runtime =
            Runtime { clock, health, metrics: METRICS.get_or_init(Metrics::install).clone(), shutdown };
        let mut log = LogReading::default();
        let task = match role {
            Role::Steerer => tokio::spawn(steerer::run(bus, runtime)),
            Role::Registry => tokio::spawn(registry::run(bus, runtime)),
            Role::Waker => {
                let steps = [log.follower(), log.follower()];
                log.start(&bus);
                tokio::spawn(waker::run(bus, runtime, steps))
            }
            Role::Scheduler => {
                let steps = [log.follower(), log.follower()];
                log.start(&bus);
                let config = SchedulerConfig {
                    nudge_after: policy::NUDGE_AFTER,
                    self_finish_after: policy::SELF_FINISH_AFTER,
                    last_wake: policy::LAST_WAKE,
                };
                tokio::spawn(scheduler::run(bus, runtime, config, steps))
            }
        };
        Running { line, task }
    }
}

impl Running {
    pub(crate) fn dies(self) {
        self.line.dies();
        self.task.abort();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
