//! The executor: runs hot segments. It takes waking processes from its queues, sets up the sandbox and the harness,
//! serves what is inside, and reports. It never appends to the log: it reports, and reads there what came of it.

mod claims;
mod config;
mod drain;
pub mod endpoint;
pub mod harness;
mod lease;
pub mod lines;
pub mod model_proxy;
pub mod prompt;
mod room;
pub mod sandbox;
mod segment;
pub mod shim;
pub mod spawn;
pub mod tools;
pub mod volume;

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bus::Nats;
use domain::ids::{ExecutorId, Incarnation};
use service::Runtime;
use service::clock::Clock;
use service::shutdown::Shutdown;
use tokio::process::Command;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use config::{AnthropicConfig, ExecutorConfig};
pub use model_proxy::Provider;

use drain::Drain;
use lease::Lease;
use room::Room;
use sandbox::{BEAT_PATIENCE, Host, Programs, Sandbox, probe};
use spawn::Spawner;
use volume::{Volume, VolumeError};

/// The check that fails while no sandbox can be made. The executor claims all the same: what it claims parks and says so.
pub const SANDBOX_CHECK: &str = "executor sandbox";

/// How often a sandbox that cannot be made is tried again: a person mends it with one command.
const PROBE_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// How long the harness may take to say its version.
const VERSION_WITHIN: Duration = Duration::from_secs(30);

/// The programs an executor starts, as they lie on this machine.
#[derive(Debug, Clone)]
pub struct Found {
    pub bwrap: PathBuf,
    pub shim: PathBuf,
    pub claude_code: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("the thread that starts sandboxes cannot be made; look at the limit of processes (ulimit -u)")]
    Spawner(#[source] io::Error),
    #[error(transparent)]
    Client(#[from] service::http::ClientError),
    #[error("Claude Code at {} does not say its version: {detail}. Run `make tools`, or set executor.claude_code", path.display())]
    Harness { path: PathBuf, detail: String },
}

/// What the segments of this executor share.
#[derive(Debug)]
pub(crate) struct Executor {
    pub(crate) nats: Nats,
    pub(crate) id: ExecutorId,
    pub(crate) incarnation: Incarnation,
    pub(crate) slots: u16,
    pub(crate) park_after: Duration,
    pub(crate) park_watched_after: Duration,
    pub(crate) segment_cap: Duration,
    /// What processes that wait for a slot ask of idle segments.
    pub(crate) room: Room,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shutdown: Shutdown,
    pub(crate) drain: watch::Receiver<Drain>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) volume: Volume,
    pub(crate) sandbox: Sandbox,
    pub(crate) spawner: Spawner,
    pub(crate) client: reqwest::Client,
    pub(crate) provider: Provider,
    pub(crate) harness_version: String,
    unable: watch::Receiver<Option<String>>,
}

impl Executor {
    /// Why no segment can run here, with what mends it.
    pub(crate) fn unable(&self) -> Option<String> {
        self.unable.borrow().clone()
    }
}

/// Works until the shutdown begins, then parks what is hot, and returns when nothing is left inside.
pub async fn run(
    nats: Nats,
    runtime: Runtime,
    config: ExecutorConfig,
    found: Found,
    provider: Provider,
) -> Result<(), StartError> {
    let (check, lease_check) = (runtime.health.check(SANDBOX_CHECK), runtime.health.check("executor lease"));
    let volume = Volume::open(&config.volume)?;
    let harness_version = version_of(&found.claude_code).await?;
    let incarnation = Incarnation(service::fresh::uuid());
    let (tell_unable, unable) = watch::channel(None);
    // Known before the lease first tells of it.
    let able = look(&found.bwrap, &tell_unable).await;
    check.set(
        able.clone().map_or_else(service::health::Condition::Failed, |()| service::health::Condition::Ready),
    );
    tokio::spawn(keep_looking(found.bwrap.clone(), tell_unable, check, Arc::clone(&runtime.clock)));
    let lease =
        Arc::new(Lease::new(config.id, incarnation, config.slots, config.orgs.clone(), unable.clone()));
    let clock = Arc::clone(&runtime.clock);
    let drain = drain::follow(&nats, config.id, Arc::clone(&lease), runtime.shutdown.clone(), clock);
    let executor = Arc::new(Executor {
        nats: nats.clone(),
        id: config.id,
        incarnation,
        slots: config.slots,
        park_after: config.park_after,
        park_watched_after: config.park_watched_after,
        segment_cap: config.segment_cap,
        room: Room::new(),
        clock: Arc::clone(&runtime.clock),
        shutdown: runtime.shutdown.clone(),
        drain,
        lease: Arc::clone(&lease),
        volume,
        sandbox: Sandbox {
            programs: Programs { bwrap: found.bwrap, shim: found.shim, harness: found.claude_code },
            host: Host::read(),
            beat_patience: BEAT_PATIENCE,
        },
        spawner: Spawner::start().map_err(StartError::Spawner)?,
        client: service::http::client()?,
        provider,
        harness_version,
        unable,
    });
    let lease_stop = CancellationToken::new();
    let mut held = lease.held();
    let clock = Arc::clone(&runtime.clock);
    let keeping = tokio::spawn(Arc::clone(&lease).keep(nats.clone(), clock, lease_check, lease_stop.clone()));
    // Only who lists what it runs may run it.
    let _ = held.wait_for(|held| *held).await;
    tracing::info!(executor = %config.id, slots = config.slots, "claims");

    let segments = TaskTracker::new();
    claims::claim(Arc::clone(&executor), &nats, segments.clone(), runtime.shutdown.draining_token()).await;
    segments.close();
    segments.wait().await;
    lease_stop.cancel();
    if let Err(error) = keeping.await {
        tracing::error!(%error, "the lease");
    }
    Ok(())
}

async fn look(bwrap: &std::path::Path, tell: &watch::Sender<Option<String>>) -> Result<(), String> {
    let able = probe(bwrap).await.map_err(|unavailable| unavailable.to_string());
    tell.send_if_modified(|unable| {
        let now = able.clone().err();
        let changed = *unable != now;
        *unable = now;
        changed
    });
    able
}

/// Looks again while no sandbox can be made; what was mended is noticed without a restart.
async fn keep_looking(
    bwrap: PathBuf,
    tell: watch::Sender<Option<String>>,
    check: service::health::Check,
    clock: Arc<dyn Clock>,
) {
    while !tell.is_closed() {
        if tell.borrow().is_some() && look(&bwrap, &tell).await.is_ok() {
            check.ready();
        }
        clock.sleep(PROBE_AGAIN_AFTER).await;
    }
}

/// The version a process is pinned to.
async fn version_of(claude_code: &std::path::Path) -> Result<String, StartError> {
    let failed = |detail: String| StartError::Harness { path: claude_code.to_owned(), detail };
    let output = Command::new(claude_code)
        .arg("--version")
        .env_clear()
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(VERSION_WITHIN, output)
        .await
        .map_err(|_| failed("it did not answer".into()))?
        .map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace()
        .next()
        .map(str::to_owned)
        .ok_or_else(|| failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
