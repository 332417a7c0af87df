//! `step` under random causes: every invariant after every step, and every input ends exactly once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a suite fails by panicking")]

mod anything_goes;
mod bursts;
mod transitions;
