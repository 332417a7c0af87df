//! Following a conversation for a stream, or for an answer.

use api::{Entry, Next, Source};
use bus::{Fanout, Followed, Follower, Item, Nats};
use contract::Subject;
use contract::messages::live::Beat;
use domain::process::ConversationKey;

#[derive(Debug)]
pub struct Watch {
    follower: Follower,
    nats: Nats,
    key: ConversationKey,
}

/// Watches from behind the record sequence `after`.
pub async fn watch(fanout: &Fanout, nats: &Nats, key: ConversationKey, after: u64) -> Watch {
    Watch { follower: fanout.follow(key, after).await, nats: nats.clone(), key }
}

impl Source for Watch {
    async fn next(&mut self) -> Next {
        match self.follower.next().await {
            Followed::Item(Item::Entry(stored)) => {
                Next::Entry(Entry::read(stored.sequence, stored.at, &stored.envelope))
            }
            Followed::Item(Item::Delta(delta)) => Next::Delta(delta),
            Followed::CaughtUp => Next::CaughtUp,
            Followed::Closed => Next::Closed,
        }
    }

    async fn beat(&self, wants_text: bool) {
        self.nats.tell(Subject::Presence(self.key), &Beat { wants_text }).await;
    }
}
