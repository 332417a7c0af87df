//! What a segment reports to the registry. The answer is the step it becomes, on the process's own subject.

use domain::ids::ProcessId;
use domain::process::{ConversationKey, Report};
use serde::{Deserialize, Serialize};

use crate::Message;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentReport {
    #[serde(flatten)]
    pub key: ConversationKey,
    pub process: ProcessId,
    #[serde(flatten)]
    pub report: Report,
}

impl Message for SegmentReport {
    const KIND: &'static str = "report";
}
