//! A connection to the modelled broker. Everything takes a while; what was asked may have happened without an answer, what
//! was delivered may be delivered again, and a connection may be cut or its program dead.

mod deliver;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bus::{BusError, Messages, Opened, Outgoing, Port, Published, Rung, Start, Stored, Wire};
use contract::topology::Fleet;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use service::clock::Clock;
use tokio::sync::{mpsc, watch};

use self::deliver::Channel;
use crate::store::Store;
use crate::told::Told;

/// After this long without an answer the client gives up, as the real one does.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The modelled broker.
pub(crate) struct Model {
    pub(crate) clock: Arc<dyn Clock>,
    store: Mutex<Store>,
    rng: Mutex<StdRng>,
    /// Rung when something was stored, or when time may have made something due.
    changed: Told<u64>,
    /// Whether it answers.
    up: Told<bool>,
    lines: Mutex<Vec<Arc<Connection>>>,
    unkind: AtomicBool,
}

/// One program's connection.
#[derive(Clone)]
pub(crate) struct Line {
    model: Arc<Model>,
    connection: Arc<Connection>,
}

struct Connection {
    /// Whether what is said on it arrives.
    reach: Told<bool>,
    /// How often it was made.
    count: Told<u64>,
    /// Who is told of that, each by a channel of its own.
    watched: Mutex<Vec<watch::Sender<u64>>>,
    /// The program was killed: nothing of it goes on.
    dead: AtomicBool,
}

// === impl Model ===

impl Model {
    pub(crate) fn start(fleet: &Fleet, clock: Arc<dyn Clock>, seed: u64) -> Arc<Self> {
        let model = Arc::new(Self {
            clock,
            store: Mutex::new(Store::new(fleet)),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            changed: Told::new(0),
            up: Told::new(true),
            lines: Mutex::default(),
            unkind: AtomicBool::new(false),
        });
        tokio::spawn(Arc::clone(&model).keep_time());
        model
    }

    pub(crate) fn connect(self: &Arc<Self>) -> Line {
        let connection = Arc::new(Connection {
            reach: Told::new(true),
            count: Told::new(1),
            watched: Mutex::default(),
            dead: AtomicBool::new(false),
        });
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&connection));
        Line { model: Arc::clone(self), connection }
    }

    /// From here on answers and acknowledgements get lost, messages come late and again.
    pub(crate) fn is_unkind(&self, unkind: bool) {
        self.unkind.store(unkind, Ordering::Relaxed);
    }

    /// It answers nothing, or goes on.
    pub(crate) fn stands_still(&self, still: bool) {
        self.up.set(!still);
    }

    /// Every connection is a new one; what was on its way is lost.
    pub(crate) fn restart(&self) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lines.iter().for_each(|line| line.is_made_anew());
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn rng(&self) -> MutexGuard<'_, StdRng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        self.changed.set(self.changed.get() + 1);
    }

    /// Whether something with this probability happens, while it is unkind.
    fn chance(&self, probability: f64) -> bool {
        self.unkind.load(Ordering::Relaxed) && self.rng().random_bool(probability)
    }

    /// The way there, or back.
    async fn travel(&self) {
        let slow = self.chance(0.01);
        let micros = if slow {
            self.rng().random_range(1_000..3_000_000)
        } else {
            self.rng().random_range(100..2_000)
        };
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }

    async fn keep_time(self: Arc<Self>) {
        let mut changed = self.changed.get();
        loop {
            let now = self.clock.now();
            let next = self.store().next_pass();
            match next {
                Some(at) if at <= now => {
                    let late = self.chance(0.05);
                    if self.store().pass(now, || late) {
                        self.ring();
                    }
                }
                Some(at) => tokio::select! {
                    biased;
                    () = self.changed.changed(&mut changed) => {}
                    () = tokio::time::sleep(at.since(now).max(Duration::from_millis(1))) => {}
                },
                None => self.changed.changed(&mut changed).await,
            }
        }
    }
}

// === impl Line ===

impl Line {
    /// What is said on it does not arrive, or does again; then it is a new connection.
    pub(crate) fn is_cut(&self, cut: bool) {
        if !self.connection.reach.set(!cut) && !cut {
            self.connection.is_made_anew();
        }
    }

    /// The program was killed.
    pub(crate) fn dies(&self) {
        self.connection.dead.store(true, Ordering::Relaxed);
    }

    /// Nothing of a dead program goes on.
    async fn lives(&self) {
        if self.connection.dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    /// Whether what is asked now arrives; waits as long as the client would.
    async fn arrives(&self) -> bool {
        self.lives().await;
        self.model.travel().await;
        let through = async {
            while !self.is_connected() {
                self.connection.reach.wait_for(|reaches| reaches).await;
                self.model.up.wait_for(|up| up).await;
            }
        };
        let arrived = tokio::time::timeout(ANSWER_WITHIN, through).await.is_ok();
        self.lives().await;
        arrived
    }

    /// Whether the answer comes back.
    async fn returns(&self) -> bool {
        let lost = self.model.chance(0.02) || !self.is_connected();
        if lost {
            tokio::time::sleep(ANSWER_WITHIN).await;
        }
        self.model.travel().await;
        self.lives().await;
        !lost
    }

    async fn read<T>(&self, what: impl FnOnce(&mut Store) -> T + Send) -> Result<T, BusError> {
        if !self.arrives().await || self.model.chance(0.01) {
            return Err(BusError::Unavailable("nothing answers".into()));
        }
        let read = what(&mut self.model.store());
        if self.returns().await { Ok(read) } else { Err(BusError::Unavailable("nothing answers".into())) }
    }

    async fn change<T>(
        &self,
        what: impl FnOnce(&mut Store) -> Result<T, BusError> + Send,
    ) -> Result<T, BusError> {
        if !self.arrives().await || self.model.chance(0.01) {
            return Err(BusError::Unknown);
        }
        let changed = what(&mut self.model.store());
        self.model.ring();
        if self.returns().await { changed } else { Err(BusError::Unknown) }
    }

    /// Waits until this connection delivers; `false` once it is another one.
    async fn delivers(&self, connection: u64) -> bool {
        loop {
            self.lives().await;
            if self.connection.count.get() != connection {
                return false;
            }
            if self.is_connected() {
                return true;
            }
            tokio::select! {
                biased;
                () = self.another(connection) => {}
                () = async {
                    self.connection.reach.wait_for(|reaches| reaches).await;
                    self.model.up.wait_for(|up| up).await;
                } => {}
            }
        }
    }
}

impl Connection {
    fn is_made_anew(&self) {
        let count = self.count.get() + 1;
        self.count.set(count);
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|watch| watch.send(count).is_ok());
    }
}

#[async_trait]
impl Port for Line {
    async fn publish(&self, message: Outgoing) -> Result<Published, BusError> {
        let clock = Arc::clone(&self.model.clock);
        self.change(move |store| store.publish(message, clock.now())).await
    }

    async fn last(&self, stream: &str, filter: &str) -> Result<Option<Stored>, BusError> {
        self.read(|store| store.last(stream, filter)).await
    }

    async fn next(&self, stream: &str, filter: &str, from: u64) -> Result<Option<Stored>, BusError> {
        self.read(|store| store.next(stream, filter, from)).await
    }

    async fn at(&self, stream: &str, sequence: u64) -> Result<Option<Stored>, BusError> {
        self.read(|store| store.at(stream, sequence)).await
    }

    async fn purge(&self, stream: &str, filter: &str, keep: u64) -> Result<(), BusError> {
        let purged = self.change(|store| {
            store.purge(stream, filter, keep);
            Ok(())
        });
        purged.await
    }

    async fn delete(&self, stream: &str, sequence: u64) -> Result<(), BusError> {
        self.change(|store| store.delete(stream, sequence)).await
    }
}

#[async_trait]
impl Wire for Line {
    fn connections(&self) -> watch::Receiver<u64> {
        let (sender, receiver) = watch::channel(self.connection.count.get());
        self.connection.watched.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        receiver
    }

    fn is_connected(&self) -> bool {
        self.connection.reach.get() && self.model.up.get()
    }

    async fn read(&self, stream: &str, filter: &str, start: Start) -> Result<Opened, String> {
        let connection = self.connection.count.get();
        let (stream, filter) = (stream.to_owned(), filter.to_owned());
        let opened = Self::read(self, |store| {
            let (first, from) = match start {
                Start::LastOfEach => {
                    let (each, last) = store.last_of_each(&stream, &filter);
                    (each, last + 1)
                }
                Start::At(from) => (Vec::new(), from.max(1)),
                Start::New => (Vec::new(), store.last_sequence(&stream) + 1),
            };
            let stored = first.len() as u64 + store.count_from(&stream, &filter, from);
            let before = first.first().map_or(from, |first| *first) - 1;
            (first, from, stored, before)
        });
        let (first, from, stored, before) = opened.await.map_err(|error| error.to_string())?;
        let (sender, receiver) = mpsc::channel(64);
        tokio::spawn(self.clone().deliver(connection, stream, filter, first, from, sender));
        Ok(Opened { messages: Box::pin(Channel(receiver)), stored, before })
    }

    async fn pull(
        &self,
        stream: &'static str,
        durable: &str,
        ahead: usize,
    ) -> Result<Messages<Rung>, String> {
        let connection = self.connection.count.get();
        Self::read(self, |_| ()).await.map_err(|error| error.to_string())?;
        let (sender, receiver) = mpsc::channel(ahead);
        tokio::spawn(self.clone().work(connection, stream, durable.to_owned(), sender));
        Ok(Box::pin(Channel(receiver)))
    }
}
