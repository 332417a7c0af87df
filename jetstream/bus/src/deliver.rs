//! Delivering: [`Wire`] on the real broker.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::{AckKind, Message};
use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::ready;
use tokio::sync::watch;

use crate::connect::Nats;
use crate::publish::delivered;
use crate::read::Start;
use crate::wire::{Acknowledge, Answer, Messages, Opened, Rung, Wire};

/// Messages a reader has in flight: enough to read a long log quickly, few enough to bound what a slow one holds.
const PREFETCH: usize = 1_024;

/// The server tells that it is alive this often while there is nothing to deliver.
const HEARTBEAT: Duration = Duration::from_secs(5);
const PULL_EXPIRES: Duration = Duration::from_secs(30);

/// The server forgets a reader that has gone after this long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);

#[async_trait]
impl Wire for Nats {
    fn connections(&self) -> watch::Receiver<u64> {
        self.connections.clone()
    }

    fn is_connected(&self) -> bool {
        Self::is_connected(self)
    }

    async fn read(&self, stream: &str, filter: &str, start: Start) -> Result<Opened, String> {
        let config = pull::Config {
            // Named, since only a named one is asked for under a subject that says what it filters.
            name: Some(format!("reader-{:016x}", rand::random::<u64>())),
            deliver_policy: match start {
                Start::LastOfEach => DeliverPolicy::LastPerSubject,
                Start::New => DeliverPolicy::New,
                Start::At(start_sequence) => DeliverPolicy::ByStartSequence { start_sequence },
            },
            ack_policy: AckPolicy::None,
            filter_subject: filter.to_owned(),
            inactive_threshold: FORGOTTEN_AFTER,
            memory_storage: true,
            num_replicas: 1,
            ..Default::default()
        };
        let stream = self.bind(stream).await.map_err(|error| error.to_string())?;
        let consumer = stream.create_consumer(config).await.map_err(|error| error.to_string())?;
        let info = consumer.cached_info();
        let (stored, before) = (info.num_pending, info.delivered.stream_sequence);
        let messages = pulled(&consumer, PREFETCH).await?;
        let messages = messages.filter_map(|message| match message {
            Ok(message) => ready(delivered(&message).map(Ok)),
            Err(error) => ready(Some(Err(error.to_string()))),
        });
        Ok(Opened { messages: Box::pin(messages), stored, before })
    }

    async fn pull(
        &self,
        stream: &'static str,
        durable: &str,
        ahead: usize,
    ) -> Result<Messages<Rung>, String> {
        let stream = self.bind(stream).await.map_err(|error| error.to_string())?;
        let consumer: PullConsumer =
            stream.get_consumer(durable).await.map_err(|error| format!("consumer {durable}: {error}"))?;
        let messages = pulled(&consumer, ahead).await?;
        let rung = messages.filter_map(|message| match message {
            Ok(message) => {
                ready(delivered(&message).map(|delivered| Ok(Rung { delivered, answer: Box::new(message) })))
            }
            Err(error) => ready(Some(Err(error.to_string()))),
        });
        Ok(Box::pin(rung))
    }
}

async fn pulled(consumer: &PullConsumer, ahead: usize) -> Result<pull::Stream, String> {
    consumer
        .stream()
        .max_messages_per_batch(ahead)
        .expires(PULL_EXPIRES)
        .heartbeat(HEARTBEAT)
        .messages()
        .await
        .map_err(|error| error.to_string())
}

#[async_trait]
impl Acknowledge for Message {
    async fn with(self: Box<Self>, answer: Answer) -> Result<(), String> {
        let kind = match answer {
            Answer::Done => AckKind::Ack,
            Answer::Again(after) => AckKind::Nak(Some(after)),
        };
        self.ack_with(kind).await.map_err(|error| error.to_string())
    }
}
