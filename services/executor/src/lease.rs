//! The executor's lease: what it says of itself every few seconds, so that others know that it lives and what it runs.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bus::Nats;
use bus::kv;
use contract::buckets::{Executors, HeldSegment, Lease as Row};
use domain::ids::{Epoch, ExecutorId, Incarnation, OrgId, ProcessId, Renewal};
use domain::policy::{EXECUTOR_FREEZES_AFTER, LEASE_RENEW_EVERY};
use service::clock::Clock;
use service::health::Check;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// A row of an executor that is gone is forgotten after this long; until then it counts as one that does not change.
const ROW_KEPT_SECONDS: u64 = 120;

/// A change is told at once, but not more often than this.
const CHANGE_TOLD_AFTER: Duration = Duration::from_millis(100);

/// How often it is looked at whether the lease is still renewed.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(250);

/// Held by everything that starts or ends a segment.
#[derive(Debug)]
pub(crate) struct Lease {
    id: ExecutorId,
    incarnation: Incarnation,
    slots: u16,
    orgs: Vec<OrgId>,
    segments: Mutex<BTreeSet<(ProcessId, Epoch)>>,
    renewal: AtomicU64,
    draining: AtomicBool,
    /// When the last renewal that was acknowledged was sent, in milliseconds of the monotonic clock.
    sent: AtomicU64,
    /// Whether that is short enough ago for this executor to act.
    held: watch::Sender<bool>,
    unable: watch::Receiver<Option<String>>,
    changed: Notify,
}

// === impl Lease ===

impl Lease {
    pub(crate) fn new(
        id: ExecutorId,
        incarnation: Incarnation,
        slots: u16,
        orgs: Vec<OrgId>,
        unable: watch::Receiver<Option<String>>,
    ) -> Self {
        Self {
            id,
            incarnation,
            slots,
            orgs,
            segments: Mutex::default(),
            renewal: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            held: watch::Sender::new(false),
            unable,
            changed: Notify::new(),
        }
    }

    /// Lists a segment from before its claim until nothing of it is left.
    pub(crate) fn hold(self: &Arc<Self>, process: ProcessId, epoch: Epoch) -> Held {
        self.segments().insert((process, epoch));
        self.changed.notify_one();
        Held { lease: Arc::clone(self), segment: (process, epoch) }
    }

    /// The last renewal that was acknowledged.
    pub(crate) fn renewal(&self) -> Renewal {
        Renewal(self.renewal.load(Ordering::Acquire))
    }

    /// Whether the executor drains.
    pub(crate) fn drains(&self, draining: bool) {
        self.draining.store(draining, Ordering::Release);
        self.changed.notify_one();
    }

    /// Whether this executor may act. While it may not, it starts nothing, and what runs stands still.
    pub(crate) fn held(&self) -> watch::Receiver<bool> {
        self.held.subscribe()
    }

    /// Renews until `stop`, and lets go by itself when no renewal is acknowledged.
    pub(crate) async fn keep(
        self: Arc<Self>,
        nats: Nats,
        clock: Arc<dyn Clock>,
        check: Check,
        stop: CancellationToken,
    ) {
        tokio::select! {
            () = self.let_go(clock.as_ref()) => {}
            () = self.renew(&nats, clock.as_ref(), &check, &stop) => {}
        }
    }

    /// Beside the renewals, since one of them may hang.
    async fn let_go(&self, clock: &dyn Clock) {
        loop {
            clock.sleep(LOOKED_AT_EVERY).await;
            let sent = Duration::from_millis(self.sent.load(Ordering::Acquire));
            if clock.monotonic().saturating_sub(sent) >= EXECUTOR_FREEZES_AFTER
                && self.held.send_replace(false)
            {
                tracing::warn!("no renewal of the lease is acknowledged; what runs here stands still");
            }
        }
    }

    async fn renew(&self, nats: &Nats, clock: &dyn Clock, check: &Check, stop: &CancellationToken) {
        let mut unable = self.unable.clone();
        loop {
            self.count();
            let renewal = Renewal(self.renewal.load(Ordering::Acquire) + 1);
            let sent = clock.monotonic();
            match kv::lease::<Executors>(nats, &self.id, &self.row(renewal), ROW_KEPT_SECONDS).await {
                Ok(_) => {
                    self.renewal.store(renewal.0, Ordering::Release);
                    self.sent.store(u64::try_from(sent.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
                    if clock.monotonic().saturating_sub(sent) < EXECUTOR_FREEZES_AFTER
                        && !self.held.send_replace(true)
                    {
                        tracing::info!("the lease is held");
                    }
                    check.ready();
                }
                Err(error) => {
                    check.failed(format!("the lease was not renewed: {error}; is the broker reachable?"));
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.changed.notified() => clock.sleep(CHANGE_TOLD_AFTER).await,
                _ = unable.changed() => {}
                () = clock.sleep(LEASE_RENEW_EVERY) => {}
            }
        }
    }

    fn count(&self) {
        metrics::gauge!("resident_segments_hot")
            .set(u32::try_from(self.segments().len()).unwrap_or(u32::MAX));
        metrics::gauge!("resident_slots").set(self.slots);
    }

    fn row(&self, renewal: Renewal) -> Row {
        let held = |(process, epoch): &(ProcessId, Epoch)| HeldSegment { process: *process, epoch: *epoch };
        let segments = self.segments().iter().map(held).collect();
        Row {
            incarnation: self.incarnation,
            renewal,
            segments,
            slots: self.slots,
            orgs: self.orgs.clone(),
            draining: self.draining.load(Ordering::Acquire),
            unable: self.unable.borrow().clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn segments(&self) -> MutexGuard<'_, BTreeSet<(ProcessId, Epoch)>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A segment's place in the lease. Dropping it takes the segment off.
#[derive(Debug)]
pub(crate) struct Held {
    lease: Arc<Lease>,
    segment: (ProcessId, Epoch),
}

impl Drop for Held {
    fn drop(&mut self) {
        self.lease.segments().remove(&self.segment);
        self.lease.changed.notify_one();
    }
}
