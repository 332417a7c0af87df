//! One real service or the bus itself, with a real nats-server. One file per behaviour.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a suite fails by panicking")]

mod api_invoke;
mod api_operators;
mod api_reads;
mod api_refusals;
mod api_streams;
mod api_writes;
mod append;
mod broker_closed;
mod hooks;
mod readers;
mod served;
