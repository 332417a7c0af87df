//! A broker of our own: the keys of its users, its configuration file, and nats-server as a child process. `resident dev`
//! and the tests run one; elsewhere it runs by itself on the same file.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use contract::broker::{BrokerSettings, render, user_names};
use contract::topology::{Fleet, SERVER_VERSION_MIN};
use nkeys::KeyPair;
use tokio::process::{Child, Command};

use crate::connect::Credentials;

/// How long nats-server may take until it listens. With a large store after a crash it reads about 1 GB a second.
const READY_WITHIN: Duration = Duration::from_secs(60);
const READY_POLL: Duration = Duration::from_millis(20);

/// How long it may take to stop; it flushes its consumers one after another.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// What is shown of the server's log when it does not start.
const LOG_SHOWN_LINES: usize = 5;

/// Where a broker of ours keeps its configuration, its users' seeds and its streams.
#[derive(Debug, Clone)]
pub struct BrokerDir(PathBuf);

/// nats-server as a child. Dropping it kills the server; [`Server::stop`] lets it finish.
#[derive(Debug)]
pub struct Server {
    child: Child,
    url: String,
}

#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error("cannot write {path}: {source}. Make the directory writable or choose another with --data-dir")]
    Write { path: PathBuf, source: std::io::Error },
    #[error(
        "cannot read the broker credentials {path}: {source}. They are made by `resident dev` or `resident broker config`"
    )]
    Credentials { path: PathBuf, source: std::io::Error },
    #[error("cannot make a broker key: {0}")]
    Key(nkeys::error::Error),
    #[error(
        "cannot run nats-server at {path}: {source}. Run `make tools`, or set broker.nats_server to its path"
    )]
    Run { path: PathBuf, source: std::io::Error },
    #[error(
        "nats-server at {path} is version {found}; {}.{}.{} or newer is needed. Run `make tools`, or set broker.nats_server to a newer one",
        SERVER_VERSION_MIN.0, SERVER_VERSION_MIN.1, SERVER_VERSION_MIN.2
    )]
    TooOld { path: PathBuf, found: String },
    #[error("nats-server did not start: {detail}. Its log is {log}")]
    NotReady { detail: String, log: PathBuf },
}

// === impl BrokerDir ===

impl BrokerDir {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self(dir.into())
    }

    pub fn config_path(&self) -> PathBuf {
        self.0.join("nats.conf")
    }

    fn seed_path(&self, user: &str) -> PathBuf {
        self.0.join("credentials").join(format!("{user}.nk"))
    }

    fn log_path(&self) -> PathBuf {
        self.0.join("nats-server.log")
    }

    pub fn pid_path(&self) -> PathBuf {
        self.0.join("nats-server.pid")
    }

    /// Makes what is missing of the users' keys, and the configuration file. `listen` with port -1 takes a free port.
    pub fn prepare(&self, fleet: &Fleet, listen: &str) -> Result<(), BrokerError> {
        for dir in [self.0.clone(), self.0.join("credentials"), self.0.join("ports")] {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .map_err(|source| BrokerError::Write { path: dir, source })?;
        }
        let mut public_keys = BTreeMap::new();
        for user in user_names(fleet) {
            let public_key = self.key_of(&user)?;
            public_keys.insert(user, public_key);
        }
        let store_dir = self.0.join("jetstream");
        let settings =
            BrokerSettings { listen, store_dir: &store_dir.to_string_lossy(), public_keys: &public_keys };
        write_private(&self.config_path(), render(fleet, &settings).as_bytes())
    }

    /// The seed of a user's key.
    pub fn credentials(&self, user: &str) -> Result<Credentials, BrokerError> {
        let path = self.seed_path(user);
        let seed = fs::read_to_string(&path).map_err(|source| BrokerError::Credentials { path, source })?;
        Ok(Credentials { user: user.to_owned(), seed: seed.trim().to_owned() })
    }

    /// The public key of a user, whose seed is made where there is none.
    fn key_of(&self, user: &str) -> Result<String, BrokerError> {
        let path = self.seed_path(user);
        if path.exists() {
            let seed = self.credentials(user)?.seed;
            return Ok(KeyPair::from_seed(&seed).map_err(BrokerError::Key)?.public_key());
        }
        let pair = KeyPair::new_user();
        write_private(&path, pair.seed().map_err(BrokerError::Key)?.as_bytes())?;
        Ok(pair.public_key())
    }
}

// === impl Server ===

impl Server {
    /// Starts nats-server on the prepared configuration and waits until it listens.
    pub async fn start(nats_server: &Path, dir: &BrokerDir) -> Result<Self, BrokerError> {
        check_version(nats_server).await?;
        end_orphan(dir).await;
        let log = dir.log_path();
        let open =
            fs::File::create(&log).map_err(|source| BrokerError::Write { path: log.clone(), source })?;
        let ports = dir.0.join("ports");
        let mut child = Command::new(nats_server)
            .arg("--config")
            .arg(dir.config_path())
            .arg("--ports_file_dir")
            .arg(&ports)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(open)
            .kill_on_drop(true)
            // Ctrl-C at the terminal is for us: the server stops last.
            .process_group(0)
            .spawn()
            .map_err(|source| BrokerError::Run { path: nats_server.to_owned(), source })?;
        let pid = child.id().unwrap_or_default();
        write_private(&dir.pid_path(), pid.to_string().as_bytes())?;
        let ports_file = ports.join(format!("nats-server_{pid}.ports"));
        let polls = READY_WITHIN.as_millis() / READY_POLL.as_millis();
        for _ in 0..polls {
            if let Some(url) = listening_at(&ports_file) {
                return Ok(Self { child, url });
            }
            if let Ok(Some(status)) = child.try_wait() {
                let detail = format!("it ended with {status}: {}", last_lines(&log));
                return Err(BrokerError::NotReady { detail, log });
            }
            tokio::time::sleep(READY_POLL).await;
        }
        Err(BrokerError::NotReady { detail: format!("it does not listen after {READY_WITHIN:?}"), log })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns when the server has ended by itself.
    pub async fn ended(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Asks the server to end, and waits.
    pub async fn stop(mut self) {
        if let Some(pid) = self.child.id() {
            signal(pid, "TERM").await;
            if tokio::time::timeout(STOP_WITHIN, self.child.wait()).await.is_ok() {
                return;
            }
        }
        let _ = self.child.kill().await;
    }
}

async fn check_version(nats_server: &Path) -> Result<(), BrokerError> {
    let path = || nats_server.to_owned();
    let output = Command::new(nats_server)
        .arg("--version")
        .env_clear()
        .output()
        .await
        .map_err(|source| BrokerError::Run { path: path(), source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.trim().rsplit(['v', ' ']).next().unwrap_or_default().to_owned();
    match parse_version(&found) {
        Some(version) if version >= SERVER_VERSION_MIN => Ok(()),
        _ => Err(BrokerError::TooOld { path: path(), found }),
    }
}

fn parse_version(text: &str) -> Option<(u64, u64, u64)> {
    let mut parts = text.split(['.', '-']).map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?))
}

/// A server that outlived a killed parent still holds the store. Whoever starts one owns the directory, so it may go.
async fn end_orphan(dir: &BrokerDir) {
    let Ok(pid) = fs::read_to_string(dir.pid_path()) else { return };
    let Ok(pid) = pid.trim().parse::<u32>() else { return };
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let ours = String::from_utf8_lossy(&command).contains(&*dir.config_path().to_string_lossy());
    if !ours {
        return;
    }
    tracing::info!(pid, "ending a nats-server that was left behind");
    signal(pid, "TERM").await;
    let polls = STOP_WITHIN.as_millis() / READY_POLL.as_millis();
    for _ in 0..polls {
        if !Path::new(&format!("/proc/{pid}")).exists() {
            return;
        }
        tokio::time::sleep(READY_POLL).await;
    }
    signal(pid, "KILL").await;
}

async fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().await;
    if let Err(error) = sent {
        tracing::warn!(pid, %error, "kill");
    }
}

/// The client address in the file the server writes once it listens.
fn listening_at(ports_file: &Path) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Ports {
        nats: Vec<String>,
    }
    let ports: Ports = serde_json::from_slice(&fs::read(ports_file).ok()?).ok()?;
    ports.nats.into_iter().next()
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_SHOWN_LINES)..].join(" | ")
}

fn write_private(path: &Path, bytes: &[u8]) -> Result<(), BrokerError> {
    let failed = |source| BrokerError::Write { path: path.to_owned(), source };
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    file.write_all(bytes).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_server_prints_them() {
        assert_eq!(parse_version("2.15.1"), Some((2, 15, 1)));
        assert_eq!(parse_version("2.15.0-RC.1"), Some((2, 15, 0)));
        assert_eq!(parse_version("2.9"), None);
    }
}
