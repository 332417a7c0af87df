//! Reading the record of a conversation once, from its beginning to where it ends now.

use api::{Entry, Problem, Thread};
use bus::{Nats, Reader, Seen, Start};
use contract::subjects::filter;
use contract::topology::RECORD;
use domain::ids::RecordSeq;
use domain::process::ConversationKey;

use crate::in_time;

/// `handled` and `before` as in [`Thread::new`].
pub async fn thread(
    nats: &Nats,
    key: ConversationKey,
    handled: RecordSeq,
    before: Option<u64>,
) -> Result<Thread, Problem> {
    let mut thread = Thread::new(key, handled, before);
    let mut reader = Reader::open(nats, RECORD, filter::record(key), Start::At(1));
    let all = async {
        while let Seen::Message(stored) = reader.next().await {
            thread.push(&Entry::read(stored.sequence, stored.at, &stored.envelope));
        }
    };
    in_time(all).await?;
    Ok(thread)
}
