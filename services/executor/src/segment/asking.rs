//! The agent's calls on their way to the log and back.

use contract::messages::record::{Output, Question};
use domain::ids::{MessageId, QuestionId};
use domain::process::{Card, OpenQuestion};
use domain::segment::{CallAnswer, CallNo, Signal};
use tokio::sync::oneshot;

use super::calls::Call;
use super::{Back, Task};
use crate::tools::{Asked, NewQuestion};

/// A call that waits, and the questions it put.
pub(super) struct Waiting {
    answer: oneshot::Sender<Asked>,
    questions: Vec<QuestionId>,
}

impl Task {
    pub(super) async fn called(&mut self, call: Call) -> Option<Signal> {
        match call {
            Call::Ask { ask, answer } => {
                let call = self.next_call();
                self.asked.insert(call, Waiting { answer, questions: Vec::new() });
                Some(Signal::Called { call, ask })
            }
            Call::Question { questions, card, answer } => {
                let (card, questions) = self.card(&card, questions);
                let call = self.next_call();
                let ids = questions.iter().map(|question| question.id).collect();
                self.asked.insert(call, Waiting { answer, questions: ids });
                let open =
                    |question: &Question| OpenQuestion { id: question.id, free_text: question.free_text };
                let asked = Card { id: card, questions: questions.iter().map(open).collect() };
                // The person can answer as soon as the log has the card, so its text is there before.
                let stored = self.recorder.send(Output::Card { card, questions }).await;
                self.then(async move { stored.await.ok().map(|()| Back::Carded { call, card: asked }) });
                None
            }
            Call::Tell { text, answer } => {
                let stored = self.recorder.send(Output::Note { text: text.clone() }).await;
                self.then(async move {
                    if stored.await.is_ok() {
                        let _ = answer.send(());
                    }
                    None
                });
                Some(Signal::Noted { text })
            }
        }
    }

    fn next_call(&mut self) -> CallNo {
        self.calls_made += 1;
        CallNo(self.calls_made)
    }

    /// The card of a call, with ids that follow from it.
    fn card(&self, name: &str, questions: Vec<NewQuestion>) -> (MessageId, Vec<Question>) {
        let card = MessageId::of_output(self.assignment.key.conversation, &format!("card/{name}"));
        let named = questions.into_iter().enumerate().map(|(place, question)| Question {
            id: QuestionId::of(card, place),
            text: question.text,
            options: question.options,
            multiple: question.multiple,
            free_text: question.free_text,
        });
        (card, named.collect())
    }

    pub(super) fn answer(&mut self, call: CallNo, answer: CallAnswer) {
        let Some(Waiting { answer: waiting, questions }) = self.asked.remove(&call) else { return };
        let running = self.segment.log().hot().into_iter().flat_map(|hot| &hot.running);
        // Whoever asked may be gone.
        let _ = waiting.send(match answer {
            CallAnswer::Done => {
                Asked::Done { running: running.map(|running| running.label.clone()).collect(), questions }
            }
            CallAnswer::AlreadyEnded { outcome } => Asked::AlreadyEnded { outcome },
            CallAnswer::Refused { why } => Asked::Refused { why: why.to_string() },
        });
    }
}
