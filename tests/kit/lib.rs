//! The kit: a broker for each test, builders, waiting for conditions, and the invariants that simulation and real runs
//! share. What it cannot set up fails the test that asked for it, with a sentence.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it exists to fail tests")]

pub mod api;
pub mod broker;
pub mod builders;
pub mod dev;
pub mod github;
pub mod installation;
pub mod invariants;
pub mod log;
pub mod model;
pub mod parked;
pub mod wait;

pub use broker::Broker;
pub use installation::{Installation, Options};
pub use wait::{eventually, soon};

/// The time now. Tests of real processes live in real time.
#[expect(clippy::disallowed_methods, reason = "the kit's one clock")]
pub fn now() -> domain::Timestamp {
    domain::Timestamp::from(jiff::Timestamp::now())
}

/// A fresh id.
#[expect(clippy::disallowed_methods, reason = "the kit's one source of ids")]
pub fn fresh() -> uuid::Uuid {
    uuid::Uuid::now_v7()
}

/// Sends a process a signal by its name.
pub(crate) async fn signal(name: &str, pid: &str) {
    let sent = tokio::process::Command::new("kill").args([&format!("-{name}"), pid]).status().await;
    assert!(sent.expect("kill").success(), "{name} to {pid}");
}
