//! The numbers we promise, each as a ratio against something measured in the same run: machines are noisy, and alike
//! only within a run. Run it with `make bench`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench fails by panicking")]
#![allow(clippy::print_stdout, reason = "a bench prints")]

mod fleet;
mod hot_steer;
mod storm;
mod woken;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tests::Installation;

/// All of it, or the parts that the command line names.
fn main() {
    let named: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let wanted = |part: &str| named.is_empty() || named.iter().any(|name| name == part);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        if wanted("hot_steer") {
            hot_steer::run().await;
        }
        if wanted("woken") {
            woken::run().await;
        }
        if wanted("storm") {
            storm::run().await;
        }
        if wanted("fleet") {
            fleet::run().await;
        }
    });
}

/// The value below which this part of the samples lies.
pub(crate) fn percentile(samples: &mut [Duration], part: f64) -> Duration {
    samples.sort_unstable();
    let at = (samples.len() as f64 * part) as usize;
    samples[at.min(samples.len() - 1)]
}

/// The machine's monotonic clock, as the harness reads it.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).expect("nanoseconds"))
}

/// What the scripted harness has written of a conversation: `begun` or a frame, and when.
pub(crate) fn arrivals(
    installation: &Installation,
    agent: &str,
    conversation: &str,
) -> Vec<(String, Duration)> {
    let tree = installation.tree(agent, conversation);
    let text = std::fs::read_to_string(tree.join("arrivals.txt")).expect("arrivals");
    let arrival = |line: &str| {
        let (what, nanos) = line.split_once(' ')?;
        Some((what.to_owned(), Duration::from_nanos(nanos.parse().ok()?)))
    };
    text.lines().filter_map(arrival).collect()
}
