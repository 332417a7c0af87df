//! What the HTTP roles read of the bus, in the words of the API: who has which key, whose a conversation is, how it
//! stands, what it says, and what it will say. What may be asked and how it is answered is in `api`; nothing is written.

mod card;
mod directory;
mod history;
mod receipt;
mod rows;
mod standing;
mod thread;
mod watch;

pub use card::card;
pub use directory::{conversation_of, directory};
pub use history::history;
pub use receipt::receipt;
pub use rows::rows;
pub use standing::{Head, head, queued, standing, started_by};
pub use thread::thread;
pub use watch::{Watch, watch};

use std::time::Duration;

use api::Problem;
use bus::Stored;
use bus::kv::KvError;
use contract::Message;

/// How long one answer may take to be read. The broker gives some ten thousand entries a second; what takes longer is
/// not had in one answer.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// A reader waits for a broker that is away; whoever asked does not.
pub async fn in_time<T>(read: impl Future<Output = T>) -> Result<T, Problem> {
    tokio::time::timeout(READ_WITHIN, read).await.map_err(|elapsed| Problem::unreachable(&elapsed))
}

/// A row that could not be had, as it is answered.
pub fn row_problem(error: &KvError) -> Problem {
    match error {
        KvError::Bus(error) => Problem::unreachable(error),
        KvError::Malformed { .. } => Problem::internal(error, "a stored row cannot be read"),
    }
}

/// A message that was stored, or that it cannot be read.
pub fn decoded<M: Message>(stored: &Stored) -> Result<M, Problem> {
    stored.decode().map_err(|error| Problem::internal(&error, "a stored message cannot be read"))
}
