//! The index of conversations, for lists: a row is made by a conversation's first message and follows its archiving.
//! Nothing decides by it.

use bus::kv::{self, KvError};
use bus::{BusError, Port};
use contract::buckets::{Conversation, ConversationRow, Conversations};
use contract::messages::record::{InputEntry, InputKind};
use domain::ids::RecordSeq;
use domain::process::ConversationKey;

/// What is shown of a first message, in characters.
const TITLE_MAX: usize = 80;

/// Another instance's write is read again this often; a row changes a few times in its life.
const ATTEMPTS_MAX: usize = 8;

/// Follows one input. Entries come in order, so a row that knows a later one stays as it is.
pub(crate) async fn update(
    port: &dyn Port,
    key: ConversationKey,
    seq: RecordSeq,
    said: &InputEntry,
) -> Result<(), KvError> {
    let name = ConversationRow { org: key.org, agent: said.agent, conversation: key.conversation };
    for _ in 0..ATTEMPTS_MAX {
        let known = kv::get::<Conversations>(port, &name).await?;
        let Some(row) = changed(key, known.value, seq, said) else { return Ok(()) };
        match kv::put::<Conversations>(port, &name, &row, known.revision).await {
            Ok(_) => return Ok(()),
            Err(BusError::Conflict) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(BusError::Conflict.into())
}

/// The row after this input; `None` where it stays as it is.
fn changed(
    key: ConversationKey,
    row: Option<Conversation>,
    seq: RecordSeq,
    said: &InputEntry,
) -> Option<Conversation> {
    match (row, &said.what) {
        (None, InputKind::Message { text, .. }) => Some(Conversation {
            id: key.conversation,
            agent: said.agent,
            title: title(text),
            created_by: said.from,
            created_at: said.at,
            last_input: seq,
            archived_at: None,
        }),
        (Some(row), InputKind::Archive) if row.last_input < seq && row.archived_at.is_none() => {
            Some(Conversation { archived_at: Some(said.at), last_input: seq, ..row })
        }
        // A message opens an archived conversation again.
        (Some(row), InputKind::Message { .. }) if row.last_input < seq && row.archived_at.is_some() => {
            Some(Conversation { archived_at: None, last_input: seq, ..row })
        }
        _ => None,
    }
}

/// The first line that says something.
fn title(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("(empty message)");
    match line.char_indices().nth(TITLE_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
