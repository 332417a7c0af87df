//! `resident broker config` and `resident broker provision`: for a broker that is not a child of `dev`.

use service::config::Settings;

use crate::broker;
use crate::failure::{Failure, say};
use crate::settings::BrokerConfig;

pub(super) fn config(settings: &Settings, listen: &str) -> Result<(), Failure> {
    let files = broker::write_files(settings, listen)?;
    say(&format!("Start the broker with: nats-server --config {}", files.config_path().display()));
    say("Then make its streams with: resident broker provision");
    Ok(())
}

pub(super) async fn provision(settings: &Settings) -> Result<(), Failure> {
    let url = broker::url(&settings.section::<BrokerConfig>()?);
    drop(broker::provision(settings, &url).await?);
    say("The streams and consumers are as the topology says.");
    Ok(())
}
