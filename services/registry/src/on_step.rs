//! A step stands in the log. It is shown in the record and in the fleet's list, and what it says of hot segments is
//! what the leases are held against. A step that is seen again does no harm.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bus::{Log, Nats, Reader, Seen, Start};
use contract::subjects::filter;
use contract::topology::PROCESS;
use domain::ids::{Epoch, ExecutorId, Incarnation, ProcessId, Renewal};
use domain::process::{ConversationKey, State, Step};
use service::Runtime;
use tokio_util::sync::CancellationToken;

use crate::leases;
use crate::projection::{Fleet, Record, Shown};

/// The segments that the log shows hot.
#[derive(Debug, Clone, Default)]
pub(crate) struct HotSegments(Arc<Mutex<HashMap<ProcessId, HotSegment>>>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct HotSegment {
    pub(crate) key: ConversationKey,
    pub(crate) process: ProcessId,
    pub(crate) epoch: Epoch,
    pub(crate) executor: ExecutorId,
    pub(crate) incarnation: Incarnation,
    pub(crate) renewal: Renewal,
}

/// Follows the log until `stop`.
pub(crate) async fn follow(nats: &Nats, log: &Log, runtime: &Runtime, stop: CancellationToken) {
    let check = runtime.health.check("registry log");
    let hot = HotSegments::default();
    let record = Record::new(Arc::new(nats.clone()), stop.clone());
    let fleet = Fleet::start(Arc::new(nats.clone()), Arc::clone(&runtime.clock), stop.clone());
    let mut watch =
        tokio::spawn(leases::watch(nats.clone(), log.clone(), runtime.clone(), hot.clone(), stop.clone()));
    let shown_before = Shown::before(nats).await;
    let shown = Shown::default();
    tokio::spawn(shown.clone().keep(Arc::new(nats.clone()), Arc::clone(&runtime.clock), stop.clone()));
    let mut reader = Reader::open(nats, PROCESS, filter::all_logs(), Start::LastOfEach);
    loop {
        let seen = tokio::select! {
            () = stop.cancelled() => break,
            ended = &mut watch => {
                tracing::error!(?ended, "the watch over the leases ended");
                break;
            }
            seen = reader.next() => seen,
        };
        let stored = match seen {
            Seen::CaughtUp => {
                check.ready();
                continue;
            }
            Seen::Message(stored) => stored,
        };
        match stored.decode::<Step>() {
            Ok(step) => {
                hot.follow(&step.state);
                if stored.sequence > shown_before {
                    let unshown = shown.begin(stored.sequence);
                    fleet.show(stored.sequence, &step, Arc::clone(&unshown));
                    record.show(stored.sequence, step, unshown).await;
                }
            }
            Err(error) => tracing::error!(subject = stored.subject, %error, "a step that cannot be read"),
        }
    }
}

// === impl HotSegments ===

impl HotSegments {
    fn follow(&self, state: &State) {
        let mut all = self.lock();
        match state.hot() {
            Some(hot) => {
                let segment = HotSegment {
                    key: state.key(),
                    process: state.process,
                    epoch: state.epoch,
                    executor: hot.executor,
                    incarnation: hot.incarnation,
                    renewal: hot.renewal,
                };
                all.insert(state.process, segment);
            }
            None => drop(all.remove(&state.process)),
        }
    }

    pub(crate) fn all(&self) -> Vec<HotSegment> {
        self.lock().values().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ProcessId, HotSegment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
