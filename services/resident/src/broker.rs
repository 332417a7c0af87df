//! The broker of an installation: its files, and who connects to it.

use std::path::PathBuf;

use bus::broker::{BrokerDir, Server};
use bus::{Nats, provision};
use contract::topology::{ExecutorSpec, Fleet, OPERATOR};
use domain::ids::ExecutorId;
use service::config::Settings;

use crate::failure::Failure;
use crate::programs;
use crate::settings::{BrokerConfig, DataConfig};

/// A child's address; it takes a free port.
const ANY_PORT: &str = "127.0.0.1:-1";

pub(crate) fn files(settings: &Settings) -> Result<BrokerDir, Failure> {
    Ok(BrokerDir::new(directory(settings)?))
}

fn directory(settings: &Settings) -> Result<PathBuf, Failure> {
    let broker = settings.section::<BrokerConfig>()?;
    Ok(broker.credentials.unwrap_or(settings.section::<DataConfig>()?.dir.join("broker")))
}

pub(crate) fn fleet(config: &BrokerConfig) -> Fleet {
    let executors = (0..config.executors).map(|n| ExecutorSpec { id: ExecutorId(n), orgs: Vec::new() });
    Fleet { executors: executors.collect() }
}

pub(crate) fn url(config: &BrokerConfig) -> String {
    config.url.as_ref().map_or_else(
        || "nats://127.0.0.1:4222".to_owned(),
        |url| url.as_str().trim_end_matches('/').to_owned(),
    )
}

/// Writes nats.conf and the keys.
pub(crate) fn write_files(settings: &Settings, listen: &str) -> Result<BrokerDir, Failure> {
    let files = files(settings)?;
    files.prepare(&fleet(&settings.section::<BrokerConfig>()?), listen)?;
    Ok(files)
}

/// Starts nats-server as a child on its own port.
pub(crate) async fn start_child(settings: &Settings) -> Result<Server, Failure> {
    let config = settings.section::<BrokerConfig>()?;
    let program = programs::found("nats-server", &config.nats_server, "broker.nats_server")?;
    let files = write_files(settings, ANY_PORT)?;
    Ok(Server::start(&program, &files).await?)
}

pub(crate) async fn connect(settings: &Settings, url: &str, user: &str) -> Result<Nats, Failure> {
    let credentials = files(settings)?.credentials(user)?;
    Ok(Nats::connect(url, &credentials, &format!("resident {user}")).await?)
}

/// Connects as the operator and brings the streams to what the topology says.
pub(crate) async fn provision(settings: &Settings, url: &str) -> Result<Nats, Failure> {
    let config = settings.section::<BrokerConfig>()?;
    let operator = connect(settings, url, OPERATOR).await?;
    provision::provision(&operator, &fleet(&config), usize::from(config.replicas)).await?;
    Ok(operator)
}
