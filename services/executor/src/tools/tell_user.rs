//! `tell_user`: a note of progress to the person, and questions that need an answer.

use domain::ids::QuestionId;
use domain::policy::QUESTIONS_OPEN_MAX;
use domain::segment::Ask;
use rmcp::handler::server::tool::schema_for_type;
use rmcp::model::{CallToolResult, JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Asked, Calls, NewQuestion, already_ended, declined, read, said, unavailable};

pub(super) const NAME: &str = "tell_user";

/// A note is read in passing, in a chat; what is longer belongs into a file or the agent's own text.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// A question is read in passing too.
const QUESTION_BYTES_MAX: usize = 4 * 1024;

/// Options of one question. A person chooses among a handful.
const OPTIONS_MAX: usize = 20;
const OPTION_BYTES_MAX: usize = 500;

const DESCRIPTION: &str = "Tells the person how the work stands, while it goes on: one or two sentences, at once \
    visible in the conversation. It is a note, not an exit: it ends neither your turn nor your process. With questions \
    it puts a card before the person, and answers with the questions' ids; the answer comes as a message, at once or \
    in days. When you cannot go on without it, call wait_for with {\"source\": \"question\", \"id\": …} and end your turn; \
    else go on. Take back a question that no longer matters with withdraw: an open one holds finish_process.";

const TAKES: &str = "tell_user takes text, a note of 1 to 16384 bytes, and may take questions and withdraw";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The note. At most 16384 bytes.
    text: String,
    /// What you need to know from the person.
    #[serde(default)]
    questions: Vec<Question>,
    /// Ids of open questions that no longer matter.
    #[serde(default)]
    withdraw: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Question {
    /// The question, complete in itself.
    text: String,
    /// The answers to choose from; none for a free text.
    #[serde(default)]
    options: Vec<String>,
    /// Whether more than one option may be chosen.
    #[serde(default)]
    multiple: bool,
    /// Whether a text that is none of the options is an answer too. Default: true.
    free_text: Option<bool>,
}

pub(super) fn tool() -> Tool {
    Tool::new(NAME, DESCRIPTION, schema_for_type::<Arguments>())
}

pub(super) async fn call(
    calls: &dyn Calls,
    arguments: JsonObject,
    call_id: Option<String>,
) -> CallToolResult {
    let Arguments { text, questions, withdraw } = match read(arguments, TAKES) {
        Ok(arguments) => arguments,
        Err(answer) => return answer,
    };
    let checked =
        check(&text).and_then(|()| new_questions(questions)).and_then(|new| Ok((new, ids(&withdraw)?)));
    let (questions, withdraw) = match checked {
        Ok(checked) => checked,
        Err(why) => return declined(format!("Nothing was told: {why}. {TAKES}. Call it again.")),
    };
    if !withdraw.is_empty() {
        match calls.ask(Ask::Withdraw { questions: withdraw }).await {
            Asked::Done { .. } => {}
            other => return refused(other),
        }
    }
    if let Err(why) = calls.tell(text, call_id.clone()).await {
        return unavailable(&why.0);
    }
    if questions.is_empty() {
        return said("Told. Go on with the work.");
    }
    match calls.question(questions, call_id).await {
        Asked::Done { questions, .. } => {
            let ids: Vec<_> = questions.iter().map(ToString::to_string).collect();
            said(format!(
                "Asked: {}. The answer comes as a message. If you cannot go on without it, call wait_for with the \
                 question's id and end your turn; else go on with the work.",
                ids.join(", ")
            ))
        }
        other => refused(other),
    }
}

fn refused(asked: Asked) -> CallToolResult {
    match asked {
        Asked::Done { .. } => said("Told."),
        Asked::AlreadyEnded { outcome } => already_ended(&outcome),
        Asked::Refused { why } => declined(format!("Nothing was asked or taken back: {why}.")),
        Asked::Unavailable(why) => unavailable(&why),
    }
}

fn check(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("the text is empty".into());
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!(
            "the text has {} bytes, and may have {TEXT_BYTES_MAX}; put what is longer into a file of the working tree \
             and say where it is",
            text.len()
        ));
    }
    Ok(())
}

fn new_questions(questions: Vec<Question>) -> Result<Vec<NewQuestion>, String> {
    if questions.len() > QUESTIONS_OPEN_MAX {
        return Err(format!("{} questions are too many, {QUESTIONS_OPEN_MAX} may be open", questions.len()));
    }
    questions.into_iter().enumerate().map(|(place, question)| new_question(place + 1, question)).collect()
}

fn new_question(place: usize, question: Question) -> Result<NewQuestion, String> {
    let Question { text, options, multiple, free_text } = question;
    if text.trim().is_empty() || text.len() > QUESTION_BYTES_MAX {
        return Err(format!(
            "question {place} has {} bytes, and may have 1 to {QUESTION_BYTES_MAX}",
            text.len()
        ));
    }
    let wrong = |option: &String| option.trim().is_empty() || option.len() > OPTION_BYTES_MAX;
    if options.len() > OPTIONS_MAX || options.iter().any(wrong) {
        return Err(format!(
            "question {place} may have up to {OPTIONS_MAX} options of 1 to {OPTION_BYTES_MAX} bytes each"
        ));
    }
    let mut sorted = options.clone();
    sorted.sort();
    sorted.dedup();
    if sorted.len() < options.len() {
        return Err(format!("question {place} names an option twice"));
    }
    let free_text = free_text.unwrap_or(true);
    if options.is_empty() && !free_text {
        return Err(format!("question {place} has no options and takes no text, so nobody could answer it"));
    }
    Ok(NewQuestion { text, options, multiple, free_text })
}

fn ids(withdraw: &[String]) -> Result<Vec<QuestionId>, String> {
    withdraw.iter().map(|id| id.parse().map_err(|error| format!("{error}"))).collect()
}
