//! How a program ends: it is asked to, drains for a stated time, and then stops whatever is left.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// Two stages, each reached once: *draining*, in which nothing new is begun, and *now*, in which nothing is waited
/// for. Clones share them.
#[derive(Debug, Clone)]
pub struct Shutdown {
    draining: CancellationToken,
    now: CancellationToken,
    grace: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "listening for {name} failed, so nobody could ask this program to stop; see that its runtime handles signals"
)]
pub struct SignalError {
    name: &'static str,
    source: std::io::Error,
}

// === impl Shutdown ===

impl Shutdown {
    /// The stages of a program that gets `grace` from the first to the second. Within a tokio runtime.
    pub fn new(grace: Duration, clock: Arc<dyn Clock>) -> Self {
        let shutdown = Self { draining: CancellationToken::new(), now: CancellationToken::new(), grace };
        let stages = shutdown.clone();
        tokio::spawn(async move {
            stages.draining().await;
            tokio::select! {
                () = clock.sleep(grace) => stages.end(),
                () = stages.now() => {}
            }
        });
        shutdown
    }

    /// SIGTERM or SIGINT begins, a second one ends.
    pub fn on_signals(&self) -> Result<(), SignalError> {
        let listen = |name, kind| signal(kind).map_err(|source| SignalError { name, source });
        let mut terminate = listen("SIGTERM", SignalKind::terminate())?;
        let mut interrupt = listen("SIGINT", SignalKind::interrupt())?;
        let stages = self.clone();
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                    () = stages.now() => return,
                };
                if stages.is_draining() {
                    tracing::warn!(signal = name, "asked a second time to stop: stopping now");
                    stages.end();
                } else {
                    tracing::info!(signal = name, "asked to stop: draining");
                    stages.begin();
                }
            }
        });
        Ok(())
    }

    pub fn begin(&self) {
        self.draining.cancel();
    }

    pub fn end(&self) {
        self.draining.cancel();
        self.now.cancel();
    }

    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    pub fn is_over(&self) -> bool {
        self.now.is_cancelled()
    }

    /// How long what runs is waited for.
    pub const fn grace(&self) -> Duration {
        self.grace
    }

    /// Resolves when nothing new is to be begun.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + 'static {
        self.draining.clone().cancelled_owned()
    }

    /// The token behind [`Self::draining`], for what takes one.
    pub fn draining_token(&self) -> CancellationToken {
        self.draining.clone()
    }

    /// Resolves when nothing is to be waited for any more.
    pub fn now(&self) -> impl Future<Output = ()> + Send + 'static {
        self.now.clone().cancelled_owned()
    }
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;
    use rustix::process::{Signal, getpid, kill_process};
    use tokio::time::timeout;

    use super::*;
    use crate::clock::ManualClock;

    const GRACE: Duration = Duration::from_secs(30);
    const BOUND: Duration = Duration::from_secs(10);

    fn shutdown() -> (Shutdown, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp::EPOCH));
        (Shutdown::new(GRACE, Arc::clone(&clock) as Arc<dyn Clock>), clock)
    }

    async fn grace_begun(clock: &ManualClock) {
        let begun = async {
            while clock.sleepers() == 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(BOUND, begun).await.unwrap();
    }

    #[tokio::test]
    async fn the_grace_period_lies_between_the_stages() {
        let (shutdown, clock) = shutdown();
        assert!(!shutdown.is_draining());
        shutdown.begin();
        timeout(BOUND, shutdown.draining()).await.unwrap();
        grace_begun(&clock).await;

        clock.advance(GRACE - Duration::from_millis(1));
        assert!(
            timeout(Duration::from_millis(20), shutdown.now()).await.is_err(),
            "ended before its grace was over"
        );
        clock.advance(Duration::from_millis(1));
        timeout(BOUND, shutdown.now()).await.unwrap();
    }

    #[tokio::test]
    async fn the_first_signal_begins_and_the_second_ends() {
        let (shutdown, clock) = shutdown();
        shutdown.on_signals().unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        timeout(BOUND, shutdown.draining()).await.unwrap();
        grace_begun(&clock).await;
        assert!(timeout(Duration::from_millis(20), shutdown.now()).await.is_err(), "ended by one signal");
        kill_process(getpid(), Signal::INT).unwrap();
        timeout(BOUND, shutdown.now()).await.unwrap();
    }
}
