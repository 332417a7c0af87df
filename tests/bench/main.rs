//! The numbers we promise, each as a ratio against something measured in the same run: machines are noisy, and alike
//! only within a run. Run it with `make bench`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench fails by panicking")]
#![allow(clippy::print_stdout, reason = "a bench prints")]

mod hot_steer;

use std::time::Duration;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(hot_steer::run());
}

/// The value below which this part of the samples lies.
pub(crate) fn percentile(samples: &mut [Duration], part: f64) -> Duration {
    samples.sort_unstable();
    let at = (samples.len() as f64 * part) as usize;
    samples[at.min(samples.len() - 1)]
}
