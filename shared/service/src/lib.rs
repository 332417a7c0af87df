//! What makes a program one of ours, from its birth to its drain: it reads its settings, says what it does, is told
//! the time, serves its health, and stops when asked. It knows nothing of the bus, nor of what any role does.

pub mod clock;
pub mod config;
pub mod fresh;
pub mod health;
pub mod http;
pub mod metrics;
pub mod runtime;
pub mod shutdown;
pub mod telemetry;

pub use runtime::Runtime;
