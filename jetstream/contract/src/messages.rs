//! The bodies of the messages, one file per family.

pub mod assign;
pub mod audit;
pub mod event;
pub mod live;
pub mod record;
pub mod segment;
pub mod timer;

use domain::process::Step;

use crate::Message;

/// On `process.…`: one decided change.
impl Message for Step {
    const KIND: &'static str = "step";
}
