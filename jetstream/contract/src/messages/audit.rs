//! Who changed what, kept for a year.

use domain::Timestamp;
use domain::ids::{AgentId, KeyId, UserId};
use serde::{Deserialize, Serialize};

use crate::Message;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub at: Timestamp,
    /// Absent for an operator at the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<UserId>,
    #[serde(flatten)]
    pub what: Audited,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Audited {
    KeyAdded { key: KeyId, user: UserId, role: crate::buckets::Role },
    AgentCreated { agent: AgentId },
    AgentChanged { agent: AgentId },
    AgentDeleted { agent: AgentId },
}

impl Message for AuditEntry {
    const KIND: &'static str = "audit";
}
