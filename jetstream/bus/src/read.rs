//! Readers: everything under a filter, in order, without acknowledgements. A reader opens itself anew after an error or
//! a new connection and goes on behind the last message it gave; what it gave is never given again.

use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::port::Stored;
use crate::wire::{Bus, Delivered, Messages, Opened};

/// Between two attempts to open.
const REOPEN_FIRST: Duration = Duration::from_millis(50);
const REOPEN_LAST: Duration = Duration::from_secs(2);

/// What was stored when a reader opened and has gone since is not delivered, and nothing says so. After this long without
/// a message it opens anew and is told what is there now; longer each time, for a broker that is only slow.
const QUIET_FIRST: Duration = Duration::from_millis(250);
const QUIET_LAST: Duration = Duration::from_secs(8);

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
    bus: Bus,
    stream: String,
    filter: String,
    start: Start,
    /// The last sequence given.
    last: u64,
    open: Option<Open>,
    /// Goes on while nobody waits in [`Reader::next`]: what a cancelled wait has begun is not asked of the server again.
    opening: Option<AbortOnDropHandle<Result<Opened, String>>>,
    connections: watch::Receiver<u64>,
    reopen_delay: Duration,
    quiet: Duration,
}

struct Open {
    messages: Messages<Delivered>,
    /// What was stored before the opening and has not been given yet.
    behind: u64,
    told: bool,
    /// Ends when what is behind should have come. Outlives a cancelled wait.
    patience: Pin<Box<Sleep>>,
}

// === impl Reader ===

impl Reader {
    /// Nothing is asked of the broker before the first [`Reader::next`].
    pub fn open(
        bus: impl Into<Bus>,
        stream: impl Into<String>,
        filter: impl Into<String>,
        start: Start,
    ) -> Self {
        let bus = bus.into();
        Self {
            connections: bus.connections(),
            bus,
            stream: stream.into(),
            filter: filter.into(),
            start,
            last: 0,
            open: None,
            opening: None,
            reopen_delay: Duration::ZERO,
            quiet: QUIET_FIRST,
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
                biased;
                received = open.messages.next() => received,
                // The consumer lived in the memory of a server that may have gone; do not wait to find out.
                changed = self.connections.changed() => {
                    if changed.is_ok() {
                        self.reopen_delay = Duration::ZERO;
                        self.open = None;
                    }
                    continue;
                }
                () = &mut open.patience, if open.behind > 0 => {
                    self.quiet = (self.quiet * 2).min(QUIET_LAST);
                    self.open = None;
                    continue;
                }
            };
            match received {
                Some(Ok(Delivered { stored, behind })) => {
                    self.reopen_delay = Duration::ZERO;
                    self.quiet = QUIET_FIRST;
                    open.patience.set(sleep(self.quiet));
                    open.behind = open.behind.saturating_sub(1).min(behind);
                    if stored.sequence > self.last {
                        self.last = stored.sequence;
                        return Seen::Message(Box::new(stored));
                    }
                }
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
                let opening = open_after(
                    delay,
                    self.bus.clone(),
                    self.stream.clone(),
                    self.filter.clone(),
                    self.resumes_at(),
                );
                self.opening.insert(AbortOnDropHandle::new(tokio::spawn(opening)))
            }
        };
        let opened = opening.await;
        self.opening = None;
        match opened {
            Ok(Ok(Opened { messages, stored, before })) => {
                if self.start == Start::New && self.last == 0 {
                    // From here on a reopening has a place to go on from.
                    self.start = Start::At(before + 1);
                }
                let patience = Box::pin(sleep(self.quiet));
                self.open = Some(Open { messages, behind: stored, told: false, patience });
            }
            Ok(Err(error)) => {
                tracing::debug!(stream = self.stream, filter = self.filter, error, "reader cannot open yet");
            }
            Err(error) => {
                tracing::error!(stream = self.stream, filter = self.filter, %error, "reader failed");
            }
        }
    }

    /// Where it goes on.
    const fn resumes_at(&self) -> Start {
        match self.last {
            0 => self.start,
            last => Start::At(last + 1),
        }
    }
}

async fn open_after(
    delay: Duration,
    bus: Bus,
    stream: String,
    filter: String,
    start: Start,
) -> Result<Opened, String> {
    sleep(delay).await;
    bus.read(&stream, &filter, start).await
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("behind", &self.behind).finish_non_exhaustive()
    }
}
