//! Every role as a process of its own, a real nats-server, the real Claude Code in its sandbox; only the paid model is
//! scripted. One file per promise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a suite fails by panicking")]

mod background;
mod burst;
mod dev;
mod full;
mod github;
mod history;
mod idle;
mod question;
mod roll;
mod sandbox;
mod steer;
mod stop;
mod stream;
mod survives;
mod task;
mod trace;
mod user_namespaces;
mod wait;
