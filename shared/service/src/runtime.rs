//! What every role is run with.

use std::sync::Arc;

use crate::clock::Clock;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;

/// Cheap to clone; the roles of one program share one.
#[derive(Debug, Clone)]
pub struct Runtime {
    pub clock: Arc<dyn Clock>,
    pub health: Health,
    pub metrics: Metrics,
    pub shutdown: Shutdown,
}
