//! The log for several followers in one program: it is read and decoded once, since finding the last step of each
//! process is the most that a start asks of the broker.

use std::sync::Arc;

use contract::Message;
use contract::subjects::filter;
use contract::topology::PROCESS;
use domain::Timestamp;
use domain::process::{State, Step};
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::read::{Reader, Seen, Start};
use crate::wire::Bus;

/// Steps that are told at once, where so many are there: to wake four followers for each is a good part of the work.
const TOLD_AT_ONCE: usize = 64;

/// How many times that a follower may be behind. Then the others wait for it, and the broker keeps what comes.
const BEHIND_MAX: usize = 4;

/// What a follower is told.
#[derive(Debug, Clone)]
pub enum Told {
    Step(Arc<Stepped>),
    /// As [`Seen::CaughtUp`].
    CaughtUp,
}

/// What a step came to; why it came about stays in the log.
#[derive(Debug)]
pub struct Stepped {
    pub at: Timestamp,
    pub state: State,
    /// The trace that led to it.
    pub traceparent: Option<String>,
}

/// Of a [`domain::process::Step`], what is read here.
#[derive(Serialize, Deserialize)]
struct Outcome {
    at: Timestamp,
    state: State,
}

impl Message for Outcome {
    const KIND: &'static str = Step::KIND;
}

/// One follower's end.
#[derive(Debug)]
pub struct Steps {
    receiver: mpsc::Receiver<Arc<[Told]>>,
    /// What was received last, and how much of it has been given.
    received: Arc<[Told]>,
    given: usize,
}

/// Reads the log for those who follow it in this program.
#[derive(Debug, Default)]
pub struct LogReading {
    followers: Vec<mpsc::Sender<Arc<[Told]>>>,
}

// === impl LogReading ===

impl LogReading {
    /// One more that is told of everything.
    pub fn follower(&mut self) -> Steps {
        let (sender, receiver) = mpsc::channel(BEHIND_MAX);
        self.followers.push(sender);
        Steps { receiver, received: Arc::default(), given: 0 }
    }

    /// Reads from the last step of each process on, until all followers are dropped.
    pub fn start(self, bus: impl Into<Bus>) {
        let mut reader = Reader::open(bus, PROCESS, filter::all_logs(), Start::LastOfEach);
        let mut followers = self.followers;
        tokio::spawn(async move {
            while !followers.is_empty() {
                let mut told = Vec::new();
                let mut seen = Some(reader.next().await);
                while let Some(next) = seen {
                    told.extend(told_of(next));
                    seen = if told.len() < TOLD_AT_ONCE { reader.next().now_or_never() } else { None };
                }
                let told: Arc<[Told]> = told.into();
                let mut there = Vec::with_capacity(followers.len());
                for follower in followers {
                    if follower.send(Arc::clone(&told)).await.is_ok() {
                        there.push(follower);
                    }
                }
                followers = there;
            }
        });
    }
}

fn told_of(seen: Seen) -> Option<Told> {
    let stored = match seen {
        Seen::CaughtUp => return Some(Told::CaughtUp),
        Seen::Message(stored) => stored,
    };
    match stored.decode::<Outcome>() {
        Ok(Outcome { at, state }) => {
            Some(Told::Step(Arc::new(Stepped { at, state, traceparent: stored.envelope.traceparent })))
        }
        Err(error) => {
            tracing::error!(subject = stored.subject, %error, "a step that cannot be read");
            None
        }
    }
}

// === impl Steps ===

impl Steps {
    /// What comes next. Cancelling loses nothing.
    pub async fn next(&mut self) -> Told {
        loop {
            if let Some(told) = self.received.get(self.given) {
                self.given += 1;
                return told.clone();
            }
            match self.receiver.recv().await {
                Some(received) => (self.received, self.given) = (received, 0),
                // The program ends.
                None => std::future::pending().await,
            }
        }
    }
}
