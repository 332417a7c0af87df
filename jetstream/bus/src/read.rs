//! Readers: everything under a filter, in order, without acknowledgements. A reader opens itself anew after an error or
//! a new connection and goes on behind the last message it gave; what it gave is never given again.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::connect::Nats;
use crate::port::Stored;
use crate::publish::delivered;

/// Messages a reader has in flight: enough to read a long log quickly, few enough to bound what a slow one holds.
const PREFETCH: usize = 1_024;

/// The server tells that it is alive this often while there is nothing to read.
const HEARTBEAT: Duration = Duration::from_secs(5);
const PULL_EXPIRES: Duration = Duration::from_secs(30);

/// Between two attempts to open.
const REOPEN_FIRST: Duration = Duration::from_millis(50);
const REOPEN_LAST: Duration = Duration::from_secs(2);

/// The server forgets a reader that has gone after this long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);

/// Where a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The last message of each subject, then what comes.
    LastOfEach,
    /// From this sequence on.
    At(u64),
    /// What comes from now on.
    New,
}

/// What a reader gives.
#[derive(Debug)]
pub enum Seen {
    Message(Box<Stored>),
    /// Everything that was stored when the reader opened has been given. Said once after each opening.
    CaughtUp,
}

/// A reader of one stream.
#[derive(Debug)]
pub struct Reader {
    nats: Nats,
    stream: String,
    filter: String,
    start: Start,
    /// The last sequence given.
    last: u64,
    open: Option<Open>,
    /// Goes on while nobody waits in [`Reader::next`]: what a cancelled wait has begun is not asked of the server again.
    opening: Option<AbortOnDropHandle<Result<Open, String>>>,
    connections: watch::Receiver<u64>,
    reopen_delay: Duration,
}

struct Open {
    messages: pull::Stream,
    /// What was stored before the opening and has not been given yet.
    behind: u64,
    told: bool,
    /// What the server counts as delivered at the opening: all before the place where the reader begins.
    delivered: u64,
}

// === impl Reader ===

impl Reader {
    /// Nothing is asked of the broker before the first [`Reader::next`].
    pub fn open(nats: &Nats, stream: impl Into<String>, filter: impl Into<String>, start: Start) -> Self {
        Self {
            nats: nats.clone(),
            stream: stream.into(),
            filter: filter.into(),
            start,
            last: 0,
            open: None,
            opening: None,
            connections: nats.connections(),
            reopen_delay: Duration::ZERO,
        }
    }

    /// The next message, or that there is none left of those stored before. Waits; cancelling loses nothing.
    pub async fn next(&mut self) -> Seen {
        loop {
            let Some(open) = &mut self.open else {
                self.reopen().await;
                continue;
            };
            if open.behind == 0 && !open.told {
                open.told = true;
                return Seen::CaughtUp;
            }
            let received = tokio::select! {
                received = open.messages.next() => received,
                // The consumer lived in the memory of a server that may have gone; do not wait to find out.
                changed = self.connections.changed() => {
                    if changed.is_ok() {
                        self.reopen_delay = Duration::ZERO;
                        self.open = None;
                    }
                    continue;
                }
            };
            match received.map(|message| message.map(|message| delivered(&message))) {
                Some(Ok(Some((stored, pending)))) => {
                    self.reopen_delay = Duration::ZERO;
                    open.behind = open.behind.saturating_sub(1).min(pending);
                    if stored.sequence > self.last {
                        self.last = stored.sequence;
                        return Seen::Message(Box::new(stored));
                    }
                }
                Some(Ok(None)) => {}
                Some(Err(error)) => {
                    tracing::debug!(stream = self.stream, filter = self.filter, %error, "reader opens anew");
                    self.open = None;
                }
                None => self.open = None,
            }
        }
    }

    /// How many messages were stored when the reader opened, from where it begins. Asked before the first
    /// [`Reader::next`].
    pub async fn stored(&mut self) -> u64 {
        loop {
            match &self.open {
                Some(open) => return open.behind,
                None => self.reopen().await,
            }
        }
    }

    async fn reopen(&mut self) {
        let opening = match &mut self.opening {
            Some(opening) => opening,
            None => {
                self.connections.mark_unchanged();
                let delay = self.reopen_delay;
                self.reopen_delay = (delay * 2).clamp(REOPEN_FIRST, REOPEN_LAST);
                let opening = open_after(delay, self.nats.clone(), self.stream.clone(), self.config());
                self.opening.insert(AbortOnDropHandle::new(tokio::spawn(opening)))
            }
        };
        let opened = opening.await;
        self.opening = None;
        match opened {
            Ok(Ok(open)) => {
                if self.start == Start::New && self.last == 0 {
                    // From here on a reopening has a place to go on from.
                    self.start = Start::At(open.delivered + 1);
                }
                self.open = Some(open);
            }
            Ok(Err(error)) => {
                tracing::debug!(stream = self.stream, filter = self.filter, error, "reader cannot open yet");
            }
            Err(error) => {
                tracing::error!(stream = self.stream, filter = self.filter, %error, "reader failed");
            }
        }
    }

    fn config(&self) -> pull::Config {
        pull::Config {
            // Named, since only a named one is asked for under a subject that says what it filters.
            name: Some(format!("reader-{:016x}", rand::random::<u64>())),
            deliver_policy: self.deliver_policy(),
            ack_policy: AckPolicy::None,
            filter_subject: self.filter.clone(),
            inactive_threshold: FORGOTTEN_AFTER,
            memory_storage: true,
            num_replicas: 1,
            ..Default::default()
        }
    }

    fn deliver_policy(&self) -> DeliverPolicy {
        match (self.last, self.start) {
            (0, Start::LastOfEach) => DeliverPolicy::LastPerSubject,
            (0, Start::New) => DeliverPolicy::New,
            (0, Start::At(start_sequence)) => DeliverPolicy::ByStartSequence { start_sequence },
            (last, _) => DeliverPolicy::ByStartSequence { start_sequence: last + 1 },
        }
    }
}

async fn open_after(
    delay: Duration,
    nats: Nats,
    stream: String,
    config: pull::Config,
) -> Result<Open, String> {
    tokio::time::sleep(delay).await;
    let stream = nats.bind(&stream).await.map_err(|error| error.to_string())?;
    let consumer = stream.create_consumer(config).await.map_err(|error| error.to_string())?;
    let info = consumer.cached_info();
    let (behind, delivered) = (info.num_pending, info.delivered.stream_sequence);
    let messages = consumer
        .stream()
        .max_messages_per_batch(PREFETCH)
        .expires(PULL_EXPIRES)
        .heartbeat(HEARTBEAT)
        .messages()
        .await
        .map_err(|error| error.to_string())?;
    Ok(Open { messages, behind, told: false, delivered })
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("behind", &self.behind).finish_non_exhaustive()
    }
}
