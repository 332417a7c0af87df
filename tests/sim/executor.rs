//! The modelled executor: a lease that it renews, queues that it takes from, and segments. A life of it ends when it is
//! killed, and everything of it with it.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bus::kv;
use bus::{Bus, Queue, Taken};
use contract::buckets::{Executors, HeldSegment, Lease};
use contract::messages::assign::Assignment;
use contract::topology::{ASSIGN, WAKE_CLASSES, assignments_durable};
use domain::ids::{Epoch, ExecutorId, Incarnation, ProcessId, Renewal};
use domain::policy::{EXECUTOR_FREEZES_AFTER, LEASE_RENEW_EVERY};
use futures_util::FutureExt;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::harness::Order;
use crate::segment;
use crate::told::Told;
use crate::wire::Line;
use crate::world::World;

/// How many segments one executor runs at once: few, so that the queue matters.
const SLOTS: usize = 2;

const ROW_KEPT_SECONDS: u64 = 120;
const CHANGE_TOLD_AFTER: Duration = Duration::from_millis(100);
const LOOKED_AT_EVERY: Duration = Duration::from_millis(250);

/// One life of an executor.
pub(crate) struct Life {
    pub(crate) id: ExecutorId,
    pub(crate) incarnation: Incarnation,
    pub(crate) world: Arc<World>,
    pub(crate) bus: Bus,
    pub(crate) line: Line,
    /// The life is over, and what runs inside with it.
    pub(crate) ends: CancellationToken,
    segments: Mutex<BTreeSet<(ProcessId, Epoch)>>,
    changed: tokio::sync::Notify,
    renewal: AtomicU64,
    pub(crate) held: Told<bool>,
    /// Whether the program runs, or stands still.
    runs: Told<bool>,
    /// How often it stood still.
    pub(crate) stood_still: Told<u64>,
    /// What the shim of each sandbox is reached by.
    shims: Mutex<Vec<mpsc::UnboundedSender<Order>>>,
}

/// A segment's place in the lease.
pub(crate) struct Held {
    life: Arc<Life>,
    segment: (ProcessId, Epoch),
}

impl Life {
    pub(crate) fn start(world: &Arc<World>, id: ExecutorId, number: u128) -> Arc<Self> {
        let line = world.model.connect();
        let life = Arc::new(Self {
            id,
            incarnation: Incarnation(Uuid::from_u128((u128::from(id.0) + 1) << 64 | number)),
            world: Arc::clone(world),
            bus: Bus::new(line.clone()),
            line,
            ends: CancellationToken::new(),
            segments: Mutex::default(),
            changed: tokio::sync::Notify::new(),
            renewal: AtomicU64::new(0),
            held: Told::new(false),
            runs: Told::new(true),
            stood_still: Told::new(0),
            shims: Mutex::default(),
        });
        for task in [Arc::clone(&life).renew().boxed(), Arc::clone(&life).claim().boxed()] {
            let ends = life.ends.clone();
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = ends.cancelled() => {}
                    () = task => {}
                }
            });
        }
        life
    }

    /// Killed: nothing of it goes on.
    pub(crate) fn dies(&self) {
        self.line.dies();
        self.ends.cancel();
    }

    /// The program stands still for a while. Its beat is missing, so the shims freeze what runs.
    pub(crate) async fn stands_still(self: &Arc<Self>, lasting: Duration) {
        self.runs.set(false);
        self.line.is_cut(true);
        let beat = Duration::from_secs(5).min(lasting);
        tokio::time::sleep(beat).await;
        for shim in self.shims.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = shim.send(Order::Freeze);
        }
        tokio::time::sleep(lasting.saturating_sub(beat)).await;
        self.line.is_cut(false);
        self.stood_still.set(self.stood_still.get() + 1);
        self.runs.set(true);
    }

    pub(crate) async fn goes_on(&self) {
        self.runs.wait_for(|runs| runs).await;
    }

    pub(crate) fn owns(&self, shim: mpsc::UnboundedSender<Order>) {
        let mut shims = self.shims.lock().unwrap_or_else(PoisonError::into_inner);
        shims.retain(|shim| !shim.is_closed());
        shims.push(shim);
    }

    pub(crate) fn renewal(&self) -> Renewal {
        Renewal(self.renewal.load(Ordering::Relaxed))
    }

    pub(crate) fn hold(self: &Arc<Self>, process: ProcessId, epoch: Epoch) -> Held {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner).insert((process, epoch));
        self.changed.notify_one();
        Held { life: Arc::clone(self), segment: (process, epoch) }
    }

    async fn renew(self: Arc<Self>) {
        let mut sent = self.world.monotonic();
        loop {
            self.goes_on().await;
            let renewal = Renewal(self.renewal.load(Ordering::Relaxed) + 1);
            let segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let held = |(process, epoch)| HeldSegment { process, epoch };
            let row = Lease {
                incarnation: self.incarnation,
                renewal,
                segments: segments.into_iter().map(held).collect(),
                slots: u16::try_from(SLOTS).unwrap_or(1),
                orgs: Vec::new(),
                draining: false,
                unable: None,
                version: String::new(),
            };
            let began = self.world.monotonic();
            let port = self.bus.port();
            let renewed = kv::lease::<Executors>(port.as_ref(), &self.id, &row, ROW_KEPT_SECONDS);
            tokio::pin!(renewed);
            let renewed = loop {
                tokio::select! {
                    biased;
                    renewed = &mut renewed => break renewed,
                    () = tokio::time::sleep(LOOKED_AT_EVERY) => self.let_go(sent),
                }
            };
            self.goes_on().await;
            if renewed.is_ok() {
                self.renewal.store(renewal.0, Ordering::Relaxed);
                sent = began;
                if self.world.monotonic().saturating_sub(sent) < EXECUTOR_FREEZES_AFTER {
                    self.held.set(true);
                }
            }
            self.let_go(sent);
            tokio::select! {
                biased;
                () = self.changed.notified() => tokio::time::sleep(CHANGE_TOLD_AFTER).await,
                () = tokio::time::sleep(LEASE_RENEW_EVERY) => {}
            }
            self.let_go(sent);
        }
    }

    fn let_go(&self, sent: Duration) {
        if self.world.monotonic().saturating_sub(sent) >= EXECUTOR_FREEZES_AFTER {
            self.held.set(false);
        }
    }

    async fn claim(self: Arc<Self>) {
        let slots = Arc::new(Semaphore::new(SLOTS));
        let running: Arc<Mutex<HashSet<(ProcessId, Epoch)>>> = Arc::default();
        let mut lines = Vec::new();
        for class in WAKE_CLASSES {
            let (sender, in_hand) = mpsc::channel::<Taken>(1);
            let mut queue = Queue::new(&self.bus, ASSIGN, assignments_durable(self.id, class));
            tokio::spawn(async move { while sender.send(queue.next().await).await.is_ok() {} });
            lines.push(in_hand);
        }
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            self.held.wait_for(|held| held).await;
            self.goes_on().await;
            let taken = lowest_class(&mut lines).await;
            let assignment: Assignment = taken.stored.decode().expect("an assignment");
            let name = (assignment.process, assignment.epoch);
            if !running.lock().unwrap_or_else(PoisonError::into_inner).insert(name) {
                taken.done().await;
                continue;
            }
            let (life, running, ends) = (Arc::clone(&self), Arc::clone(&running), self.ends.clone());
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = ends.cancelled() => return,
                    () = segment::run(life, assignment, taken) => {}
                }
                running.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
                drop(slot);
            });
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.life.segments.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.segment);
        self.life.changed.notify_one();
    }
}

async fn lowest_class(lines: &mut [mpsc::Receiver<Taken>]) -> Taken {
    for line in lines.iter_mut() {
        if let Ok(taken) = line.try_recv() {
            return taken;
        }
    }
    let first = futures_util::future::select_all(lines.iter_mut().map(|line| line.recv().boxed()));
    match first.await.0 {
        Some(taken) => taken,
        None => std::future::pending().await,
    }
}
