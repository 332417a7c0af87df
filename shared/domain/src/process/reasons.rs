//! Why a process wakes and why it parks, and in which order the waking are served.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Why a process is on its way to an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeTrigger {
    /// Its first message.
    Start,
    /// A message to the parked process, or one that came while it parked.
    Message,
    /// What it waited for has happened.
    Wait,
    /// Nobody needs it any more: a last time, for a summary.
    SelfFinish,
    /// Its executor died or lost it.
    ExecutorLost,
    /// Its segment ended for a reason of the fleet's.
    Resume,
    /// Its harness crashed, and it has rested since.
    Crashed,
}

/// The order in which waking processes are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeClass {
    /// A person's input.
    Input,
    /// An event or a time.
    Event,
    /// A resumed segment.
    Resume,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "park_reason", rename_all = "snake_case")]
pub enum ParkReason {
    /// Idle, and nobody was there.
    Absent,
    /// A wait for a time is booked.
    WaitTime,
    /// A wait for an event is booked.
    WaitEvent,
    /// A question is open.
    Question,
    /// The executor drains.
    Drain,
    /// The segment has had its time; others wait for the slot.
    SegmentCap,
    /// The harness crashed; it is tried again.
    Crashed { what: String, until: Timestamp },
    /// A person has to act; the sentence says how.
    NeedsAttention { what: String },
}

// === impl WakeTrigger ===

impl WakeTrigger {
    /// Whether the agent goes on by itself, with what it was cut off from or is asked for.
    pub const fn resumes(self) -> bool {
        match self {
            Self::SelfFinish | Self::ExecutorLost | Self::Resume | Self::Crashed => true,
            Self::Start | Self::Message | Self::Wait => false,
        }
    }
}

// === impl ParkReason ===

impl ParkReason {
    pub const NAMES: [&str; 8] = [
        "absent",
        "wait_time",
        "wait_event",
        "question",
        "drain",
        "segment_cap",
        "crashed",
        "needs_attention",
    ];

    /// As it is written.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::WaitTime => "wait_time",
            Self::WaitEvent => "wait_event",
            Self::Question => "question",
            Self::Drain => "drain",
            Self::SegmentCap => "segment_cap",
            Self::Crashed { .. } => "crashed",
            Self::NeedsAttention { .. } => "needs_attention",
        }
    }

    pub const fn needs_attention(&self) -> bool {
        matches!(self, Self::NeedsAttention { .. })
    }

    /// Another wake would only fail again: a person has to act first, or time to pass. A message wakes it all the same.
    pub const fn bars(&self) -> bool {
        matches!(self, Self::NeedsAttention { .. } | Self::Crashed { .. })
    }
}
