//! Something that happened outside, as its source told it. Everything in it comes from there.

use domain::Timestamp;
use domain::ids::EventSeq;
use domain::process::{EventDigest, EventKey};
use serde::{Deserialize, Serialize};

use crate::Message;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventEntry {
    pub at: Timestamp,
    pub key: EventKey,
    /// As the source names it, with its action.
    pub kind: String,
    /// Our own App did it, so that it wakes nobody.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    pub summary: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub association: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl EventEntry {
    /// What a process is told of it; `seq` is where it is stored.
    pub fn digest(self, seq: EventSeq) -> EventDigest {
        let Self { key, kind, summary, url, author, association, text, .. } = self;
        EventDigest { seq, key, kind, summary, url, author, association, text }
    }
}

impl Message for EventEntry {
    const KIND: &'static str = "event";
}
