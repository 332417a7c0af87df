//! How it is said: the only crate that names async_nats
