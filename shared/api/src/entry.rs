//! An entry of the record as it is read for people. What this program does not know is kept, with its kind.

use contract::messages::record::{InputEntry, OutputEntry, StateEntry};
use contract::{Envelope, Message};
use domain::Timestamp;

#[derive(Debug, Clone)]
pub struct Entry {
    /// Its place in the record.
    pub sequence: u64,
    /// When it was stored.
    pub at: Timestamp,
    pub said: Said,
}

#[derive(Debug, Clone)]
pub enum Said {
    In(Box<InputEntry>),
    Out(Box<OutputEntry>),
    State(Box<StateEntry>),
    Unknown { kind: String },
}

impl Entry {
    pub fn read(sequence: u64, at: Timestamp, envelope: &Envelope) -> Self {
        let said = match envelope.kind.as_str() {
            InputEntry::KIND => envelope.decode().map(|entry| Said::In(Box::new(entry))),
            OutputEntry::KIND => envelope.decode().map(|entry| Said::Out(Box::new(entry))),
            StateEntry::KIND => envelope.decode().map(|entry| Said::State(Box::new(entry))),
            _ => Ok(Said::Unknown { kind: envelope.kind.clone() }),
        };
        let said = said.unwrap_or_else(|error| {
            tracing::debug!(sequence, %error, "an entry of the record is kept unread");
            Said::Unknown { kind: envelope.kind.clone() }
        });
        Self { sequence, at, said }
    }
}
