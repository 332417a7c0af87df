//! `resident run`: a task for an agent, shown as it goes. Ctrl-C ends the watching, not the task.

use std::process::ExitCode;
use std::time::Duration;

use eventsource_stream::Event;
use futures_util::{Stream, StreamExt};
use serde_json::{Value, json};
use service::config::Settings;

use super::print;
use super::send::path_of;
use super::show::{Screen, plain};
use crate::cli::{AttachArgs, RunArgs, WaitArgs};
use crate::client::Client;
use crate::failure::{Failure, say};

pub(super) async fn run(settings: &Settings, args: &RunArgs) -> Result<ExitCode, Failure> {
    let client = Client::of(settings)?;
    let agent = client.agent(args.agent).await?;
    let json = args.json;
    follow(&client, &agent, &args.text, |name, data, lines| shown(json, name, data, lines)).await
}

/// Gives the agent a task and tells every event until the process ends or waits for a person.
pub(super) async fn follow(
    client: &Client,
    agent: &str,
    text: &str,
    tell: impl FnMut(&str, &Value, &[String]) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    let path = format!("/v1/agents/{agent}/invoke/stream");
    let events = client.stream(&path, &json!({ "input": { "text": text } })).await?;
    told(events, String::new(), tell).await
}

/// `resident attach`: the events of a conversation, from its last process on.
pub(super) async fn attach(settings: &Settings, args: &AttachArgs) -> Result<ExitCode, Failure> {
    let client = Client::of(settings)?;
    let path = path_of(&client, &args.conversation).await?;
    let events = client.watch(&format!("{path}/stream"), None).await?;
    let json = args.json;
    told(events, args.conversation.clone(), |name, data, lines| shown(json, name, data, lines)).await
}

/// `resident wait`: nothing is shown until there is something to do, or nothing more.
pub(super) async fn wait(settings: &Settings, args: &WaitArgs) -> Result<ExitCode, Failure> {
    let client = Client::of(settings)?;
    let path = path_of(&client, &args.conversation).await?;
    let events = client.watch(&format!("{path}/stream"), None).await?;
    let over = told(events, args.conversation.clone(), |_, _, _| Ok(()));
    let code = match args.timeout.map(Duration::from_secs) {
        None => over.await?,
        Some(limit) => {
            tokio::time::timeout(limit, over).await.map_err(|_| Failure::StillRuns { limit })??
        }
    };
    let record = client.get(&path).await?;
    if args.json {
        print(&record.to_string())?;
    } else {
        let text = |value: &Value| plain(value.as_str().unwrap_or_default());
        print(&format!("{}: {}", text(&record["status"]), text(&record["result"])))?;
    }
    Ok(code)
}

pub(super) fn shown(json: bool, name: &str, data: &Value, lines: &[String]) -> Result<(), Failure> {
    if json {
        return print(&json!({ "event": name, "data": data }).to_string());
    }
    lines.iter().try_for_each(|line| print(line))
}

async fn told(
    mut events: impl Stream<Item = Result<Event, Failure>> + Unpin,
    mut conversation: String,
    mut tell: impl FnMut(&str, &Value, &[String]) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    let mut screen = Screen::default();
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
            "process_state_changed" if data["process"]["park_reason"]["park_reason"] == "question" => {
                say(&format!("The agent asks. Answer with: resident answer {conversation} \"…\""));
                return Ok(ExitCode::SUCCESS);
            }
            "process_state_changed" if data["process"]["state"] == "hot_idle" => {
                say(&format!("The agent waits for you. Answer with: resident send {conversation} \"…\""));
                return Ok(ExitCode::SUCCESS);
            }
            _ => {}
        }
    }
}
