//! A step stands in the log. It is shown in the record and in the fleet's list, and what it says of hot segments is
//! what the leases are held against. A step that is seen again does no harm.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bus::{Bus, Log, Reader, Seen, Start};
use contract::buckets::HotSegment;
use contract::subjects::filter;
use contract::topology::PROCESS;
use domain::ids::ProcessId;
use domain::process::{State, Step};
use service::Runtime;
use tokio_util::sync::CancellationToken;

use crate::leases;
use crate::projection::{Fleet, Record, Shown};

/// The segments that the log shows hot.
#[derive(Debug, Clone, Default)]
pub(crate) struct HotSegments(Arc<Mutex<BTreeMap<ProcessId, HotSegment>>>);

/// Follows the log until `stop`.
pub(crate) async fn follow(bus: &Bus, log: &Log, runtime: &Runtime, stop: CancellationToken) {
    let check = runtime.health.check("registry log");
    let hot = HotSegments::default();
    let record = Record::new(bus.port(), stop.clone());
    let fleet = Fleet::start(bus.port(), Arc::clone(&runtime.clock), stop.clone());
    let mut watch =
        tokio::spawn(leases::watch(bus.clone(), log.clone(), runtime.clone(), hot.clone(), stop.clone()));
    let shown = Shown::default();
    let (start, before) = match Shown::before(bus).await {
        Some(watermark) => (Start::At(watermark.step + 1), watermark.hot),
        None => (Start::LastOfEach, Vec::new()),
    };
    hot.begin_with(before);
    let keep = shown.clone().keep(hot.clone(), bus.port(), Arc::clone(&runtime.clock), stop.clone());
    tokio::spawn(keep);
    let mut reader = Reader::open(bus, PROCESS, filter::all_logs(), start);
    loop {
        let seen = tokio::select! {
            biased;
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
                let unshown = shown.begin(stored.sequence);
                fleet.show(stored.sequence, &step, Arc::clone(&unshown));
                record.show(stored.sequence, step, unshown).await;
            }
            Err(error) => tracing::error!(subject = stored.subject, %error, "a step that cannot be read"),
        }
    }
}

// === impl HotSegments ===

impl HotSegments {
    /// What is known from before; steps that come say what became of it.
    fn begin_with(&self, before: Vec<HotSegment>) {
        self.lock().extend(before.into_iter().map(|segment| (segment.process, segment)));
    }

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

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ProcessId, HotSegment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
