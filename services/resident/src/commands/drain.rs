//! `resident drain`: an executor is emptied, for its machine's sake, and takes work again.

use std::time::Duration;

use bus::{Nats, kv};
use contract::buckets::{DrainOrder, Drains, Executors};
use contract::topology::OPERATOR;
use domain::ids::ExecutorId;
use service::config::Settings;

use super::keys::broker_url;
use super::now;
use crate::broker;
use crate::cli::DrainArgs;
use crate::failure::{Failure, say};

/// How often what still runs is looked at.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn run(settings: &Settings, args: &DrainArgs) -> Result<(), Failure> {
    let operator = broker::connect(settings, &broker_url(settings)?, OPERATOR).await?;
    let executor = args.executor;
    if args.undo {
        kv::delete::<Drains>(&operator, &executor).await.map_err(Failure::Drain)?;
        say(&format!("{executor} takes work again"));
        return Ok(());
    }
    kv::overwrite::<Drains>(&operator, &executor, &DrainOrder { at: now() }).await.map_err(Failure::Drain)?;
    say(&format!("{executor} takes no more work; the order stands until `resident drain {executor} --undo`"));
    emptied(&operator, executor).await
}

/// Says what still runs, and returns when nothing does.
async fn emptied(operator: &Nats, executor: ExecutorId) -> Result<(), Failure> {
    let mut said = None;
    loop {
        let lease = kv::get::<Executors>(operator, &executor).await.map_err(Failure::DrainRead)?.value;
        let Some(lease) = lease else {
            say(&format!("{executor} is not there, so nothing runs on it"));
            return Ok(());
        };
        let running = lease.segments.len();
        if lease.draining && running == 0 {
            say(&format!("{executor} is empty; its machine may go"));
            return Ok(());
        }
        if said.replace((lease.draining, running)) != Some((lease.draining, running)) {
            match (lease.draining, running) {
                (false, _) => say(&format!("{executor} has not said yet that it drains")),
                (true, 1) => say("one segment still runs; it goes at its next boundary"),
                (true, _) => say(&format!("{running} segments still run; each goes at its next boundary")),
            }
        }
        tokio::time::sleep(LOOKED_AT_EVERY).await;
    }
}
