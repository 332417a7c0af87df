//! Typed buckets. What decides is read from the leader and written with the revision it was read at.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use contract::buckets::{Bucket, stream_of, subject_of};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connect::Nats;
use crate::port::{BusError, Expect, Outgoing, Port, Stored};
use crate::publish::KV_OPERATION;
use crate::read::{Reader, Seen, Start};
use crate::wire::Bus;

/// The sequence a value was stored at; 0 for a key that was never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Revision(pub u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<V> {
    /// Absent where the key is absent or deleted.
    pub value: Option<V>,
    pub revision: Revision,
}

#[derive(Debug, thiserror::Error)]
pub enum KvError {
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error("the value of {subject} cannot be read: {detail}")]
    Malformed { subject: String, detail: String },
}

/// The present rows of a bucket, kept up to date by its reader.
#[derive(Debug)]
pub struct Rows<B: Bucket> {
    reader: Reader,
    rows: BTreeMap<String, B::Value>,
    bucket: PhantomData<B>,
}

/// A key's value with its revision, from the leader.
pub async fn get<B: Bucket>(port: &dyn Port, key: &B::Key) -> Result<Versioned<B::Value>, KvError> {
    match port.last(&stream_of::<B>(), &subject_of::<B>(key)).await? {
        None => Ok(Versioned { value: None, revision: Revision(0) }),
        Some(stored) => {
            let value = if stored.deleted { None } else { Some(parse::<B::Value>(&stored)?) };
            Ok(Versioned { value, revision: Revision(stored.sequence) })
        }
    }
}

/// Writes the key if it still stands at `revision`; [`BusError::Conflict`] otherwise.
pub async fn put<B: Bucket>(
    port: &dyn Port,
    key: &B::Key,
    value: &B::Value,
    revision: Revision,
) -> Result<Revision, BusError> {
    write::<B>(port, key, value, Some(revision), None).await
}

/// Writes the key whatever stands there.
pub async fn overwrite<B: Bucket>(
    port: &dyn Port,
    key: &B::Key,
    value: &B::Value,
) -> Result<Revision, BusError> {
    write::<B>(port, key, value, None, None).await
}

/// Takes the key away, whatever stands there.
pub async fn delete<B: Bucket>(port: &dyn Port, key: &B::Key) -> Result<(), BusError> {
    let mut message = Outgoing::bare(&subject_of::<B>(key), Vec::new());
    message.headers.push((KV_OPERATION, "DEL".to_owned()));
    port.publish(message).await.map(drop)
}

/// Writes the key for `ttl_seconds` whatever stands there.
pub async fn lease<B: Bucket>(
    port: &dyn Port,
    key: &B::Key,
    value: &B::Value,
    ttl_seconds: u64,
) -> Result<Revision, BusError> {
    write::<B>(port, key, value, None, Some(ttl_seconds)).await
}

async fn write<B: Bucket>(
    port: &dyn Port,
    key: &B::Key,
    value: &B::Value,
    revision: Option<Revision>,
    ttl_seconds: Option<u64>,
) -> Result<Revision, BusError> {
    let mut message = Outgoing::bare(&subject_of::<B>(key), json(value));
    message.expect = revision.map(|revision| Expect { last_sequence: revision.0, filter: None });
    message.ttl_seconds = ttl_seconds;
    Ok(Revision(port.publish(message).await?.sequence))
}

impl Nats {
    /// A key's value as any server has it: for users that may read nothing but last values, and decide nothing by them.
    pub async fn last_value<B: Bucket>(&self, key: &B::Key) -> Result<Option<B::Value>, KvError> {
        match self.direct_last(&stream_of::<B>(), &subject_of::<B>(key)).await? {
            Some(stored) if !stored.deleted => parse(&stored).map(Some),
            _ => Ok(None),
        }
    }

    /// Every row whose key matches `filter`, as it stands now.
    pub async fn rows<B: Bucket>(&self, filter: &str) -> Result<Vec<B::Value>, KvError> {
        let mut rows = Rows::<B>::open(self, filter);
        rows.caught_up().await?;
        Ok(rows.rows.into_values().collect())
    }
}

// === impl Rows ===

impl<B: Bucket> Rows<B> {
    pub fn open(bus: impl Into<Bus>, filter: &str) -> Self {
        let reader = Reader::open(bus, stream_of::<B>(), subject_of::<B>(filter), Start::LastOfEach);
        Self { reader, rows: BTreeMap::new(), bucket: PhantomData }
    }

    /// Reads on until everything that was there is known.
    pub async fn caught_up(&mut self) -> Result<(), KvError> {
        loop {
            match self.reader.next().await {
                Seen::CaughtUp => return Ok(()),
                Seen::Message(stored) => drop(self.take(&stored)),
            }
        }
    }

    /// Waits for the next change and returns the changed row's key, with the value it has now.
    pub async fn changed(&mut self) -> (String, Option<&B::Value>) {
        loop {
            if let Seen::Message(stored) = self.reader.next().await {
                let Ok(key) = self.take(&stored) else { continue };
                let value = self.rows.get(&key);
                return (key, value);
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &B::Value> {
        self.rows.values()
    }

    fn take(&mut self, stored: &Stored) -> Result<String, KvError> {
        let prefix = subject_of::<B>("");
        let key = stored.subject.strip_prefix(&prefix).unwrap_or(&stored.subject).to_owned();
        if stored.deleted {
            self.rows.remove(&key);
        } else {
            let value =
                parse::<B::Value>(stored).inspect_err(|error| tracing::warn!(%error, "row skipped"))?;
            self.rows.insert(key.clone(), value);
        }
        Ok(key)
    }
}

fn parse<V: DeserializeOwned>(stored: &Stored) -> Result<V, KvError> {
    serde_json::from_slice(&stored.envelope.body)
        .map_err(|error| KvError::Malformed { subject: stored.subject.clone(), detail: error.to_string() })
}

/// Values are made of our own types, whose serialisation cannot fail.
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
