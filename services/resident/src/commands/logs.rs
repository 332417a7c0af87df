//! `resident logs`: everything that has happened in a conversation, and with `-f` what happens from here on, over ends,
//! parks and lost connections.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::Value;
use service::config::Settings;

use super::run::shown;
use super::send::path_of;
use super::show::Screen;
use crate::cli::LogsArgs;
use crate::client::Client;
use crate::failure::{Failure, say};

/// Before a lost connection is made again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

pub(super) async fn run(settings: &Settings, args: &LogsArgs) -> Result<(), Failure> {
    let client = Client::of(settings)?;
    let path = format!("{}/stream", path_of(&client, &args.conversation).await?);
    let mut screen = Screen::default();
    let mut last = "0".to_owned();
    tokio::select! {
        told = async {
            loop {
                match tell(&client, &path, args, &mut screen, &mut last).await {
                    Ok(true) => return Ok(()),
                    Err(error) if !args.follow || !error.is_of_the_way() => return Err(error),
                    Ok(false) | Err(_) => say("(the connection was lost; it is made again)"),
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        } => told,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// Tells what one connection brings; whether that is all that was asked for.
async fn tell(
    client: &Client,
    path: &str,
    args: &LogsArgs,
    screen: &mut Screen,
    last: &mut String,
) -> Result<bool, Failure> {
    let mut events = client.watch(path, Some(last)).await?;
    while let Some(event) = events.next().await {
        let event = event?;
        if !event.id.is_empty() {
            last.clone_from(&event.id);
        }
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        if event.event == "caught_up" && !args.follow {
            return Ok(true);
        }
        shown(args.json, &event.event, &data, &screen.show(&event.event, &data))?;
    }
    Ok(false)
}
