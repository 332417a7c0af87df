//! A hundred thousand parked processes: what they cost while nothing happens, and how soon everything is ready again
//! after a restart. Every role runs in one program.

use std::time::Duration;

use bus::kv;
use contract::buckets::{Fleet, Role, WatermarkKey, Watermarks, stream_of};
use contract::topology::{PROCESS, REGISTRY, streams};
use domain::process::WaitOn;
use tests::installation::{ALL_ROLES, program};
use tests::parked::{self, Parked};
use tests::wait::eventually;
use tests::{Installation, Options};

use crate::now;

const PARKED: u128 = 100_000;

/// What they wait for is far away.
const UNTIL: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Their rows and entries are written one by one.
const SHOWN_WITHIN: Duration = Duration::from_secs(600);

pub(crate) async fn run() {
    let options =
        Options { harness: Some(program("scripted-harness")), together: true, ..Options::default() };
    let mut installation = Installation::with(options).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await.parse().expect("an id");
    let org = installation.org;
    // A fresh start is compared with a fresh start.
    installation.stop(ALL_ROLES).await;
    installation.start_program(ALL_ROLES).await;
    let (empty, readers) = (installation.resident_memory(ALL_ROLES), consumers(&installation).await);

    let registry = installation.broker.connect(REGISTRY).await;
    let until = tests::now().plus(UNTIL);
    let parked = |n: u128| {
        let wait = match n % 3 {
            0 => None,
            1 => Some(WaitOn::Time { until }),
            _ => Some(parked::pull_request(n)),
        };
        Parked { org, agent, n, wait }
    };
    parked::write(&registry, (1..=PARKED).map(parked)).await;
    let jetstream = installation.broker.jetstream().await;
    eventually("the fleet's list", SHOWN_WITHIN, async || {
        let rows = jetstream.get_stream(stream_of::<Fleet>()).await.map_err(|error| error.to_string())?;
        let rows = rows.cached_info().state.messages;
        if rows == PARKED as u64 { Ok(()) } else { Err(rows.to_string()) }
    })
    .await;
    // And the record tells of them, and the registry has stored that.
    eventually("the watermark", SHOWN_WITHIN, async || {
        let last = jetstream.get_stream(PROCESS).await.map_err(|error| error.to_string())?;
        let shown = kv::get::<Watermarks>(&registry, &WatermarkKey(REGISTRY)).await;
        let shown = shown.map_err(|error| error.to_string())?.value.map_or(0, |watermark| watermark.step);
        if shown == last.cached_info().state.last_sequence { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    installation.stop(ALL_ROLES).await;

    let begun = now();
    installation.start_program(ALL_ROLES).await;
    let ready = now() - begun;
    let grown = installation.resident_memory(ALL_ROLES).saturating_sub(empty);
    let consumers = consumers(&installation).await;
    println!(
        "{PARKED} parked (a third each: nothing to wait for, a time, a pull request), all roles in one program: {} bytes each (target 600), {} consumers of their own (target 0), {} harness processes (target 0), restart to ready {ready:?} (target 3 s)",
        grown / PARKED as u64,
        consumers.saturating_sub(readers),
        installation.sandboxes(),
    );
}

/// Consumers that the broker keeps, over all streams.
async fn consumers(installation: &Installation) -> usize {
    let jetstream = installation.broker.jetstream().await;
    let mut all = 0;
    for stream in streams() {
        all += jetstream.get_stream(&stream.name).await.expect("a stream").cached_info().state.consumer_count;
    }
    all
}
