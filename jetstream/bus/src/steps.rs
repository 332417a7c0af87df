//! The log for several followers in one program: it is read and decoded once.

use std::sync::Arc;

use contract::subjects::filter;
use contract::topology::PROCESS;
use domain::process::Step;
use tokio::sync::mpsc;

use crate::connect::Nats;
use crate::port::Stored;
use crate::read::{Reader, Seen, Start};

/// Steps that a follower may be behind. Then the others wait for it, and the broker keeps what comes.
const BEHIND_MAX: usize = 256;

/// What a follower is told.
#[derive(Debug, Clone)]
pub enum Told {
    Step(Arc<Stored>, Arc<Step>),
    /// As [`Seen::CaughtUp`].
    CaughtUp,
}

/// One follower's end.
#[derive(Debug)]
pub struct Steps(mpsc::Receiver<Told>);

impl Steps {
    /// Follows the log from the last step of each process, until all followers are dropped.
    pub fn open<const FOLLOWERS: usize>(nats: &Nats) -> [Self; FOLLOWERS] {
        let mut reader = Reader::open(nats, PROCESS, filter::all_logs(), Start::LastOfEach);
        let mut senders = Vec::with_capacity(FOLLOWERS);
        let followers = std::array::from_fn(|_| {
            let (sender, receiver) = mpsc::channel(BEHIND_MAX);
            senders.push(sender);
            Self(receiver)
        });
        tokio::spawn(async move {
            while !senders.is_empty() {
                let told = match reader.next().await {
                    Seen::CaughtUp => Told::CaughtUp,
                    Seen::Message(stored) => match stored.decode::<Step>() {
                        Ok(step) => Told::Step(Arc::from(stored), Arc::new(step)),
                        Err(error) => {
                            tracing::error!(subject = stored.subject, %error, "a step that cannot be read");
                            continue;
                        }
                    },
                };
                let mut there = Vec::with_capacity(senders.len());
                for sender in senders {
                    if sender.send(told.clone()).await.is_ok() {
                        there.push(sender);
                    }
                }
                senders = there;
            }
        });
        followers
    }

    /// What comes next. Cancelling loses nothing.
    pub async fn next(&mut self) -> Told {
        match self.0.recv().await {
            Some(told) => told,
            // The program ends.
            None => std::future::pending().await,
        }
    }
}
