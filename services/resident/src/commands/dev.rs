//! `resident dev`.

use serde_json::json;
use service::config::Settings;
use service::telemetry::{Speaker, TelemetryConfig, init};

use super::print;
use crate::dev::{self, Dev};
use crate::failure::{Failure, say};

pub(super) async fn run(settings: &Settings, as_json: bool) -> Result<(), Failure> {
    let clock = std::sync::Arc::new(service::clock::RealClock::start());
    let speaker = Speaker { role: "dev".into(), instance: std::process::id().to_string() };
    let telemetry = init(&settings.section::<TelemetryConfig>()?, speaker, clock)?;
    let dev = dev::start(settings).await?;
    if as_json {
        print(&ready_line(&dev))?;
    } else {
        welcome(&dev);
    }
    let result = dev.ended().await;
    telemetry.flush().await;
    result
}

fn ready_line(dev: &Dev) -> String {
    json!({
        "url": dev.roles.url,
        "api_key": dev.installation.api_key,
        "nats_url": dev.nats_url,
        "data_dir": dev.data_dir.path(),
    })
    .to_string()
}

fn welcome(dev: &Dev) {
    let Dev { installation, roles, .. } = dev;
    say(&format!("\nResident is ready.\n\n  address   {}\n  API key   {}", roles.url, installation.api_key));
    say(&format!("  agent     {}", installation.agent));
    say(&format!("  data      {}", dev.data_dir.path().display()));
    if dev.demo {
        say("\nNo provider is set, so the demo model answers: it plays a small job with the real harness.");
        say("Set ANTHROPIC_API_KEY for a real model.");
    }
    if let Some(unable) = &dev.unable {
        say(&format!("\nNo task can run yet: {unable}"));
        say(
            "Until then processes park as \"Needs attention: sandbox unavailable\"; afterwards a message wakes them.",
        );
    }
    say(
        "\nTry next, in another terminal:\n\n  target/debug/resident run \"Write a small program and run it\"\n",
    );
    say("Ctrl-C stops; what runs is parked and goes on at the next start.");
}
