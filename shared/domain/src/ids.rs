//! Every id the project knows, in one table. An id is a prefix that says what it names and a UUID; one of the wrong
//! kind does not parse. Fresh ids are UUIDv7 and are drawn outside; ids of effects are derived from their cause, so
//! that deciding the same thing again names the same thing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The text is no id of the kind that was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not {expected}")]
pub struct InvalidId {
    /// What an id of this kind looks like.
    pub expected: &'static str,
    pub found: String,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// Stands for one that is named in something nobody can read.
            pub const UNKNOWN: Self = Self(Uuid::nil());

            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.simple())
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                parse_uuid(concat!($prefix, "_"), text).map(Self).ok_or_else(|| InvalidId {
                    expected: concat!($prefix, "_ followed by 32 hexadecimal digits"),
                    found: shortened(text),
                })
            }
        }

        text_form!($name);
    )*};
}

/// Debug, serde and text are one form.
macro_rules! text_form {
    ($name:ident) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                std::borrow::Cow::<'de, str>::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}

ids! {
    /// An organization: whose agents, conversations and keys these are.
    OrgId = "org";
    /// A person, or a program that acts for one.
    UserId = "usr";
    /// An API key; the secret itself is stored hashed, elsewhere.
    KeyId = "key";
    AgentId = "agt";
    ConversationId = "cnv";
    ProcessId = "prc";
    /// One hot stay of a process on an executor.
    SegmentId = "seg";
    /// An input, a text the agent wrote, or a card of questions.
    MessageId = "msg";
    /// Where a source outside sends its events.
    HookId = "hok";
    /// One question of a card.
    QuestionId = "qst";
    /// What a process booked with `wait_for`.
    WaitId = "wat";
}

/// An executor is its ordinal: the account on the broker and the volume are provisioned under it and outlive any
/// machine that takes the ordinal up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutorId(pub u16);

/// One life of an executor's program. Freezing keeps it, a restart does not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub Uuid);

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}

numbers! {
    /// The number of an input: its sequence in the record. Rises within a conversation, with gaps.
    RecordSeq;
    /// The number of a claim in its conversation. It only rises, also from one process of the chain to the next.
    Epoch;
    /// The number of a report within its epoch, from 1 without gaps.
    ReportNo;
    /// How often an executor has renewed its lease in this incarnation.
    Renewal;
    /// The number of a turn in its conversation, from 1.
    TurnNo;
    /// Where an event stands among the events: its sequence in their stream.
    EventSeq;
}

// === impl ExecutorId ===

impl fmt::Display for ExecutorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exe_{}", self.0)
    }
}

impl FromStr for ExecutorId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        text.strip_prefix("exe_")
            .and_then(|ordinal| ordinal.parse().ok())
            .map(Self)
            .filter(|id| id.to_string() == text)
            .ok_or_else(|| InvalidId { expected: "exe_ followed by an ordinal", found: shortened(text) })
    }
}

text_form!(ExecutorId);

// === derived ids ===

impl ConversationId {
    /// The conversation that a first message with this idempotency key opens, however often it is sent.
    pub fn of_key(org: OrgId, agent: AgentId, key: &str) -> Self {
        Self(Uuid::new_v5(&agent.0, format!("conversation/{org}/{key}").as_bytes()))
    }
}

impl ProcessId {
    /// The process that this input starts.
    pub fn started_by(conversation: ConversationId, input: RecordSeq) -> Self {
        Self(Uuid::new_v5(&conversation.0, format!("process/{input}").as_bytes()))
    }
}

impl SegmentId {
    pub fn of(process: ProcessId, epoch: Epoch) -> Self {
        Self(Uuid::new_v5(&process.0, format!("segment/{epoch}").as_bytes()))
    }
}

impl QuestionId {
    /// A question by its place on the card.
    pub fn of(card: MessageId, place: usize) -> Self {
        Self(Uuid::new_v5(&card.0, format!("question/{place}").as_bytes()))
    }
}

impl WaitId {
    /// The wait that a segment booked with this event of this report.
    pub fn booked_by(process: ProcessId, epoch: Epoch, report: ReportNo, event: usize) -> Self {
        Self(Uuid::new_v5(&process.0, format!("wait/{epoch}/{report}/{event}").as_bytes()))
    }

    /// The rest after a crash of this segment.
    pub fn rest(process: ProcessId, epoch: Epoch) -> Self {
        Self(Uuid::new_v5(&process.0, format!("rest/{epoch}").as_bytes()))
    }
}

const SEQ_BITS: u32 = 60;
const LOW_BITS: u32 = 12;

impl MessageId {
    /// The id of an input: a UUIDv8 that holds the record sequence in its first 60 free bits and a hash of the
    /// conversation in the other 62, so that the sequence can be read back and a foreign id is recognised.
    pub fn of_input(conversation: ConversationId, input: RecordSeq) -> Self {
        let seq = u128::from(input.0) & ((1 << SEQ_BITS) - 1);
        let (high, low) = (seq >> LOW_BITS, seq & ((1 << LOW_BITS) - 1));
        let hash = u128::from(conversation_hash(conversation));
        Self(Uuid::from_u128((high << 80) | (8 << 76) | (low << 64) | (0b10 << 62) | hash))
    }

    /// The record sequence in the id; `None` where it is not an input of this conversation.
    pub fn input_of(self, conversation: ConversationId) -> Option<RecordSeq> {
        let bits = self.0.as_u128();
        let seq = ((bits >> 80) << LOW_BITS) | ((bits >> 64) & ((1 << LOW_BITS) - 1));
        let seq = RecordSeq(u64::try_from(seq).ok()?);
        (Self::of_input(conversation, seq) == self).then_some(seq)
    }

    /// The id of a text the agent wrote, from the harness's own name for it.
    pub fn of_output(conversation: ConversationId, harness_name: &str) -> Self {
        Self(Uuid::new_v5(&conversation.0, format!("output/{harness_name}").as_bytes()))
    }
}

/// The first 62 bits of the conversation's SHA-256.
fn conversation_hash(conversation: ConversationId) -> u64 {
    let digest = Sha256::digest(conversation.0.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(first) >> 2
}

fn parse_uuid(prefix: &str, text: &str) -> Option<Uuid> {
    let hex = text.strip_prefix(prefix)?;
    let plain = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    plain.then(|| Uuid::try_parse(hex).ok())?
}

/// Text from outside, bounded before it goes into an error.
fn shortened(text: &str) -> String {
    const SHOWN_MAX: usize = 64;
    text.chars().take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(n: u128) -> ConversationId {
        ConversationId::from_uuid(Uuid::from_u128(n))
    }

    #[test]
    fn an_id_of_another_kind_does_not_parse() {
        let text = conversation(7).to_string();
        assert_eq!(text.parse::<ConversationId>().unwrap(), conversation(7));
        assert!(text.parse::<ProcessId>().is_err());
        assert!(text.to_uppercase().parse::<ConversationId>().is_err());
        assert!(format!("{text}0").parse::<ConversationId>().is_err());
    }

    #[test]
    fn an_executor_is_its_ordinal() {
        assert_eq!("exe_12".parse::<ExecutorId>().unwrap(), ExecutorId(12));
        for wrong in ["exe_", "exe_012", "exe_-1", "exe_99999", "agt_1", "exe_1.2"] {
            assert!(wrong.parse::<ExecutorId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn derived_ids_follow_from_their_cause() {
        let one = ProcessId::started_by(conversation(1), RecordSeq(4));
        assert_eq!(one, ProcessId::started_by(conversation(1), RecordSeq(4)));
        assert_ne!(one, ProcessId::started_by(conversation(1), RecordSeq(5)));
        assert_ne!(one, ProcessId::started_by(conversation(2), RecordSeq(4)));
    }

    proptest::proptest! {
        #[test]
        fn the_sequence_of_an_input_reads_back(seq in 0_u64..(1 << 60), n: u128, other: u128) {
            let id = MessageId::of_input(conversation(n), RecordSeq(seq));
            assert_eq!(id.uuid().get_version_num(), 8);
            assert_eq!(id.uuid().get_variant(), uuid::Variant::RFC4122);
            assert_eq!(id.input_of(conversation(n)), Some(RecordSeq(seq)));
            if other != n {
                assert_eq!(id.input_of(conversation(other)), None);
            }
        }
    }
}
