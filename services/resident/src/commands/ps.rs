//! `resident ps`: the processes of the organization.

use serde_json::Value;
use service::config::Settings;

use super::print;
use crate::client::Client;
use crate::failure::Failure;

pub(super) async fn run(settings: &Settings, as_json: bool) -> Result<(), Failure> {
    let client = Client::of(settings)?;
    let mut cursor = String::new();
    if !as_json {
        print(&format!(
            "{:36}  {:36}  {:16}  {:24}  WAKES BY, LAST UPDATE",
            "PROCESS", "CONVERSATION", "STATE", "SINCE"
        ))?;
    }
    loop {
        let page = client.get(&format!("/fleet/processes?limit=200{cursor}")).await?;
        for row in page["items"].as_array().into_iter().flatten() {
            print(&if as_json { row.to_string() } else { line(row) })?;
        }
        match &page["next_cursor"] {
            Value::String(next) => cursor = format!("&cursor={next}"),
            _ => return Ok(()),
        }
    }
}

fn line(row: &Value) -> String {
    let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let state = row["substate"].as_str().map_or_else(|| text("state"), str::to_owned);
    let update =
        row["last_update"]["text"].as_str().or_else(|| row["last_update"].as_str()).unwrap_or_default();
    let update = match (text("wake"), update) {
        (wake, "") => wake,
        (wake, update) => format!("{wake}; {update}"),
    };
    format!(
        "{:36}  {:36}  {state:16}  {:24}  {update}",
        text("process_id"),
        text("conversation_id"),
        text("since")
    )
}
