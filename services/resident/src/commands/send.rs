//! `resident send`: a message to a conversation.

use serde_json::{Value, json};
use service::config::Settings;

use super::print;
use crate::cli::SendArgs;
use crate::client::Client;
use crate::failure::Failure;

pub(super) async fn run(settings: &Settings, args: &SendArgs) -> Result<(), Failure> {
    let client = Client::of(settings)?;
    let conversation = path_of(&client, &args.conversation).await?;
    let sent = client
        .post(&format!("{conversation}/messages"), &json!({ "text": args.text, "mode": args.mode }))
        .await?;
    if args.json {
        return print(&sent.to_string());
    }
    let text = |field: &str| sent[field].as_str().unwrap_or_default().to_owned();
    print(&format!("{} {}", text("action"), text("message_id")))
}

/// The address of a conversation, whose agent the list of processes tells.
pub(super) async fn path_of(client: &Client, conversation: &str) -> Result<String, Failure> {
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/fleet/processes?limit=200{cursor}")).await?;
        let rows = page["items"].as_array().cloned().unwrap_or_default();
        let found = rows.iter().find(|row| row["conversation_id"] == conversation);
        if let Some(agent) = found.and_then(|row| row["agent_id"].as_str()) {
            return Ok(format!("/v1/agents/{agent}/conversations/{conversation}"));
        }
        match &page["next_cursor"] {
            Value::String(next) => cursor = format!("&cursor={next}"),
            _ => return Err(Failure::NoConversation(conversation.to_owned())),
        }
    }
}
