//! The fleet's list: one row per process. A row is written at once when its process is new, else at most once a second,
//! and never goes back to an earlier step.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bus::Port;
use bus::kv::{self, KvError, Revision};
use contract::buckets::{Fleet as FleetBucket, FleetKey, FleetRow};
use domain::ids::ProcessId;
use domain::process::Step;
use service::clock::{Clock, Every};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Unshown;

const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Rows whose revision is remembered. All are forgotten when it is full and read again when needed.
const KNOWN_MAX: usize = 8_192;

#[derive(Clone)]
pub(crate) struct Fleet(Arc<Shared>);

struct Shared {
    port: Arc<dyn Port>,
    rows: Mutex<Rows>,
    fresh: Notify,
}

#[derive(Default)]
struct Rows {
    /// To be written; one per process, whatever happens meanwhile.
    dirty: BTreeMap<ProcessId, Dirty>,
    known: BTreeMap<ProcessId, (Revision, u64)>,
}

struct Dirty {
    name: FleetKey,
    row: FleetRow,
    _unshown: Arc<Unshown>,
}

// === impl Fleet ===

impl Fleet {
    pub(crate) fn start(port: Arc<dyn Port>, clock: Arc<dyn Clock>, stop: CancellationToken) -> Self {
        let fleet = Self(Arc::new(Shared { port, rows: Mutex::default(), fresh: Notify::new() }));
        let shared = Arc::clone(&fleet.0);
        tokio::spawn(async move {
            let mut every = Every::new(&clock, WRITE_EVERY);
            loop {
                let only_new = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = every.next() => false,
                    () = shared.fresh.notified() => true,
                };
                shared.write(only_new).await;
            }
        });
        fleet
    }

    pub(crate) fn show(&self, sequence: u64, step: &Step, unshown: Arc<Unshown>) {
        let process = step.state.process;
        let name = FleetKey { org: step.state.org, process };
        let row = FleetRow { step: sequence, changed_at: step.at, process: step.state.public() };
        let mut rows = self.0.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.dirty.insert(process, Dirty { name, row, _unshown: unshown });
        if !rows.known.contains_key(&process) {
            self.0.fresh.notify_one();
        }
    }
}

// === impl Shared ===

impl Shared {
    async fn write(&self, only_new: bool) {
        let due: Vec<_> = {
            let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
            let Rows { dirty, known } = &mut *rows;
            dirty.extract_if(.., |process, _| !only_new || !known.contains_key(process)).collect()
        };
        for (process, dirty) in due {
            if let Err(error) = self.write_row(process, &dirty.name, &dirty.row).await {
                tracing::debug!(%process, %error, "the row waits");
                let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
                rows.known.remove(&process);
                rows.dirty.entry(process).or_insert(dirty);
            }
        }
    }

    async fn write_row(&self, process: ProcessId, name: &FleetKey, row: &FleetRow) -> Result<(), KvError> {
        let known = {
            let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
            rows.known.get(&process).copied()
        };
        let (revision, shown) = match known {
            Some(known) => known,
            None => {
                let stored = kv::get::<FleetBucket>(self.port.as_ref(), name).await?;
                (stored.revision, stored.value.map_or(0, |row| row.step))
            }
        };
        if row.step <= shown {
            self.remember(process, revision, shown);
            return Ok(());
        }
        let revision = kv::put::<FleetBucket>(self.port.as_ref(), name, row, revision).await?;
        self.remember(process, revision, row.step);
        Ok(())
    }

    fn remember(&self, process: ProcessId, revision: Revision, step: u64) {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if rows.known.len() >= KNOWN_MAX {
            rows.known.clear();
        }
        rows.known.insert(process, (revision, step));
    }
}
