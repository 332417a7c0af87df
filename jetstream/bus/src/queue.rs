//! Work that is taken one piece at a time, when there is room for it: the other way to pull from a durable consumer.
//! What is taken is given back by itself when whoever took it dies.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::watch;

use crate::port::Stored;
use crate::wire::{Acknowledge, Answer, Bus, Delivered, Messages, Rung};

const REOPEN_AFTER: Duration = Duration::from_millis(200);

/// A durable consumer that the provisioner made.
pub struct Queue {
    bus: Bus,
    stream: &'static str,
    durable: String,
    open: Option<Messages<Rung>>,
    connections: watch::Receiver<u64>,
}

/// A piece of work.
pub struct Taken {
    pub stored: Stored,
    /// What was behind it in its queue when it was given.
    pub behind: u64,
    answer: Box<dyn Acknowledge>,
}

// === impl Queue ===

impl Queue {
    pub fn new(bus: impl Into<Bus>, stream: &'static str, durable: impl Into<String>) -> Self {
        let bus = bus.into();
        let connections = bus.connections();
        Self { bus, stream, durable: durable.into(), open: None, connections }
    }

    /// The next piece. Waits; cancelling loses nothing.
    pub async fn next(&mut self) -> Taken {
        loop {
            let Some(messages) = &mut self.open else {
                self.connections.mark_unchanged();
                match self.bus.pull(self.stream, &self.durable, 1).await {
                    Ok(open) => self.open = Some(open),
                    Err(error) => {
                        tracing::debug!(durable = self.durable, error, "the queue cannot be reached yet");
                        tokio::time::sleep(REOPEN_AFTER).await;
                    }
                }
                continue;
            };
            let message = tokio::select! {
                biased;
                message = messages.next() => message,
                _ = self.connections.changed() => None,
            };
            match message {
                Some(Ok(Rung { delivered: Delivered { stored, behind }, answer })) => {
                    return Taken { stored, behind, answer };
                }
                Some(Err(error)) => {
                    tracing::debug!(durable = self.durable, %error, "the queue opens anew");
                    self.open = None;
                }
                None => self.open = None,
            }
        }
    }
}

// === impl Taken ===

impl Taken {
    /// It is done, or not to be done any more.
    pub async fn done(self) {
        self.answer(Answer::Done).await;
    }

    /// It is given again after a while.
    pub async fn put_back(self, after: Duration) {
        self.answer(Answer::Again(after)).await;
    }

    async fn answer(self, said: Answer) {
        if let Err(error) = self.answer.with(said).await {
            tracing::debug!(subject = self.stored.subject, %error, "the acknowledgement was not sent");
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("durable", &self.durable).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taken").field("stored", &self.stored).finish_non_exhaustive()
    }
}
