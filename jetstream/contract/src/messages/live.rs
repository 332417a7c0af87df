//! What need not be kept: text while it is written, and the beats of viewers.

use domain::ids::{Epoch, MessageId};
use serde::{Deserialize, Serialize};

use crate::Message;

/// A piece of a text that is being written. Joined by message and offset the pieces are the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    pub message_id: MessageId,
    pub epoch: Epoch,
    /// Where the piece begins, in characters (Unicode scalar values).
    pub offset: usize,
    pub text: String,
}

/// A viewer has the conversation open, or has just opened it and wants the text so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    pub wants_text: bool,
}

impl Message for Delta {
    const KIND: &'static str = "delta";
}

impl Message for Beat {
    const KIND: &'static str = "beat";
}
