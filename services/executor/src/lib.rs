//! Runs hot segments: sandbox, harness, the calls an agent has, model proxy, volume

pub mod harness;
pub mod lines;
pub mod sandbox;
pub mod shim;
pub mod spawn;
pub mod volume;
