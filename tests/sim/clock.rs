//! Time as the simulation has it: the runtime's, which jumps to the next moment at which something is to happen.

use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;
use service::clock::Clock;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct SimClock {
    began: Instant,
}

/// When every simulation begins.
const BEGINNING: i64 = 1_767_225_600_000;

impl SimClock {
    #[expect(clippy::disallowed_methods, reason = "the simulation's one clock")]
    pub(crate) fn start() -> Self {
        Self { began: Instant::now() }
    }
}

#[async_trait]
impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(BEGINNING).unwrap_or(Timestamp::EPOCH).plus(self.monotonic())
    }

    fn monotonic(&self) -> Duration {
        self.began.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
