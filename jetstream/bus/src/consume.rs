//! The one loop that durable consumers are worked with: pull, hand over, and acknowledge by what the handler says. A
//! delivery is a doorbell; handlers read what is to be done from the state.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::subjects::DeadOf;
use futures_util::StreamExt;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::dead_letters::bury;
use crate::port::Stored;
use crate::wire::{Answer, Bus, Delivered, Rung};

/// How often a handler may fail on a message before it is put aside.
pub const FAILURES_MAX: u32 = 5;

/// Messages whose failures are remembered. Beyond it something else is wrong, and counting starts over.
const FAILING_MAX: usize = 10_000;

/// How long a failed message waits, by the number of its failures.
const FAILED_DELAYS: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];

/// Messages pulled ahead of the handlers. They are redelivered only after the ack wait if this instance dies.
const PULLED_AHEAD: usize = 64;

/// Handlers at work at once: each waits for the broker most of its time.
const HANDLERS_MAX: usize = 128;

const REOPEN_AFTER: Duration = Duration::from_millis(200);

/// What the handler is rung with.
#[derive(Debug)]
pub struct Delivery {
    pub stored: Stored,
    /// How often a handler of this program has failed on it.
    pub failures: u32,
}

/// What becomes of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Handled {
    /// Its effect is stored.
    Done,
    /// Not now: the broker is away, or another has to go first.
    Later(Duration),
    /// The handler failed, and so it counts a panic; the [`FAILURES_MAX`]th time the message is put aside with this
    /// sentence.
    Failed(String),
    /// No try can help: the message is put aside with this sentence.
    Dead(String),
}

impl Handled {
    /// As a label.
    const fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Later(_) => "later",
            Self::Failed(_) => "failed",
            Self::Dead(_) => "dead",
        }
    }
}

/// A durable consumer that the provisioner made.
#[derive(Debug, Clone)]
pub struct Consumer {
    bus: Bus,
    stream: &'static str,
    durable: String,
    dead: DeadOf,
    failing: Arc<Mutex<HashMap<u64, u32>>>,
}

// === impl Consumer ===

impl Consumer {
    pub fn new(bus: impl Into<Bus>, stream: &'static str, durable: impl Into<String>, dead: DeadOf) -> Self {
        Self { bus: bus.into(), stream, durable: durable.into(), dead, failing: Arc::default() }
    }

    /// Works until `stop`, then lets the handlers at work finish. `ready` is told whenever the consumer can or cannot
    /// be reached.
    pub async fn run<H, F>(self, stop: CancellationToken, ready: impl Fn(Result<(), String>), handler: H)
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Handled> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let slots = Arc::new(Semaphore::new(HANDLERS_MAX));
        let tasks = TaskTracker::new();
        let mut connections = self.bus.connections();
        while !stop.is_cancelled() {
            connections.mark_unchanged();
            let mut messages = match self.bus.pull(self.stream, &self.durable, PULLED_AHEAD).await {
                Ok(messages) => messages,
                Err(error) => {
                    ready(Err(error));
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => break,
                        () = tokio::time::sleep(REOPEN_AFTER) => continue,
                    }
                }
            };
            ready(Ok(()));
            loop {
                let rung = tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    _ = connections.changed() => break,
                    rung = messages.next() => rung,
                };
                match rung {
                    Some(Ok(rung)) => {
                        let (consumer, handler, slots) = (self.clone(), handler.clone(), slots.clone());
                        tasks.spawn(async move {
                            let Ok(_slot) = slots.acquire().await else { return };
                            consumer.handle(rung, handler).await;
                        });
                    }
                    Some(Err(error)) => {
                        tracing::debug!(durable = self.durable, %error, "consumer opens anew");
                        break;
                    }
                    None => break,
                }
            }
        }
        tasks.close();
        tasks.wait().await;
    }

    async fn handle<H, F>(&self, rung: Rung, handler: Arc<H>)
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Handled> + Send + 'static,
    {
        let Rung { delivered: Delivered { stored, .. }, answer } = rung;
        let failures = self.failing().get(&stored.sequence).copied().unwrap_or(0);
        let delivery = Delivery { stored: stored.clone(), failures };
        // In a task of its own, so that a panic ends as a failed try.
        let handled = match tokio::spawn(async move { handler(delivery).await }).await {
            Ok(handled) => handled,
            Err(error) => Handled::Failed(format!("the handler failed: {error}")),
        };
        metrics::counter!("resident_deliveries_total", "stream" => self.stream, "outcome" => handled.name())
            .increment(1);
        let said = match handled {
            Handled::Done => Answer::Done,
            Handled::Later(delay) => Answer::Again(delay),
            Handled::Failed(why) if failures + 1 < FAILURES_MAX => {
                self.count_failure(stored.sequence, failures + 1);
                let delay = FAILED_DELAYS[(failures as usize).min(FAILED_DELAYS.len() - 1)];
                tracing::warn!(
                    subject = stored.subject,
                    sequence = stored.sequence,
                    failures,
                    why,
                    "will try again"
                );
                Answer::Again(delay)
            }
            Handled::Failed(why) | Handled::Dead(why) => {
                match bury(&*self.bus, self.dead, self.stream, &stored, &why).await {
                    Ok(()) => Answer::Done,
                    Err(_) => Answer::Again(FAILED_DELAYS[1]),
                }
            }
        };
        if let Err(error) = answer.with(said).await {
            tracing::debug!(subject = stored.subject, %error, "the acknowledgement was not sent; it rings again");
        }
    }

    fn count_failure(&self, sequence: u64, failures: u32) {
        let mut failing = self.failing();
        if failing.len() >= FAILING_MAX {
            failing.clear();
        }
        failing.insert(sequence, failures);
    }

    fn failing(&self) -> MutexGuard<'_, HashMap<u64, u32>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
