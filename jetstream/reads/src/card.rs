//! A card of questions, as its agent put it.

use api::Problem;
use bus::{Nats, Reader, Seen, Start};
use contract::messages::record::{Output, OutputEntry, Question};
use contract::subjects::filter;
use contract::topology::RECORD;
use domain::ids::MessageId;
use domain::process::ConversationKey;

use crate::in_time;

/// `None` where the conversation has no such card.
pub async fn card(
    nats: &Nats,
    key: ConversationKey,
    card: MessageId,
) -> Result<Option<Vec<Question>>, Problem> {
    in_time(find(nats, key, card)).await
}

async fn find(nats: &Nats, key: ConversationKey, card: MessageId) -> Option<Vec<Question>> {
    let mut reader = Reader::open(nats, RECORD, filter::outputs(key), Start::At(1));
    while let Seen::Message(stored) = reader.next().await {
        if let Ok(OutputEntry { what: Output::Card { card: found, questions }, .. }) = stored.decode()
            && found == card
        {
            return Some(questions);
        }
    }
    None
}
