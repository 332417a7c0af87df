//! What a handler may ask of the bus: to store a message, to read one from the leader, to forget some.

use async_trait::async_trait;
use contract::envelope;
use contract::{DecodeError, Envelope, Message};
use domain::Timestamp;

#[async_trait]
pub trait Port: Send + Sync {
    /// Stores a message; `Ok` means that it is where the stream promises to keep it.
    async fn publish(&self, message: Outgoing) -> Result<Published, BusError>;

    /// The last message of the subjects under `filter`, from the stream's leader.
    async fn last(&self, stream: &str, filter: &str) -> Result<Option<Stored>, BusError>;

    /// The first message of the subjects under `filter` whose sequence is at least `from`, from the leader.
    async fn next(&self, stream: &str, filter: &str, from: u64) -> Result<Option<Stored>, BusError>;

    /// The message with this sequence, from the leader.
    async fn at(&self, stream: &str, sequence: u64) -> Result<Option<Stored>, BusError>;

    /// Forgets the messages of the subjects under `filter`, but for the last `keep`. The broker goes through everything
    /// that the stream's consumers have not acknowledged yet: for one message of many, [`Port::delete`].
    async fn purge(&self, stream: &str, filter: &str, keep: u64) -> Result<(), BusError>;

    /// Forgets the message with this sequence.
    async fn delete(&self, stream: &str, sequence: u64) -> Result<(), BusError>;
}

/// A message to be stored.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub subject: String,
    pub body: Vec<u8>,
    /// Absent for the value of a bucket, which is bare.
    pub kind: Option<String>,
    pub traceparent: Option<String>,
    /// The sender's name for the message: within the stream's window a second one is not stored.
    pub message_id: Option<String>,
    pub expect: Option<Expect>,
    pub ttl_seconds: Option<u64>,
    pub headers: Vec<(&'static str, String)>,
}

/// What the last sequence has to be for the message to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expect {
    pub last_sequence: u64,
    /// Over which subjects; the message's own where absent.
    pub filter: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    pub sequence: u64,
    /// The stream had a message with this id; `sequence` is that one's.
    pub duplicate: bool,
}

/// A message as it was stored.
#[derive(Debug, Clone)]
pub struct Stored {
    pub subject: String,
    pub sequence: u64,
    pub at: Timestamp,
    pub envelope: Envelope,
    /// The message marks a deleted key.
    pub deleted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// Somebody else was first. Read again and decide again.
    #[error("the last sequence is another by now")]
    Conflict,
    /// The subject holds a message that has to be purged before.
    #[error("the subject holds a message already")]
    Occupied,
    /// It may or may not have happened.
    #[error("the broker did not answer in time; whether it stored the message is unknown")]
    Unknown,
    #[error("the broker is not reachable: {0}")]
    Unavailable(String),
    #[error("the broker refused: {0}")]
    Rejected(String),
}

// === impl Outgoing ===

impl Outgoing {
    pub fn message<M: Message>(subject: &impl ToString, message: &M) -> Self {
        Self { kind: Some(M::KIND.to_owned()), ..Self::bare(subject, envelope::encode(message)) }
    }

    pub fn bare(subject: &impl ToString, body: Vec<u8>) -> Self {
        Self {
            subject: subject.to_string(),
            body,
            kind: None,
            traceparent: None,
            message_id: None,
            expect: None,
            ttl_seconds: None,
            headers: Vec::new(),
        }
    }

    #[must_use]
    pub fn traced(mut self, traceparent: Option<String>) -> Self {
        self.traceparent = traceparent;
        self
    }

    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.message_id = Some(id.into());
        self
    }

    /// Only if `last_sequence` is the last one over the message's own subject, 0 for none.
    #[must_use]
    pub fn after(mut self, last_sequence: u64) -> Self {
        self.expect = Some(Expect { last_sequence, filter: None });
        self
    }

    /// Only if `last_sequence` is the last one over the subjects under `filter`.
    #[must_use]
    pub fn after_all_of(mut self, filter: String, last_sequence: u64) -> Self {
        self.expect = Some(Expect { last_sequence, filter: Some(filter) });
        self
    }
}

// === impl Stored ===

impl Stored {
    pub fn decode<M: Message>(&self) -> Result<M, DecodeError> {
        self.envelope.decode()
    }
}

impl BusError {
    /// Whether trying again later can help.
    pub const fn is_passing(&self) -> bool {
        !matches!(self, Self::Rejected(_))
    }
}
