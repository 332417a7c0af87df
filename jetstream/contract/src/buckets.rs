//! The key-value buckets: what their keys and values are. Keys are built from ids and hashes only.

use std::fmt;

use domain::Timestamp;
use domain::ids::{
    AgentId, ConversationId, Epoch, ExecutorId, HookId, Incarnation, KeyId, OrgId, ProcessId, RecordSeq,
    Renewal, UserId,
};
use domain::process::{ConversationKey, Harness, PublicProcess};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::subjects::token;

/// A bucket's values and how their keys are written.
pub trait Bucket {
    const NAME: &'static str;
    type Key: fmt::Display;
    type Value: Serialize + DeserializeOwned;
}

macro_rules! buckets {
    ($($(#[$doc:meta])* $bucket:ident = $name:literal: $key:ty => $value:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $bucket;

        impl Bucket for $bucket {
            const NAME: &'static str = $name;
            type Key = $key;
            type Value = $value;
        }
    )*};
}

buckets! {
    /// What an agent is.
    Agents = "agents": AgentKey => Agent;
    /// An index of conversations, for lists.
    Conversations = "conversations": ConversationRow => Conversation;
    /// The leases of the executors.
    Executors = "executors": ExecutorId => Lease;
    /// Executors that an operator has ordered to drain.
    Drains = "drains": ExecutorId => DrainOrder;
    /// Which executor's volume holds an agent's files.
    Volumes = "volumes": AgentKey => ExecutorId;
    /// One row per process, for lists and for finding a process by its id.
    Fleet = "fleet": FleetKey => FleetRow;
    /// Deliveries that were applied, so that none is applied twice.
    Deliveries = "deliveries": DeliveryKey => Delivery;
    /// Where sources outside send their events, and what they sign them with.
    Hooks = "hooks": HookId => Hook;
    /// The last commit that was seen of a pull request, and the pull request of a commit.
    Heads = "heads": HeadKey => Head;
    /// Up to which step of the log a role has done what it does with steps.
    Watermarks = "watermarks": WatermarkKey => Watermark;
    /// API keys, by the hash of their secret.
    Keys = "keys": SecretHash => Key;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AgentKey {
    pub org: OrgId,
    pub agent: AgentId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    pub id: AgentId,
    pub org: OrgId,
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub instructions: String,
    pub harness: Harness,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default)]
    pub permission_mode: PermissionMode,
    #[serde(default)]
    pub gated_commands: Vec<String>,
    #[serde(default)]
    pub access: Access,
    pub created_by: UserId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// A deleted agent keeps its row, so that its conversations can still be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionMode {
    #[default]
    Full,
}

/// Who may use an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    #[default]
    Org,
    /// The person who made it, and admins.
    Private,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConversationRow {
    pub org: OrgId,
    pub agent: AgentId,
    pub conversation: ConversationId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    pub id: ConversationId,
    pub agent: AgentId,
    /// The beginning of the first message.
    pub title: String,
    pub created_by: UserId,
    pub created_at: Timestamp,
    /// The last input the row knows of.
    pub last_input: RecordSeq,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<Timestamp>,
}

/// What an executor says of itself every few seconds. Whether it has changed is what counts, not what it says of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub incarnation: Incarnation,
    pub renewal: Renewal,
    /// The segments it runs and those whose claim it has asked for.
    pub segments: Vec<HeldSegment>,
    pub slots: u16,
    /// The organizations it serves; none named means every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orgs: Vec<OrgId>,
    /// No further claim is made.
    pub draining: bool,
    /// Why it cannot run a segment, with what mends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unable: Option<String>,
    pub version: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSegment {
    pub process: ProcessId,
    pub epoch: Epoch,
}

/// It stands until it is taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainOrder {
    pub at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FleetKey {
    pub org: OrgId,
    pub process: ProcessId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetRow {
    /// The sequence in `PROCESS` of the step shown. A row never goes back to an earlier one.
    pub step: u64,
    pub changed_at: Timestamp,
    pub process: PublicProcess,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeliveryKey {
    key: ConversationKey,
    hash: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    pub input: RecordSeq,
    /// The hash of what was said, to tell a repeated delivery from a key used twice.
    pub content: String,
}

/// A role, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WatermarkKey(pub &'static str);

/// Everything up to the step is done, and perhaps some of what comes behind it. Without the row all is done anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermark {
    pub step: u64,
    /// What was hot at the step, or somewhat later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hot: Vec<HotSegment>,
}

/// A segment that the log shows hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotSegment {
    pub key: ConversationKey,
    pub process: ProcessId,
    pub epoch: Epoch,
    pub executor: ExecutorId,
    pub incarnation: Incarnation,
    /// The lease's renewal when it was claimed.
    pub renewal: Renewal,
}

/// The SHA-256 of an API key's secret, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SecretHash(String);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    pub id: KeyId,
    pub org: OrgId,
    pub user: UserId,
    pub role: Role,
    pub created_at: Timestamp,
}

/// What the owner of a key may do. A later role may all that an earlier one may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Uses agents and makes their own.
    Member,
    /// Also sees every process of the organization.
    Operator,
    /// Also changes what belongs to others.
    Admin,
}

// === keys as text ===

/// A hook of a GitHub App or repository.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    pub id: HookId,
    pub org: OrgId,
    /// The active secrets, the newest last: two while one is being replaced.
    pub secrets: Vec<String>,
    /// The login of our own App, whose doings wake nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    pub created_at: Timestamp,
}

/// A pull request, or a commit of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadKey {
    pub org: OrgId,
    pub repo: String,
    /// The number of a pull request, or a commit.
    pub of: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub number: u64,
    pub commit: String,
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").field("id", &self.id).field("org", &self.org).finish_non_exhaustive()
    }
}

impl fmt::Display for HeadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.org, token(&self.repo), token(&self.of))
    }
}

impl fmt::Display for WatermarkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for AgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.org, self.agent)
    }
}

impl fmt::Display for ConversationRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.org, self.agent, self.conversation)
    }
}

impl fmt::Display for FleetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.org, self.process)
    }
}

impl fmt::Display for DeliveryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.key.org, self.key.conversation, self.hash)
    }
}

impl fmt::Display for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl DeliveryKey {
    /// The key under which a delivery with this id from outside is remembered.
    pub fn new(key: ConversationKey, delivery_id: &str) -> Self {
        Self { key, hash: sha256_hex(delivery_id.as_bytes()) }
    }
}

impl SecretHash {
    pub fn of(secret: &str) -> Self {
        Self(sha256_hex(secret.as_bytes()))
    }
}

/// Keys of one organization, or of one agent in it, as a reader's filter.
pub mod filter {
    use super::{AgentKey, OrgId};

    pub fn of_org(org: OrgId) -> String {
        format!("{org}.>")
    }

    pub fn of_agent(key: AgentKey) -> String {
        format!("{key}.>")
    }

    pub fn all() -> String {
        ">".into()
    }
}

/// The stream and the subject prefix that a bucket is.
pub fn stream_of<B: Bucket>() -> String {
    format!("KV_{}", B::NAME)
}

pub fn subject_of<B: Bucket>(key: impl fmt::Display) -> String {
    format!("$KV.{}.{key}", B::NAME)
}

pub fn sha256_hex(bytes: &[u8]) -> String {
    use fmt::Write;
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
