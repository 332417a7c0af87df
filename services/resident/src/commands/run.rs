//! `resident run`: a task for an agent, shown as it goes. Ctrl-C ends the watching, not the task.

use std::process::ExitCode;

use futures_util::StreamExt;
use serde_json::{Value, json};
use service::config::Settings;

use super::print;
use super::show::Screen;
use crate::cli::RunArgs;
use crate::client::Client;
use crate::failure::{Failure, say};

pub(super) async fn run(settings: &Settings, args: &RunArgs) -> Result<ExitCode, Failure> {
    let client = Client::of(settings)?;
    let agent = client.agent(args.agent).await?;
    let json = args.json;
    follow(&client, &agent, &args.text, |name, data, lines| {
        if json {
            return print(&json!({ "event": name, "data": data }).to_string());
        }
        lines.iter().try_for_each(|line| print(line))
    })
    .await
}

/// Gives the agent a task and tells every event until the process ends or waits for a person.
pub(super) async fn follow(
    client: &Client,
    agent: &str,
    text: &str,
    mut tell: impl FnMut(&str, &Value, &[String]) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    let path = format!("/v1/agents/{agent}/invoke/stream");
    let mut events = client.stream(&path, &json!({ "input": { "text": text } })).await?;
    let mut screen = Screen::default();
    let mut conversation = String::new();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            _ = tokio::signal::ctrl_c() => {
                say(&format!("\nNo longer watching; the task goes on. Say more with: resident send {conversation} \"…\""));
                return Ok(ExitCode::SUCCESS);
            }
        };
        let Some(event) = event else {
            return Err(Failure::Strange("the stream ended; `resident ps` shows how the task stands".into()));
        };
        let event = event?;
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        if let Some(id) = data["conversation_id"]
            .as_str()
            .or_else(|| data["id"].as_str())
            .filter(|_| conversation.is_empty())
        {
            conversation = id.to_owned();
        }
        let lines = screen.show(&event.event, &data);
        tell(&event.event, &data, &lines)?;
        match event.event.as_str() {
            "task_finished" if data["status"] == "completed" => return Ok(ExitCode::SUCCESS),
            "task_finished" => return Ok(ExitCode::FAILURE),
            "process_state_changed" if data["process"]["substate"] == "Needs attention" => {
                return Ok(ExitCode::FAILURE);
            }
            "process_state_changed" if data["process"]["state"] == "hot_idle" => {
                say(&format!("The agent waits for you. Answer with: resident send {conversation} \"…\""));
                return Ok(ExitCode::SUCCESS);
            }
            _ => {}
        }
    }
}
