//! What readers, consumers and queues are made on: the broker's client, or what a simulation puts in its place.

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::Stream;
use tokio::sync::watch;

use crate::connect::Nats;
use crate::port::{Port, Stored};
use crate::read::Start;

/// A [`Port`] that also delivers. An error is only told; whoever meets one opens anew.
#[async_trait]
pub trait Wire: Port {
    /// Counts the connections made; whoever reads opens anew when it changes.
    fn connections(&self) -> watch::Receiver<u64>;

    /// Whether the broker answers right now.
    fn is_connected(&self) -> bool;

    /// Delivers what is under `filter`, in order and without acknowledgements.
    async fn read(&self, stream: &str, filter: &str, start: Start) -> Result<Opened, String>;

    /// Delivers from a durable consumer, up to `ahead` messages before they are answered.
    async fn pull(&self, stream: &'static str, durable: &str, ahead: usize)
    -> Result<Messages<Rung>, String>;
}

/// A [`Wire`]; cheap to clone.
#[derive(Clone)]
pub struct Bus(Arc<dyn Wire>);

/// What is delivered, as it comes. It may end; whoever reads opens anew.
pub type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, String>> + Send + Sync>>;

/// A reader's end at the broker.
pub struct Opened {
    pub messages: Messages<Delivered>,
    /// How many messages are stored from where it begins on.
    pub stored: u64,
    /// The last sequence before the place where it begins.
    pub before: u64,
}

#[derive(Debug)]
pub struct Delivered {
    pub stored: Stored,
    /// How many of those stored are still to come.
    pub behind: u64,
}

/// A message that is to be answered; unanswered it is delivered again after a while.
pub struct Rung {
    pub delivered: Delivered,
    pub answer: Box<dyn Acknowledge>,
}

#[async_trait]
pub trait Acknowledge: Send + Sync {
    /// `Ok` says that it was sent; whether the broker has it is not known.
    async fn with(self: Box<Self>, answer: Answer) -> Result<(), String>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// It is delivered again after this long.
    Again(Duration),
}

// === impl Bus ===

impl Bus {
    pub fn new(wire: impl Wire + 'static) -> Self {
        Self(Arc::new(wire))
    }

    /// What handlers see of it.
    pub fn port(&self) -> Arc<dyn Port> {
        Arc::<dyn Wire>::clone(&self.0)
    }
}

impl Deref for Bus {
    type Target = dyn Wire;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

impl From<Nats> for Bus {
    fn from(nats: Nats) -> Self {
        Self::new(nats)
    }
}

impl From<&Nats> for Bus {
    fn from(nats: &Nats) -> Self {
        Self::new(nats.clone())
    }
}

impl From<&Self> for Bus {
    fn from(bus: &Self) -> Self {
        bus.clone()
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bus")
    }
}

impl fmt::Debug for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rung").field("delivered", &self.delivered).finish_non_exhaustive()
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("stored", &self.stored).finish_non_exhaustive()
    }
}
