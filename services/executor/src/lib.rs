//! Runs hot segments: sandbox, harness, the calls an agent has, model proxy, volume

pub mod endpoint;
pub mod harness;
pub mod lines;
pub mod model_proxy;
pub mod prompt;
pub mod sandbox;
pub mod shim;
pub mod spawn;
pub mod tools;
pub mod volume;
