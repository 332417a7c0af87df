//! Reading the record of a conversation once, from its beginning to where it ends now.

use std::time::Duration;

use api::{Entry, Problem, Thread};
use bus::{Nats, Reader, Seen, Start};
use contract::subjects::filter;
use contract::topology::RECORD;
use domain::ids::RecordSeq;
use domain::process::ConversationKey;

/// The broker gives some ten thousand entries a second; a record that takes longer is not had in one answer.
const READ_WITHIN: Duration = Duration::from_secs(10);

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
    tokio::time::timeout(READ_WITHIN, all).await.map_err(|elapsed| Problem::unreachable(&elapsed))?;
    Ok(thread)
}
