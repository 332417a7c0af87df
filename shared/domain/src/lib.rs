//! What it means: the rules of resident processes, pure and synchronous. Nothing here reads a clock, draws a random
//! number, touches a file or knows that there is a bus.
//!
//! [`process::step`] is the heart: what one cause does to a conversation's live process.

pub mod ids;
pub mod placement;
pub mod policy;
pub mod process;
pub mod refusal;
pub mod segment;
pub mod time;

pub use refusal::Refusal;
pub use time::Timestamp;
