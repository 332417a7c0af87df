//! `resident dev` as a person starts it.

use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::api::Api;
use crate::broker::tools;
use crate::installation::program;

const READY_WITHIN: Duration = Duration::from_secs(60);

/// How long a program that is asked to stop may take: it parks what runs.
const STOP_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Dev {
    child: Child,
    pub ready: Value,
}

/// The command, with nothing of this test's environment; `before` are words in front of it.
pub fn command(before: &[&str], data_dir: &Path, arguments: &[&str]) -> Command {
    let words: Vec<std::ffi::OsString> =
        before.iter().map(Into::into).chain([program("resident").into_os_string(), "dev".into()]).collect();
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .arg("--data-dir")
        .arg(data_dir)
        .args(arguments)
        .env_clear()
        .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", tools().display()))
        .env("RESIDENT__SERVER__GRACE", "10s")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs a start that is expected to fail.
pub async fn refused(mut command: Command) -> Output {
    let output = command.output();
    let output =
        tokio::time::timeout(READY_WITHIN, output).await.expect("it ends by itself").expect("started");
    assert!(!output.status.success(), "it was expected to be refused: {output:?}");
    output
}

// === impl Dev ===

impl Dev {
    /// Starts it on a free port and waits for its one line.
    pub async fn start(mut command: Command) -> Self {
        let mut log = tempfile::tempfile().expect("a log");
        let stderr = log.try_clone().expect("a descriptor");
        command.args(["--json", "--listen", "127.0.0.1:0"]).stderr(stderr);
        let mut child = command.spawn().expect("started");
        let out = child.stdout.take().expect("stdout");
        let line = tokio::time::timeout(READY_WITHIN, BufReader::new(out).lines().next_line()).await;
        let Ok(Ok(Some(line))) = line else {
            let mut said = String::new();
            log.rewind().and_then(|()| log.read_to_string(&mut said)).expect("its log");
            panic!("not ready: {line:?}; its log:\n{said}");
        };
        Self { child, ready: serde_json::from_str(&line).expect("one line of JSON") }
    }

    pub fn text(&self, field: &str) -> &str {
        self.ready[field].as_str().unwrap_or_else(|| panic!("{field} in {}", self.ready))
    }

    pub fn api(&self) -> Api {
        Api::new(self.text("url"), self.text("url"), self.text("api_key"))
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Asks it to stop, and waits.
    pub async fn stop(mut self) {
        Command::new("kill").arg(self.pid().to_string()).status().await.expect("kill");
        tokio::time::timeout(STOP_WITHIN, self.child.wait()).await.expect("it stops").expect("its status");
    }
}
