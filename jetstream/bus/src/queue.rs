//! Work that is taken one piece at a time, when there is room for it: the other way to pull from a durable consumer.
//! What is taken is given back by itself when whoever took it dies.

use std::time::Duration;

use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::{AckKind, Message};
use futures_util::StreamExt;
use tokio::sync::watch;

use crate::connect::Nats;
use crate::port::Stored;
use crate::publish::delivered;

const HEARTBEAT: Duration = Duration::from_secs(5);
const PULL_EXPIRES: Duration = Duration::from_secs(30);
const REOPEN_AFTER: Duration = Duration::from_millis(200);

/// A durable consumer that the provisioner made.
#[derive(Debug)]
pub struct Queue {
    nats: Nats,
    stream: &'static str,
    durable: String,
    open: Option<Open>,
    connections: watch::Receiver<u64>,
}

struct Open(pull::Stream);

/// A piece of work.
#[derive(Debug)]
pub struct Taken {
    pub stored: Stored,
    /// What was behind it in its queue when it was given.
    pub behind: u64,
    message: Message,
}

// === impl Queue ===

impl Queue {
    pub fn new(nats: &Nats, stream: &'static str, durable: impl Into<String>) -> Self {
        Self {
            nats: nats.clone(),
            stream,
            durable: durable.into(),
            open: None,
            connections: nats.connections(),
        }
    }

    /// The next piece. Waits; cancelling loses nothing.
    pub async fn next(&mut self) -> Taken {
        loop {
            let Some(Open(messages)) = &mut self.open else {
                self.connections.mark_unchanged();
                match self.try_open().await {
                    Ok(open) => self.open = Some(open),
                    Err(error) => {
                        tracing::debug!(durable = self.durable, error, "the queue cannot be reached yet");
                        tokio::time::sleep(REOPEN_AFTER).await;
                    }
                }
                continue;
            };
            let message = tokio::select! {
                message = messages.next() => message,
                _ = self.connections.changed() => None,
            };
            match message {
                Some(Ok(message)) => {
                    if let Some((stored, behind)) = delivered(&message) {
                        return Taken { stored, behind, message };
                    }
                }
                Some(Err(error)) => {
                    tracing::debug!(durable = self.durable, %error, "the queue opens anew");
                    self.open = None;
                }
                None => self.open = None,
            }
        }
    }

    async fn try_open(&self) -> Result<Open, String> {
        let stream = self.nats.bind(self.stream).await.map_err(|error| error.to_string())?;
        let consumer: PullConsumer =
            stream.get_consumer(&self.durable).await.map_err(|error| error.to_string())?;
        let messages = consumer
            .stream()
            .max_messages_per_batch(1)
            .expires(PULL_EXPIRES)
            .heartbeat(HEARTBEAT)
            .messages()
            .await
            .map_err(|error| error.to_string())?;
        Ok(Open(messages))
    }
}

// === impl Taken ===

impl Taken {
    /// It is done, or not to be done any more.
    pub async fn done(self) {
        self.answer(AckKind::Ack).await;
    }

    /// It is given again after a while.
    pub async fn put_back(self, after: Duration) {
        self.answer(AckKind::Nak(Some(after))).await;
    }

    async fn answer(self, kind: AckKind) {
        if let Err(error) = self.message.ack_with(kind).await {
            tracing::debug!(subject = self.stored.subject, %error, "the acknowledgement was not sent");
        }
    }
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Open")
    }
}
