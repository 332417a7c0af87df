//! What is said on the bus: subjects, envelopes, messages, buckets, streams, consumers and users, as names, shapes and
//! data. No IO; anything two processes must agree on stands here.

pub mod broker;
pub mod buckets;
pub mod catalogue;
pub mod envelope;
pub mod messages;
pub mod subjects;
pub mod topology;

pub use envelope::{DecodeError, Envelope, Message};
pub use subjects::Subject;
