//! What every message carries besides its body: the kind, the format it was written in, and the trace it belongs to.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Header names.
pub mod header {
    /// The message's kind, one per body type.
    pub const KIND: &str = "Resident-Kind";
    /// The format of the body. Formats only grow.
    pub const FORMAT: &str = "Resident-Format";
    /// W3C trace context.
    pub const TRACEPARENT: &str = "traceparent";
    /// Why a dead letter is dead, in a sentence.
    pub const DEAD_BECAUSE: &str = "Resident-Dead-Because";
    /// Where a dead letter was read: its subject and its sequence.
    pub const DEAD_SUBJECT: &str = "Resident-Dead-Subject";
    pub const DEAD_SEQUENCE: &str = "Resident-Dead-Sequence";
}

/// The newest format this build reads and writes.
pub const FORMAT: u16 = 1;

/// A body with a kind. The kind is part of the wire: never rename one.
pub trait Message: Serialize + DeserializeOwned {
    const KIND: &'static str;
}

/// A message as it was read, before its body is looked at.
#[derive(Debug, Clone)]
pub struct Envelope {
    pub kind: String,
    pub format: u16,
    pub traceparent: Option<String>,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("a message without the {0} header cannot be read; it was not written by this project")]
    MissingHeader(&'static str),
    #[error("expected a {expected} message and found {found:?}")]
    OtherKind { expected: &'static str, found: String },
    #[error("the message is in format {found} and this program reads up to {FORMAT}; upgrade it")]
    NewerFormat { found: u16 },
    #[error("the {kind} message is malformed: {detail}")]
    Malformed { kind: &'static str, detail: String },
}

impl Envelope {
    pub fn decode<M: Message>(&self) -> Result<M, DecodeError> {
        if self.kind != M::KIND {
            return Err(DecodeError::OtherKind { expected: M::KIND, found: self.kind.clone() });
        }
        if self.format > FORMAT {
            return Err(DecodeError::NewerFormat { found: self.format });
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| DecodeError::Malformed { kind: M::KIND, detail: error.to_string() })
    }
}

/// The body of a message as it is written. What is serialised here is made of our own types, whose serialisation
/// cannot fail; a failure would be a body that no reader accepts.
pub fn encode<M: Message>(message: &M) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_default()
}
