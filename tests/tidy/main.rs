//! That the house is in order: who may know whom, one table for versions and lints, no forgotten file, fresh pages, no
//! dead link. One rule per test, and each failure says what to do. It reads the tree as git sees it, new files included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a suite fails by panicking")]

mod arrows;
mod bans;
mod files;
mod invariants;
mod licenses;
mod links;
mod manifests;
mod pages;
mod problems;
mod tree;
mod words;
