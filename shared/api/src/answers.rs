//! The answers to a card of questions.

use std::collections::BTreeMap;

use contract::messages::record::{Answer, Author, InputKind, Question};
use domain::ids::{MessageId, QuestionId};
use serde::Deserialize;

use crate::messages::Saying;
use crate::problem::Problem;

/// The text of one answer, in bytes. What is longer is a message.
const ANSWER_MAX: usize = 16 * 1024;

/// `POST …/{conversation_id}/answers`.
#[derive(Debug, Clone, Deserialize)]
pub struct AnswersBody {
    /// The card's id.
    pub decision_id: String,
    pub answers: Vec<Answered>,
    #[serde(default)]
    pub user: Option<Author>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Answered {
    pub question_id: String,
    pub answer: OneOrMore,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    One(String),
    More(Vec<String>),
}

// === impl AnswersBody ===

impl AnswersBody {
    /// The card that is meant.
    pub fn card(&self) -> Result<MessageId, Problem> {
        self.decision_id.parse().map_err(|error| mismatch("decision_id", format!("{error}")))
    }

    /// The answers as they are stored, once each is one that its question takes.
    pub fn saying(self, card: MessageId, questions: &[Question]) -> Result<Saying, Problem> {
        let mut given = BTreeMap::new();
        for (place, Answered { question_id, answer }) in self.answers.into_iter().enumerate() {
            let field = format!("answers.{place}.question_id");
            let id: QuestionId =
                question_id.parse().map_err(|error| mismatch(field.clone(), format!("{error}")))?;
            let Some(question) = questions.iter().find(|question| question.id == id) else {
                let ids: Vec<_> = questions.iter().map(|question| question.id.to_string()).collect();
                return Err(mismatch(
                    field,
                    format!("the card does not ask {id}; it asks {}", ids.join(", ")),
                ));
            };
            let answer = match answer {
                OneOrMore::One(one) => vec![one],
                OneOrMore::More(more) => more,
            };
            check(question, &answer).map_err(|why| mismatch(format!("answers.{place}.answer"), why))?;
            if given.insert(id, answer).is_some() {
                return Err(mismatch(field, format!("{id} is answered twice; answer it once")));
            }
        }
        let mut answers = Vec::new();
        for question in questions {
            let Some(answer) = given.remove(&question.id) else {
                return Err(mismatch(
                    "answers",
                    format!("{} is not answered; answer every question", question.id),
                ));
            };
            answers.push(Answer { question: question.id, text: question.text.clone(), answer });
        }
        let what = InputKind::Answer { card, answers };
        Ok(Saying { what, author: self.user, idempotency_key: None })
    }
}

fn check(question: &Question, answer: &[String]) -> Result<(), String> {
    let shown = || match (question.options.is_empty(), question.free_text) {
        (true, _) => "a text".to_owned(),
        (false, true) => format!("one of {:?}, or a text", question.options),
        (false, false) => format!("one of {:?}", question.options),
    };
    if answer.is_empty() || answer.iter().any(|answer| answer.trim().is_empty() || answer.len() > ANSWER_MAX)
    {
        return Err(format!("the answer is empty or longer than {ANSWER_MAX} bytes; give {}", shown()));
    }
    if answer.len() > 1 && !question.multiple {
        return Err(format!("{} answers are given and one is taken; give {}", answer.len(), shown()));
    }
    let foreign = answer.iter().find(|answer| !question.options.contains(answer));
    match foreign {
        Some(foreign) if !question.free_text => Err(format!("{foreign:?} is no option; give {}", shown())),
        _ => Ok(()),
    }
}

fn mismatch(field: impl Into<String>, why: impl Into<String>) -> Problem {
    Problem::Mismatch { field: field.into(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn card() -> (MessageId, Vec<Question>) {
        let card = MessageId::UNKNOWN;
        let question = |place, options: &[&str], multiple, free_text| Question {
            id: QuestionId::of(card, place),
            text: format!("question {place}"),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            multiple,
            free_text,
        };
        (card, vec![question(0, &["a", "b"], false, false), question(1, &["c", "d"], true, true)])
    }

    fn answer(first: &Value, second: &Value) -> Result<Saying, Problem> {
        let (card, questions) = card();
        let body = json!({ "decision_id": card, "answers": [
            { "question_id": questions[0].id, "answer": first },
            { "question_id": questions[1].id, "answer": second },
        ] });
        serde_json::from_value::<AnswersBody>(body).unwrap().saying(card, &questions)
    }

    #[test]
    fn what_fits_is_stored_with_what_was_asked() {
        let InputKind::Answer { answers, .. } = answer(&json!("b"), &json!(["c", "my own"])).unwrap().what
        else {
            panic!("no answer")
        };
        assert_eq!(answers[0].text, "question 0");
        assert_eq!(
            (&answers[0].answer[..], &answers[1].answer[..]),
            (&["b".into()][..], &["c".into(), "my own".into()][..])
        );
    }

    #[test]
    fn what_does_not_fit_names_its_field() {
        for (first, second, field) in [
            (json!("z"), json!("c"), "answers.0.answer"),
            (json!(["a", "b"]), json!("c"), "answers.0.answer"),
            (json!([]), json!("c"), "answers.0.answer"),
            (json!("a"), json!(" "), "answers.1.answer"),
        ] {
            match answer(&first, &second) {
                Err(Problem::Mismatch { field: found, .. }) => assert_eq!(found, field),
                other => panic!("{other:?}"),
            }
        }
        let (card, questions) = card();
        for (answers, field) in [
            (json!([]), "answers"),
            (json!([{ "question_id": "qst_x", "answer": "a" }]), "answers.0.question_id"),
            (json!([{ "question_id": QuestionId::of(card, 9), "answer": "a" }]), "answers.0.question_id"),
        ] {
            let body = json!({ "decision_id": card, "answers": answers });
            match serde_json::from_value::<AnswersBody>(body).unwrap().saying(card, &questions) {
                Err(Problem::Mismatch { field: found, .. }) => assert_eq!(found, field),
                other => panic!("{other:?}"),
            }
        }
    }
}
