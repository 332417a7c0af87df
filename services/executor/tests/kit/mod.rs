//! What the sandbox tests share: the real programs, a volume of their own, and scripts run as if they were a harness.
//!
//! A missing program fails a test and says how to get it; nothing is skipped, since a machine on which these tests
//! prove nothing must not look like one on which they passed.

#![allow(dead_code, reason = "each suite uses its part of the kit")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code outside of test functions"
)]

pub(crate) mod door;
pub(crate) mod runtime;
pub(crate) mod stay;

use std::env;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use executor::lines::Lines;
use executor::sandbox::{BEAT_PATIENCE, Host, Launch, Programs, Sandbox};
use executor::spawn::{Inside, SpawnError, Spawner};
use executor::volume::{LockedDir, Volume};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::time::{sleep, timeout};

/// Longer than anything here takes on a loaded machine; a test that waits this long has failed.
pub(crate) const SOON: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

/// Names a folder of tools and the shim for a run of these tests outside of cargo.
const TOOLS: &str = "RESIDENT_TEST_TOOLS";
const SHIM: &str = "RESIDENT_TEST_SHIM";

/// A volume, a spawner, and a sandbox that runs `bash` in the place of the harness.
pub(crate) struct Bench {
    pub(crate) volume: Volume,
    pub(crate) spawner: Spawner,
    pub(crate) sandbox: Sandbox,
    pub(crate) folder: TempDir,
}

pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

fn tools() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin");
    env::var_os(TOOLS).map_or_else(default, PathBuf::from)
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|found| found.is_file())
}

fn required(program: &str, found: Option<PathBuf>) -> PathBuf {
    let found =
        found.unwrap_or_else(|| panic!("{program} is missing; run tools/fetch, then these tests again"));
    found.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", found.display()))
}

pub(crate) fn bwrap() -> PathBuf {
    let fetched = tools().join("bwrap");
    required("bwrap", in_path("bwrap").or_else(|| fetched.is_file().then_some(fetched)))
}

pub(crate) fn claude() -> PathBuf {
    let fetched = tools().join("claude");
    required("claude", fetched.is_file().then_some(fetched))
}

pub(crate) fn bash() -> PathBuf {
    required("bash", in_path("bash"))
}

pub(crate) fn shim() -> PathBuf {
    env::var_os(SHIM).map_or_else(|| env!("CARGO_BIN_EXE_resident-shim").into(), PathBuf::from)
}

pub(crate) fn bench() -> Bench {
    bench_with(bash())
}

pub(crate) fn bench_with(harness: PathBuf) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let volume = Volume::open(&folder.path().join("volume")).unwrap();
    let programs = Programs { bwrap: bwrap(), shim: shim(), harness };
    let sandbox = Sandbox { programs, host: Host::read(), beat_patience: BEAT_PATIENCE };
    Bench { volume, spawner: Spawner::start().unwrap(), sandbox, folder }
}

impl Bench {
    /// The folders of a conversation of the first agent, locked and configured.
    pub(crate) fn conversation(&self, id: &str) -> LockedDir {
        self.conversation_of("agt_1", id)
    }

    pub(crate) fn conversation_of(&self, agent: &str, id: &str) -> LockedDir {
        let dir = self.volume.conversation(&agent.parse().unwrap(), &id.parse().unwrap()).unwrap();
        let locked = dir.lock().unwrap();
        locked.configure("Be brief.", "{}").unwrap();
        locked
    }

    /// Whether the conversation's lock can be had now.
    pub(crate) fn is_free(&self, id: &str) -> bool {
        let dir = self.volume.conversation(&"agt_1".parse().unwrap(), &id.parse().unwrap()).unwrap();
        dir.lock().is_ok()
    }

    /// Starts a script as the harness.
    pub(crate) async fn start(&self, dir: &LockedDir, script: &str) -> Result<Inside, SpawnError> {
        let env = [("PATH", "/usr/bin:/bin"), ("RESIDENT_TOKEN", "the-segment-token")];
        let launch = Launch {
            args: vec!["-c".into(), script.into()],
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        };
        self.spawner.spawn(self.sandbox.command(dir.dir(), launch), dir).await
    }

    /// Runs a script as the harness, to its end.
    pub(crate) async fn run(&self, dir: &LockedDir, script: &str) -> Output {
        let inside = self.start(dir, script).await.unwrap();
        let mut stdin = inside.stdin;
        stdin.shutdown().await.unwrap();
        drop(stdin);
        let (stdout, stderr) = tokio::join!(text(inside.stdout), text(inside.stderr));
        let status = soon("the end of the sandbox", inside.exit.wait()).await.unwrap();
        drop(inside.control);
        Output { status, stdout, stderr }
    }
}

async fn text(mut lines: Lines<impl AsyncRead + Unpin>) -> String {
    let mut text = String::new();
    while let Some(line) = soon("the next line", lines.next()).await.unwrap() {
        text.push_str(&line.text);
        text.push('\n');
    }
    text
}

/// The next line that a sandbox prints.
pub(crate) async fn line(lines: &mut Lines<impl AsyncRead + Unpin>) -> String {
    soon("a line", lines.next()).await.unwrap().expect("a line before the end").text
}

pub(crate) async fn soon<T>(what: impl Display, future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.unwrap_or_else(|_| panic!("{what} did not come within {SOON:?}"))
}

/// Waits until a condition holds.
pub(crate) async fn until(what: impl Display, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            sleep(POLL).await;
        }
    };
    soon(what, waiting).await;
}

/// The processes of the machine whose command line has `mark` in it.
pub(crate) fn processes_with(mark: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let marked = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(mark)
    };
    pids.filter(marked).collect()
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
