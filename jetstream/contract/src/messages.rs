//! The bodies of the messages, one file per family.

pub mod assign;
pub mod audit;
pub mod live;
pub mod record;

use domain::process::{Report, Step};

use crate::Message;

/// On `process.…`: one decided change.
impl Message for Step {
    const KIND: &'static str = "step";
}

/// On `segment.…`: what has happened in a segment since its last report.
impl Message for Report {
    const KIND: &'static str = "report";
}
