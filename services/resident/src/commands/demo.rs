//! `resident demo`: everything in a temporary directory, and a small job played by the demo model with the real harness.

use std::path::PathBuf;
use std::process::ExitCode;

use service::clock::{Clock, RealClock};

use super::{print, run::follow};
use crate::client::Client;
use crate::dev::{self, Dev};
use crate::failure::{Failure, say};
use crate::settings::{self, Flags};

const TASK: &str = "Write a small program, check it, and tell me what it prints.";

pub(super) async fn run() -> Result<ExitCode, Failure> {
    let dir =
        tempfile::tempdir().map_err(|source| Failure::DataDir { path: PathBuf::from("/tmp"), source })?;
    let flags = Flags {
        data_dir: Some(dir.path().join("data")),
        listen: Some(([127, 0, 0, 1], 0).into()),
        ..Flags::default()
    };
    let settings = settings::read(&flags)?;
    say("Starting a broker, every role and the demo model …");
    let dev = dev::start(&settings).await?;
    if let Some(unable) = &dev.unable {
        say(&format!("No task can run yet: {unable}"));
    }
    let Dev { installation, roles, .. } = &dev;
    let client = Client::new(&roles.url, installation.api_key.clone().into())?;
    say(&format!("> {TASK}\n"));
    let clock = RealClock::start();
    let told = follow(&client, &installation.agent.to_string(), TASK, |_, _, lines| {
        let at = clock.monotonic().as_secs_f64();
        lines.iter().try_for_each(|line| print(&format!("{at:6.2}s  {line}")))
    })
    .await;
    // Nothing of it is kept, so nothing is waited for.
    dev.roles.runtime.shutdown.end();
    dev.ended().await?;
    told
}
