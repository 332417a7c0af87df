//! Where the agent's calls arrive.

use std::sync::Arc;

use async_trait::async_trait;
use domain::Timestamp;
use domain::segment::Ask;
use service::clock::Clock;
use service::fresh;
use tokio::sync::{mpsc, oneshot};

use crate::tools::{Asked, Calls, NewQuestion, Unavailable};

/// Calls that wait for the segment's loop; a model makes a few at once.
const CALLS_MAX: usize = 32;

#[derive(Debug)]
pub(super) enum Call {
    Ask {
        ask: Ask,
        answer: oneshot::Sender<Asked>,
    },
    Tell {
        text: String,
        answer: oneshot::Sender<()>,
    },
    /// `card` names the card for this call alone, however often the call is repeated.
    Question {
        questions: Vec<NewQuestion>,
        card: String,
        answer: oneshot::Sender<Asked>,
    },
}

/// The segment's side.
#[derive(Debug)]
pub(super) struct CallDesk {
    calls: mpsc::Receiver<Call>,
    sender: mpsc::Sender<Call>,
}

/// The tools' side.
#[derive(Debug)]
struct Handle {
    calls: mpsc::Sender<Call>,
    clock: Arc<dyn Clock>,
}

impl Default for CallDesk {
    fn default() -> Self {
        let (sender, calls) = mpsc::channel(CALLS_MAX);
        Self { calls, sender }
    }
}

impl CallDesk {
    pub(super) fn handle(&self, clock: Arc<dyn Clock>) -> Arc<dyn Calls> {
        Arc::new(Handle { calls: self.sender.clone(), clock })
    }

    pub(super) async fn next(&mut self) -> Call {
        match self.calls.recv().await {
            Some(call) => call,
            // It holds a sender itself, so the channel is never closed.
            None => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Calls for Handle {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn ask(&self, ask: Ask) -> Asked {
        let (answer, answered) = oneshot::channel();
        let gone = || Asked::Unavailable("the segment is ending; nothing was recorded".into());
        if self.calls.send(Call::Ask { ask, answer }).await.is_err() {
            return gone();
        }
        answered.await.unwrap_or_else(|_| gone())
    }

    async fn question(&self, questions: Vec<NewQuestion>, call_id: Option<String>) -> Asked {
        let (answer, answered) = oneshot::channel();
        let gone = || Asked::Unavailable("the segment is ending; nothing was asked".into());
        let card = call_id.unwrap_or_else(|| fresh::uuid().to_string());
        if self.calls.send(Call::Question { questions, card, answer }).await.is_err() {
            return gone();
        }
        answered.await.unwrap_or_else(|_| gone())
    }

    async fn tell(&self, text: String, _call_id: Option<String>) -> Result<(), Unavailable> {
        let (answer, answered) = oneshot::channel();
        let gone = || Unavailable("the segment is ending; the note was not kept".into());
        self.calls.send(Call::Tell { text, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())
    }
}
