//! `resident answer`: the answer to the open question of a conversation.

use serde_json::{Value, json};
use service::config::Settings;

use super::print;
use super::send::path_of;
use crate::cli::AnswerArgs;
use crate::client::Client;
use crate::failure::Failure;

pub(super) async fn run(settings: &Settings, args: &AnswerArgs) -> Result<(), Failure> {
    let client = Client::of(settings)?;
    let base = path_of(&client, &args.conversation).await?;
    let record = client.get(&base).await?;
    let activity = record["activity"].as_array().cloned().unwrap_or_default();
    let is_open = |entry: &&Value| entry["type"] == "ask_user_questions" && entry["status"] == "open";
    let card = activity.iter().rev().find(is_open).ok_or(Failure::NoQuestion)?;
    let questions = card["questions"].as_array().cloned().unwrap_or_default();
    if questions.len() != args.answers.len() {
        let asked: Vec<_> =
            questions.iter().map(|question| question["text"].as_str().unwrap_or_default()).collect();
        return Err(Failure::AnswersMissing { given: args.answers.len(), asked: asked.join(" / ") });
    }
    let answers: Vec<_> = questions
        .iter()
        .zip(&args.answers)
        .map(|(question, answer)| json!({ "question_id": question["id"], "answer": answer }))
        .collect();
    let body = json!({ "decision_id": card["decision_id"], "answers": answers });
    let sent = client.post(&format!("{base}/answers"), &body).await?;
    if args.json {
        return print(&sent.to_string());
    }
    print(&format!("answered {}", sent["message_id"].as_str().unwrap_or_default()))
}
