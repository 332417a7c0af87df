//! How far one input has come.

use api::{Entry, MessageReceipt, Problem, progress};
use bus::{Nats, Port, Reader, Seen, Start};
use contract::Subject;
use contract::messages::record::{InputEntry, InputKind};
use contract::subjects::filter;
use contract::topology::RECORD;
use domain::ids::{MessageId, RecordSeq};
use domain::process::ConversationKey;

use crate::standing::head;
use crate::{decoded, in_time};

/// `None` where the message is no input of the conversation.
pub async fn receipt(
    nats: &Nats,
    key: ConversationKey,
    message: MessageId,
) -> Result<Option<MessageReceipt>, Problem> {
    let Some(input) = message.input_of(key.conversation) else { return Ok(None) };
    let stored = nats.at(RECORD, input.0).await.map_err(|error| Problem::unreachable(&error))?;
    let Some(stored) = stored.filter(|stored| stored.subject == Subject::RecordIn(key).to_string()) else {
        return Ok(None);
    };
    let is_message =
        matches!(decoded::<InputEntry>(&stored)?.what, InputKind::Message { .. } | InputKind::Answer { .. });
    let state = head(nats, key).await?.state;
    let mut receipt = in_time(told(nats, key, input)).await?;
    if let Some(state) = &state {
        receipt.seen_in_log(input, state, is_message);
    }
    Ok(Some(receipt))
}

/// What the record tells of it, from its own entry on.
async fn told(nats: &Nats, key: ConversationKey, input: RecordSeq) -> MessageReceipt {
    let mut receipt = MessageReceipt::new(key.conversation, input);
    let mut reader = Reader::open(nats, RECORD, filter::record(key), Start::At(input.0));
    while let Seen::Message(stored) = reader.next().await {
        let entry = Entry::read(stored.sequence, stored.at, &stored.envelope);
        for progress in progress(key.conversation, &entry) {
            if progress.input == input {
                receipt.push(&progress);
            }
        }
        if receipt.is_final() {
            break;
        }
    }
    receipt
}
