//! A timer of a booked wait. The broker keeps it and stores it again, under the subject it is to ring on, when its time
//! has come; it may do so twice.

use domain::Timestamp;
use domain::ids::{ProcessId, WaitId};
use domain::process::ConversationKey;
use serde::{Deserialize, Serialize};

use crate::Message;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    #[serde(flatten)]
    pub key: ConversationKey,
    pub process: ProcessId,
    pub wait: WaitId,
    pub at: Timestamp,
}

impl Message for Timer {
    const KIND: &'static str = "timer";
}
