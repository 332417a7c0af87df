//! Reading logs as a test sees them.

use bus::{Nats, Reader, Seen, Start};
use contract::subjects::filter;
use contract::topology::PROCESS;
use domain::process::{ConversationKey, Step};

/// Every step of a conversation, in order. Read as a user that may open readers of all logs.
pub async fn steps(nats: &Nats, key: ConversationKey) -> Vec<Step> {
    under(nats, filter::log(key)).await
}

/// Every step of the installation, in order.
pub async fn all(nats: &Nats) -> Vec<Step> {
    under(nats, filter::all_logs()).await
}

async fn under(nats: &Nats, filter: String) -> Vec<Step> {
    let mut reader = Reader::open(nats, PROCESS, filter, Start::At(1));
    let mut steps = Vec::new();
    loop {
        match reader.next().await {
            Seen::Message(stored) => steps.push(stored.decode().expect("a step")),
            Seen::CaughtUp => return steps,
        }
    }
}
