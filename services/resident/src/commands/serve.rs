//! `resident serve <role>…`.

use serde_json::json;
use service::config::Settings;
use service::telemetry::{Speaker, TelemetryConfig, init};

use super::print;
use crate::broker;
use crate::failure::Failure;
use crate::serve::{self, Role};
use crate::settings::BrokerConfig;

pub(super) async fn run(settings: &Settings, names: &[String], as_json: bool) -> Result<(), Failure> {
    let roles = names.iter().map(|name| Role::parse(name)).collect::<Result<Vec<_>, _>>()?;
    let runtime = serve::runtime(settings)?;
    let speaker = Speaker { role: names.join("+"), instance: std::process::id().to_string() };
    let telemetry = init(&settings.section::<TelemetryConfig>()?, speaker, runtime.clock.clone())?;
    runtime.shutdown.on_signals()?;
    let listener = serve::listener(settings).await?;
    let nats_url = broker::url(&settings.section::<BrokerConfig>()?);
    let provider = serve::provider(settings)?;
    let mut running = serve::start(settings, &roles, &nats_url, listener, provider, runtime).await?;
    running.ready().await?;
    tracing::info!(roles = names.join(" "), url = running.url, "ready");
    if as_json {
        print(&json!({ "url": running.url, "roles": names }).to_string())?;
    }
    let result = running.ended().await;
    telemetry.flush().await;
    result
}
