//! The simulation: the real roles on a modelled broker, in a time of its own, with everything going wrong that a seed
//! says. One seed is one run.
#![allow(clippy::expect_used, clippy::panic, reason = "it exists to fail")]

mod clock;
mod conformance;
mod executor;
mod harness;
mod judge;
mod plan;
mod play;
mod segment;
mod store;
mod told;
mod wire;
mod world;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use service::clock::{Clock, RealClock};

use plan::Plan;
use play::play;

/// How long the seeds of a run without a wish take.
const A_MINUTE: Duration = Duration::from_secs(60);

/// As many as there are cores to be kept busy in CI.
const THREADS: usize = 2;

const SHRINKS: usize = 150;

/// Runs of the control, of which one has to be caught.
const CONTROLS: u64 = 40;

#[test]
fn it_holds() {
    if let Some(plan) = wished("REPLAY") {
        let text = std::fs::read_to_string(&plan).unwrap_or_else(|error| panic!("{plan}: {error}"));
        let plan: Plan = serde_json::from_str(&text).expect("a plan");
        if let Err(breach) = play(&plan, true).outcome {
            panic!("{breach}");
        }
        return;
    }
    let first: u64 = wished("SEED").map_or(1, |seed| seed.parse().expect("SEED is a number"));
    let count: Option<u64> = wished("SEEDS").map(|count| count.parse().expect("SEEDS is a number"));
    let clock = RealClock::start();
    let (next, played, failed) = (AtomicU64::new(first), AtomicU64::new(0), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while lock(&failed).is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let over = count.map_or(clock.monotonic() > A_MINUTE, |count| seed >= first + count);
                    if over {
                        return;
                    }
                    if let Err(breach) = play(&Plan::of(seed), true).outcome {
                        lock(&failed).get_or_insert((seed, breach));
                    }
                    played.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    if let Some((seed, breach)) = lock(&failed).take() {
        fail(seed, &breach);
    }
    tell(played.load(Ordering::Relaxed), clock.monotonic());
}

#[expect(clippy::print_stderr, reason = "whoever asks for seeds wants to know how many were played")]
fn tell(seeds: u64, within: Duration) {
    eprintln!("{seeds} seeds in {within:?}");
}

#[test]
fn one_seed_is_one_run() {
    for seed in 1..6 {
        let plan = Plan::of(seed);
        assert_eq!(play(&plan, true).trace, play(&plan, true).trace, "seed {seed}");
    }
}

/// Without the compare-and-set two appends may both win; if nothing is found then, nothing would be found at all.
#[test]
fn a_broker_that_does_not_compare_is_caught() {
    let caught = (1..CONTROLS).find(|seed| play(&Plan::of(*seed), false).outcome.is_err());
    assert!(caught.is_some(), "{CONTROLS} seeds without the compare-and-set, and nothing was seen");
}

/// Shortens what failed, writes it down and says where.
fn fail(seed: u64, breach: &str) -> ! {
    let plan = Plan::of(seed).shrunk(SHRINKS, |plan| play(plan, true).outcome.is_err());
    let breach = play(&plan, true).outcome.err().unwrap_or_else(|| breach.to_owned());
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("sim-{seed}.json"));
    std::fs::write(&file, serde_json::to_string_pretty(&plan).expect("a plan")).expect("the plan is written");
    let happenings: Vec<_> = plan.happenings.iter().map(|happening| format!("{happening:?}")).collect();
    panic!(
        "seed {seed}: {breach}\n{}\nplay it again: make sim REPLAY={}",
        happenings.join("\n"),
        file.display()
    );
}

/// What `make sim` was asked for.
#[expect(clippy::disallowed_methods, reason = "the suite has no settings of its own")]
fn wished(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|wish| !wish.is_empty())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
