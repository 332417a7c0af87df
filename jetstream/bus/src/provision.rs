//! Makes the broker what the topology says: creates or updates every stream and consumer, and fails where one differs in
//! a way that cannot be changed in place. Services only bind.

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy, PersistenceMode, RetentionPolicy, StorageType};
use contract::topology::{Durable, Fleet, Keeps, Stream, consumers_max, durables, streams};

use crate::connect::Nats;

#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    #[error("stream {name} could not be made as the topology says: {detail}")]
    Stream { name: String, detail: String },
    #[error("consumer {name} on {stream} could not be made as the topology says: {detail}")]
    Consumer { name: String, stream: &'static str, detail: String },
}

/// Provisions as the operator. Running it again changes nothing.
pub async fn provision(operator: &Nats, fleet: &Fleet, replicas: usize) -> Result<(), ProvisionError> {
    for stream in streams() {
        let failed = |detail: String| ProvisionError::Stream { name: stream.name.clone(), detail };
        operator
            .jetstream
            .create_or_update_stream(stream_config(&stream, replicas))
            .await
            .map_err(|error| failed(chain(&error)))?;
    }
    for durable in durables(fleet) {
        operator
            .jetstream
            .create_consumer_on_stream(consumer_config(&durable), durable.stream)
            .await
            .map_err(|error| ProvisionError::Consumer {
                name: durable.name.clone(),
                stream: durable.stream,
                detail: chain(&error),
            })?;
    }
    Ok(())
}

fn stream_config(stream: &Stream, replicas: usize) -> Config {
    let mut config = Config {
        name: stream.name.clone(),
        subjects: stream.subjects.clone(),
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: replicas,
        max_consumers: consumers_max(),
        duplicate_window: stream.dedupe,
        allow_direct: stream.follower_reads,
        allow_message_ttl: stream.message_ttl,
        allow_message_schedules: stream.schedules,
        // A writer must not be able to take away what others wrote.
        allow_rollup: false,
        deny_delete: false,
        max_messages: -1,
        max_bytes: -1,
        max_messages_per_subject: -1,
        ..Default::default()
    };
    match stream.keeps {
        Keeps::Everything => {}
        Keeps::For(age) => config.max_age = age,
        Keeps::LastOfEach => config.max_messages_per_subject = 1,
        Keeps::LastOfEachFor(age) => {
            config.max_messages_per_subject = 1;
            config.max_age = age;
        }
        Keeps::FirstOfEach => {
            config.max_messages_per_subject = 1;
            config.discard = DiscardPolicy::New;
            config.discard_new_per_subject = true;
        }
    }
    // The server refuses it with replicas, which have a faster way of their own.
    if stream.derivable && replicas == 1 {
        config.persist_mode = Some(PersistenceMode::Async);
    }
    config
}

fn consumer_config(durable: &Durable) -> pull::Config {
    pull::Config {
        durable_name: Some(durable.name.clone()),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: durable.ack_wait,
        filter_subject: durable.filter.clone(),
        max_ack_pending: durable.acks_pending_max,
        // The consume loop counts the tries; a message the server gives up on would be left behind unseen.
        max_deliver: -1,
        ..Default::default()
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
