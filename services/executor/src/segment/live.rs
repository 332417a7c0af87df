//! The text that is being written, told to whoever watches. A viewer that comes in the middle is told the text so far.

use bus::{Heard, Nats};
use contract::Subject;
use contract::messages::assign::Assignment;
use contract::messages::live::{Beat, Delta};
use domain::ids::{Epoch, ExecutorId, MessageId};
use domain::process::ConversationKey;

/// A change of the text that is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Begun(MessageId),
    More(MessageId, String),
    /// The whole text is in the record, or it was given up.
    Over(MessageId),
}

pub(super) struct Live {
    nats: Nats,
    key: ConversationKey,
    executor: ExecutorId,
    epoch: Epoch,
    beats: Option<Heard>,
    writing: Option<(MessageId, String)>,
}

// === impl Live ===

impl Live {
    pub(super) async fn open(nats: &Nats, assignment: &Assignment, executor: ExecutorId) -> Self {
        let beats = nats.hear(Subject::Presence(assignment.key).to_string()).await;
        if let Err(error) = &beats {
            tracing::warn!(%error, "viewers are not heard");
        }
        Self {
            nats: nats.clone(),
            key: assignment.key,
            executor,
            epoch: assignment.epoch,
            beats: beats.ok(),
            writing: None,
        }
    }

    pub(super) async fn tell(&mut self, change: Change) {
        match change {
            Change::Begun(message_id) => self.writing = Some((message_id, String::new())),
            Change::More(message_id, text) => {
                let Some((writing, so_far)) = &mut self.writing else { return };
                if *writing != message_id {
                    return;
                }
                let offset = so_far.chars().count();
                so_far.push_str(&text);
                self.send(message_id, offset, text).await;
            }
            Change::Over(message_id) => {
                self.writing.take_if(|(writing, _)| *writing == message_id);
            }
        }
    }

    /// Answers one beat. Waits for it.
    pub(super) async fn serve(&mut self) {
        let beat = match &mut self.beats {
            Some(beats) => beats.next::<Beat>().await,
            None => None,
        };
        match beat {
            Some((_, Beat { wants_text: true })) => {
                if let Some((message_id, so_far)) = self.writing.clone() {
                    self.send(message_id, 0, so_far).await;
                }
            }
            Some(_) => {}
            None => std::future::pending().await,
        }
    }

    async fn send(&self, message_id: MessageId, offset: usize, text: String) {
        let delta = Delta { message_id, epoch: self.epoch, offset, text };
        self.nats.tell(Subject::Live(self.key, self.executor), &delta).await;
    }
}
