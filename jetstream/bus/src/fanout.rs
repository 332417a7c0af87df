//! One reader of the record and one subscription to the live text per program, handed on to everyone who follows a
//! conversation. A follower that does not keep up is let go; it comes back with the last sequence it has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use contract::Subject;
use contract::messages::live::Delta;
use contract::subjects::filter;
use contract::topology::RECORD;
use domain::process::ConversationKey;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::connect::Nats;
use crate::port::{BusError, Stored};
use crate::read::{Reader, Seen, Start};

/// What waits for one follower. Entries are shared between followers, so this bounds pointers rather than texts; a
/// reader this far behind is not reading.
const FOLLOWER_BEHIND_MAX: usize = 1_024;

/// The record and the live text of every conversation; cheap to clone.
#[derive(Debug, Clone)]
pub struct Fanout {
    nats: Nats,
    followers: Arc<Mutex<HashMap<ConversationKey, Vec<mpsc::Sender<Item>>>>>,
    open: watch::Receiver<bool>,
}

/// What a follower gets.
#[derive(Debug, Clone)]
pub enum Item {
    /// An entry of the record.
    Entry(Arc<Stored>),
    /// A piece of a text that is being written.
    Delta(Arc<Delta>),
}

/// Follows one conversation from a place in its record on, without a gap.
#[derive(Debug)]
pub struct Follower {
    history: Option<Reader>,
    live: mpsc::Receiver<Item>,
    last: u64,
}

/// What a follower says next.
#[derive(Debug)]
pub enum Followed {
    Item(Item),
    /// Everything that was in the record at the beginning has been given.
    CaughtUp,
    /// It was too slow, or the program stops. Follow again from the last sequence.
    Closed,
}

// === impl Fanout ===

impl Fanout {
    /// Starts to read. `ready` is told once the record can be read.
    pub fn start(nats: &Nats, stop: CancellationToken) -> Self {
        let (opened, open) = watch::channel(false);
        let fanout = Self { nats: nats.clone(), followers: Arc::default(), open };
        tokio::spawn(fanout.clone().read_record(opened, stop.clone()));
        tokio::spawn(fanout.clone().hear_live(stop));
        fanout
    }

    /// Returns once entries reach followers.
    pub async fn ready(&self) {
        let mut open = self.open.clone();
        // It only fails when the program stops.
        let _ = open.wait_for(|open| *open).await;
    }

    /// Follows a conversation from behind the record sequence `after`.
    pub async fn follow(&self, key: ConversationKey, after: u64) -> Follower {
        self.ready().await;
        let (sender, live) = mpsc::channel(FOLLOWER_BEHIND_MAX);
        self.lock().entry(key).or_default().push(sender);
        // Opened only now: what is stored from here on comes by the channel, what was stored before by this reader.
        let history = Reader::open(&self.nats, RECORD, filter::record(key), Start::At(after + 1));
        Follower { history: Some(history), live, last: after }
    }

    async fn read_record(self, opened: watch::Sender<bool>, stop: CancellationToken) {
        let mut reader = Reader::open(&self.nats, RECORD, filter::all_records(), Start::New);
        loop {
            let seen = tokio::select! {
                () = stop.cancelled() => break,
                seen = reader.next() => seen,
            };
            match seen {
                Seen::CaughtUp => drop(opened.send(true)),
                Seen::Message(stored) => {
                    let key = match stored.subject.parse() {
                        Ok(
                            Subject::RecordIn(key) | Subject::RecordOut(key, _) | Subject::RecordState(key),
                        ) => key,
                        _ => continue,
                    };
                    self.hand_on(key, &Item::Entry(Arc::from(stored)));
                }
            }
        }
        self.lock().clear();
    }

    async fn hear_live(self, stop: CancellationToken) {
        let mut heard = match self.nats.hear(filter::all_live()).await {
            Ok(heard) => heard,
            Err(error) => return tracing::error!(%error, "no live text: the subscription failed"),
        };
        loop {
            let delta = tokio::select! {
                () = stop.cancelled() => return,
                delta = heard.next::<Delta>() => delta,
            };
            match delta {
                Some((Subject::Live(key, _), delta)) => self.hand_on(key, &Item::Delta(Arc::new(delta))),
                Some(_) => {}
                None => return,
            }
        }
    }

    fn hand_on(&self, key: ConversationKey, item: &Item) {
        let mut followers = self.lock();
        if let Some(those) = followers.get_mut(&key) {
            those.retain(|follower| follower.try_send(item.clone()).is_ok());
            if those.is_empty() {
                followers.remove(&key);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ConversationKey, Vec<mpsc::Sender<Item>>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Follower ===

impl Follower {
    /// What comes next. Cancelling loses nothing.
    pub async fn next(&mut self) -> Followed {
        if let Some(history) = &mut self.history {
            match history.next().await {
                Seen::Message(stored) => {
                    self.last = stored.sequence;
                    return Followed::Item(Item::Entry(Arc::from(stored)));
                }
                Seen::CaughtUp => {
                    self.history = None;
                    return Followed::CaughtUp;
                }
            }
        }
        loop {
            match self.live.recv().await {
                None => return Followed::Closed,
                // The channel and the history overlap.
                Some(Item::Entry(stored)) if stored.sequence <= self.last => {}
                Some(item) => {
                    if let Item::Entry(stored) = &item {
                        self.last = stored.sequence;
                    }
                    return Followed::Item(item);
                }
            }
        }
    }
}

/// All entries of a conversation's record behind `after`, as they stand now.
pub async fn history(nats: &Nats, key: ConversationKey, after: u64) -> Result<Vec<Stored>, BusError> {
    let mut reader = Reader::open(nats, RECORD, filter::record(key), Start::At(after + 1));
    let mut entries = Vec::new();
    loop {
        match reader.next().await {
            Seen::Message(stored) => entries.push(*stored),
            Seen::CaughtUp => return Ok(entries),
        }
    }
}
