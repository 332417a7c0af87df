//! Runs hot segments: sandbox, harness, the calls an agent has, model proxy, volume
