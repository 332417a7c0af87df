//! `resident explain` and `resident history`: what a process does, and how it came to that.

use serde_json::Value;
use service::config::Settings;

use super::print;
use crate::cli::ProcessArgs;
use crate::client::Client;
use crate::failure::Failure;

pub(super) async fn explain(settings: &Settings, args: &ProcessArgs) -> Result<(), Failure> {
    let told = Client::of(settings)?.get(&format!("/v1/processes/{}/explain", args.process)).await?;
    if args.json {
        return print(&told.to_string());
    }
    print(told["sentence"].as_str().unwrap_or_default())
}

pub(super) async fn history(settings: &Settings, args: &ProcessArgs) -> Result<(), Failure> {
    let told = Client::of(settings)?.get(&format!("/v1/processes/{}/history", args.process)).await?;
    if args.json {
        return print(&told.to_string());
    }
    for step in told["items"].as_array().into_iter().flatten() {
        let text = |field: &str| step[field].as_str().unwrap_or_default();
        let facts = step["facts"].as_array().into_iter().flatten();
        let facts: Vec<_> = facts.filter_map(|fact: &Value| fact["fact"].as_str()).collect();
        print(&format!("{}  {:<10} {:<12} {}", text("at"), text("cause"), text("state"), facts.join(", ")))?;
    }
    Ok(())
}
