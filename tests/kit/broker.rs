//! A real nats-server for one test: own port, own store, own users, gone with the test.

use std::path::{Path, PathBuf};

use bus::broker::{BrokerDir, Server};
use bus::{Credentials, Nats};
use contract::topology::{ExecutorSpec, Fleet, OPERATOR};
use domain::ids::ExecutorId;
use tempfile::TempDir;

use crate::wait::soon;

#[derive(Debug)]
pub struct Broker {
    dir: TempDir,
    fleet: Fleet,
    server: Option<Server>,
    port: u16,
}

/// Where `make tools` has put what the project runs on.
pub fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/bin")
}

pub fn nats_server() -> PathBuf {
    let path = tools().join("nats-server");
    assert!(path.exists(), "{} is missing; run `make tools`", path.display());
    path
}

/// A fleet of `count` executors that serve every organization.
pub fn fleet(count: u16) -> Fleet {
    Fleet { executors: (0..count).map(|n| ExecutorSpec { id: ExecutorId(n), orgs: Vec::new() }).collect() }
}

impl Broker {
    /// Starts and provisions a broker for a fleet of one executor.
    pub async fn start() -> Self {
        Self::for_fleet(fleet(1)).await
    }

    pub async fn for_fleet(fleet: Fleet) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let files = BrokerDir::new(dir.path());
        files.prepare(&fleet, "127.0.0.1:-1").expect("broker files");
        let server = Server::start(&nats_server(), &files).await.expect("nats-server");
        let port = server.url().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        let broker = Self { dir, fleet, server: Some(server), port };
        let operator = broker.connect(OPERATOR).await;
        bus::provision::provision(&operator, &broker.fleet, 1).await.expect("provision");
        broker
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Where its configuration and its users' keys are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn files(&self) -> BrokerDir {
        BrokerDir::new(self.dir.path())
    }

    pub fn credentials(&self, user: &str) -> Credentials {
        self.files().credentials(user).expect("credentials")
    }

    pub async fn connect(&self, user: &str) -> Nats {
        Nats::connect(&self.url(), &self.credentials(user), user).await.expect("connect")
    }

    /// The broker as its operator sees it, for what the project itself never asks.
    pub async fn jetstream(&self) -> async_nats::jetstream::Context {
        let options = async_nats::ConnectOptions::with_nkey(self.credentials(OPERATOR).seed);
        let client =
            options.custom_inbox_prefix("_INBOX_operator").connect(self.url()).await.expect("connected");
        async_nats::jetstream::new(client)
    }

    /// Kills the server without warning. What was acknowledged has to be there after [`Broker::restart`].
    pub fn kill(&mut self) {
        drop(self.server.take());
    }

    /// Sends the server a signal by its name (`STOP`, `CONT`).
    pub async fn signal(&self, name: &str) {
        let pid = std::fs::read_to_string(self.files().pid_path()).expect("a pid");
        crate::signal(name, pid.trim()).await;
    }

    /// Starts the server again on the same port and store.
    pub async fn restart(&mut self) {
        self.kill();
        self.files().prepare(&self.fleet, &format!("127.0.0.1:{}", self.port)).expect("broker files");
        // The port may be taken for a moment by what was killed.
        let server =
            soon("the restarted broker", async || Server::start(&nats_server(), &self.files()).await).await;
        self.server = Some(server);
    }
}
