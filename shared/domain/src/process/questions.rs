//! Questions of the agent to the person. A card is open until it is answered, taken back, or its process has ended; the
//! first answer wins. Texts and options stand in the record, ids here.

use serde::{Deserialize, Serialize};

use super::{Arrived, Change, Fact, State, WaitClosed, WaitOn, message};
use crate::Refusal;
use crate::ids::{MessageId, QuestionId};
use crate::policy;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    pub id: MessageId,
    pub questions: Vec<OpenQuestion>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenQuestion {
    pub id: QuestionId,
    /// Whether a text that is none of the options answers it.
    pub free_text: bool,
}

/// Why a card is no longer open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CardClosed {
    Answered,
    /// The agent took it back.
    Withdrawn,
    /// The process has ended.
    Expired,
}

pub(super) fn asked(state: &mut State, card: &Card) -> Vec<Fact> {
    if state.cards.iter().any(|known| known.id == card.id) {
        return vec![];
    }
    let open: usize = state.cards.iter().map(|card| card.questions.len()).sum();
    if open + card.questions.len() > policy::QUESTIONS_OPEN_MAX {
        return vec![Fact::Refused { input: None, why: Refusal::TooManyQuestions { open } }];
    }
    state.cards.push(card.clone());
    vec![Fact::Asked { card: card.id }]
}

/// The agent takes questions back; a card without any left is closed.
pub(super) fn withdrawn(state: &mut State, questions: &[QuestionId]) -> Vec<Fact> {
    let unknown: Vec<_> =
        questions.iter().copied().filter(|id| !state.cards.iter().any(|card| card.asks(*id))).collect();
    if !unknown.is_empty() {
        return vec![Fact::Refused { input: None, why: Refusal::NoSuchQuestion { questions: unknown } }];
    }
    let mut facts = vec![Fact::Withdrawn { questions: questions.to_vec() }];
    for card in &mut state.cards {
        card.questions.retain(|question| !questions.contains(&question.id));
    }
    let empty = |card: &Card| card.questions.is_empty();
    facts.extend(
        state
            .cards
            .iter()
            .filter(|card| empty(card))
            .map(|card| Fact::CardClosed { card: card.id, closed: CardClosed::Withdrawn }),
    );
    state.cards.retain(|card| !empty(card));
    facts.extend(state.close_wait_on(questions));
    facts
}

/// An answer is a steer that closes its card.
pub(super) fn answered(arrived: &Arrived<'_>, card: MessageId, questions: &[QuestionId]) -> Change {
    let Some(state) = arrived.last else { return arrived.refused(Refusal::CardClosed { card }) };
    if let super::Phase::Ended { exit, .. } = &state.phase {
        return arrived.refused(Refusal::AlreadyEnded { exit: exit.clone() });
    }
    let Some(open) = state.cards.iter().find(|open| open.id == card) else {
        return arrived.refused(Refusal::CardClosed { card });
    };
    let mut expected: Vec<_> = open.questions.iter().map(|question| question.id).collect();
    let mut found = questions.to_vec();
    expected.sort();
    found.sort();
    if expected != found {
        return arrived.refused(Refusal::AnswerMismatch { card, expected });
    }
    let mut change = message::steer(arrived, state.clone(), super::Mode::Auto);
    change.facts.extend(change.state.close_card(card));
    change
}

impl State {
    /// The card of the only open question, where a typed text answers it.
    pub(super) fn answered_by_text(&self) -> Option<MessageId> {
        match self.cards.as_slice() {
            [Card { id, questions }] => match questions.as_slice() {
                [OpenQuestion { free_text: true, .. }] => Some(*id),
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) fn close_card(&mut self, card: MessageId) -> Vec<Fact> {
        let Some(at) = self.cards.iter().position(|open| open.id == card) else { return vec![] };
        let closed = self.cards.remove(at);
        let questions: Vec<_> = closed.questions.iter().map(|question| question.id).collect();
        let mut facts = vec![Fact::CardClosed { card, closed: CardClosed::Answered }];
        facts.extend(self.close_wait_on(&questions));
        facts
    }

    pub(super) fn expire_cards(&mut self) -> Vec<Fact> {
        let cards = std::mem::take(&mut self.cards);
        cards
            .into_iter()
            .map(|card| Fact::CardClosed { card: card.id, closed: CardClosed::Expired })
            .collect()
    }

    fn close_wait_on(&mut self, questions: &[QuestionId]) -> Vec<Fact> {
        let waits = self.wait.as_ref().is_some_and(
            |wait| matches!(&wait.on, WaitOn::Answer { question } if questions.contains(question)),
        );
        if waits { self.close_wait(WaitClosed::Answered) } else { vec![] }
    }
}

impl Card {
    pub fn asks(&self, question: QuestionId) -> bool {
        self.questions.iter().any(|open| open.id == question)
    }
}
