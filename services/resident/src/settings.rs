//! The settings of the program: its own sections, and where all of them come from.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use executor::{AnthropicConfig, ExecutorConfig};
use secrecy::SecretString;
use service::config::{
    Catalogue, Key, Kind, Misread, Section, Settings, Sources, Url, Values, real_environment,
};
use service::telemetry::TelemetryConfig;

use crate::failure::Failure;

/// Read where it exists and no other is named.
const DEFAULT_FILE: &str = "resident.toml";

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone)]
pub(crate) struct DataConfig {
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Clone)]
pub(crate) struct ServerConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) grace: Duration,
}

#[derive(Debug, Clone)]
pub(crate) struct BrokerConfig {
    pub(crate) url: Option<Url>,
    pub(crate) nats_server: PathBuf,
    pub(crate) credentials: Option<PathBuf>,
    pub(crate) executors: u16,
    pub(crate) replicas: u16,
}

/// How the commands for people reach a server.
#[derive(Debug, Clone)]
pub(crate) struct ClientConfig {
    pub(crate) url: Option<Url>,
    pub(crate) api_key: Option<SecretString>,
}

impl Section for DataConfig {
    const NAME: &'static str = "data";
    const KEYS: &'static [Key] =
        &[Key::new("dir", Kind::Path, "Where this installation keeps its data").default(".data")];

    fn read(values: &Values<'_>) -> Result<Self, Misread> {
        Ok(Self { dir: values.get("dir")? })
    }
}

impl Section for ServerConfig {
    const NAME: &'static str = "server";
    const KEYS: &'static [Key] = &[
        Key::new("listen", Kind::SocketAddress, "The address HTTP listens on; port 0 takes a free one")
            .default("127.0.0.1:8080"),
        Key::new(
            "grace",
            Kind::duration(SECOND, HOUR),
            "How long a program that is asked to stop may take to end its turns and requests",
        )
        .default("2m"),
    ];

    fn read(values: &Values<'_>) -> Result<Self, Misread> {
        Ok(Self { listen: values.get("listen")?, grace: values.get("grace")? })
    }
}

impl Section for BrokerConfig {
    const NAME: &'static str = "broker";
    const KEYS: &'static [Key] = &[
        Key::new("url", Kind::url(&["nats", "tls"]), "The broker; `resident dev` starts its own where none is named")
            .optional(),
        Key::new(
            "nats_server",
            Kind::Path,
            "nats-server's program; a bare name is looked for in PATH and in .tools/bin",
        )
        .default("nats-server"),
        Key::new(
            "credentials",
            Kind::Path,
            "The directory with nats.conf and the keys of the broker's users; `broker` in the data directory where not named",
        )
        .optional(),
        Key::new("executors", Kind::integer(1, 10_000, "executors"), "How many executors the broker is provisioned for")
            .default("1"),
        Key::new("replicas", Kind::integer(1, 5, "replicas"), "On how many servers of a cluster each stream is kept")
            .default("1"),
    ];

    fn read(values: &Values<'_>) -> Result<Self, Misread> {
        Ok(Self {
            url: values.get("url")?,
            nats_server: values.get("nats_server")?,
            credentials: values.get("credentials")?,
            executors: values.get("executors")?,
            replicas: values.get("replicas")?,
        })
    }
}

impl Section for ClientConfig {
    const NAME: &'static str = "client";
    const KEYS: &'static [Key] = &[
        Key::new(
            "url",
            Kind::url(&["http", "https"]),
            "The server that `ps`, `run` and `send` talk to; the running dev where not named",
        )
        .optional(),
        Key::new("api_key", Kind::Secret, "The key they use; the running dev's where not named").optional(),
    ];

    fn read(values: &Values<'_>) -> Result<Self, Misread> {
        Ok(Self { url: values.get("url")?, api_key: values.get("api_key")? })
    }
}

/// Every section there is. All are needed by name only, since each has a default or may be left out.
pub(crate) fn catalogue() -> Catalogue {
    Catalogue::default()
        .needs::<DataConfig>()
        .needs::<ServerConfig>()
        .needs::<BrokerConfig>()
        .needs::<ExecutorConfig>()
        .needs::<AnthropicConfig>()
        .needs::<TelemetryConfig>()
        .needs::<ClientConfig>()
        .needs::<ingress::IngressConfig>()
        .needs::<scheduler::SchedulerConfig>()
}

/// What the command line says of settings.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    pub(crate) config: Option<PathBuf>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) nats_url: Option<String>,
}

pub(crate) fn read(flags: &Flags) -> Result<Settings, Failure> {
    let mut sources = Sources::default().environment(real_environment());
    let file =
        flags.config.clone().or_else(|| Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists()));
    if let Some(file) = file {
        sources = sources.file(file);
    }
    if let Some(dir) = &flags.data_dir {
        sources = sources.flag("--data-dir", "data.dir", dir.to_string_lossy());
    }
    if let Some(listen) = flags.listen {
        sources = sources.flag("--listen", "server.listen", listen.to_string());
    }
    if let Some(url) = &flags.nats_url {
        sources = sources.flag("--nats-url", "broker.url", url);
    }
    catalogue().read(&sources).map_err(Failure::Settings)
}

#[cfg(test)]
mod tests {
    use service::config::assert_reads_all_keys;

    use super::*;

    #[test]
    fn every_key_is_declared_and_read() {
        assert_reads_all_keys::<DataConfig>();
        assert_reads_all_keys::<ServerConfig>();
        assert_reads_all_keys::<BrokerConfig>();
        assert_reads_all_keys::<ClientConfig>();
    }
}
