//! How it is said: the only crate that names async_nats. Handlers see the bus through [`Port`], and what delivers to them
//! is made on a [`Wire`], so that a simulation can stand in for the broker.

mod append;
pub mod broker;
mod connect;
mod consume;
mod dead_letters;
mod deliver;
mod events;
mod fanout;
pub mod kv;
mod live;
mod port;
pub mod provision;
mod publish;
mod queue;
mod read;
mod steps;
mod wire;

pub use append::{AppendError, Appended, Head, Log};
pub use connect::{ConnectError, Credentials, Nats};
pub use consume::{Consumer, Delivery, FAILURES_MAX, Handled};
pub use dead_letters::{DeadLetter, bury};
pub use events::last_event;
pub use fanout::{Fanout, Followed, Follower, Item, history};
pub use live::Heard;
pub use port::{BusError, Expect, Outgoing, Port, Published, Stored};
pub use queue::{Queue, Taken};
pub use read::{Reader, Seen, Start};
pub use steps::{LogReading, Stepped, Steps, Told};
pub use wire::{Acknowledge, Answer, Bus, Delivered, Messages, Opened, Rung, Wire};
