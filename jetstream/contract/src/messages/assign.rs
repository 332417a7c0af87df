//! A waking process, offered to the executor that has its files or the most room.

use domain::ids::{Epoch, ProcessId};
use domain::process::{ConversationKey, WakeClass};
use serde::{Deserialize, Serialize};

use crate::Message;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    #[serde(flatten)]
    pub key: ConversationKey,
    pub process: ProcessId,
    /// The epoch to claim. An assignment of another epoch is out of date.
    pub epoch: Epoch,
    pub class: WakeClass,
}

impl Message for Assignment {
    const KIND: &'static str = "assign";
}
