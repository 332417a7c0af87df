//! What the log is shown as: entries of the record, and rows of the fleet's list. Both can be made again.

mod fleet;
mod record;
mod shown;

pub(crate) use fleet::Fleet;
pub(crate) use record::Record;
pub(crate) use shown::{Shown, Unshown};
