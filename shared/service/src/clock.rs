//! Time, as it is handed to everyone: the real clock, and one that a test sets by hand. Nothing else in the tree may
//! ask what time it is.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use domain::Timestamp;
use tokio::sync::watch;

/// Whoever waits or notes a time holds an `Arc<dyn Clock>`.
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync {
    /// The time to write down. It may jump, as machines' clocks do.
    fn now(&self) -> Timestamp;

    /// The time since this clock was made, for measuring. It never goes back.
    fn monotonic(&self) -> Duration;

    async fn sleep(&self, duration: Duration);
}

/// Rings again and again, also for a loop that is busy with something else most of the time: a sleep that is begun anew
/// at each turn of such a loop never ends.
pub struct Every {
    clock: Arc<dyn Clock>,
    period: Duration,
    sleep: Sleep,
}

type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct RealClock {
    started: Instant,
}

/// A clock that stands still until it is moved, and then wakes whoever slept long enough.
#[derive(Debug)]
pub struct ManualClock {
    reading: watch::Sender<Reading>,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    now: Timestamp,
    monotonic: Duration,
}

// === impl Every ===

impl Every {
    /// Rings for the first time after one period.
    pub fn new(clock: &Arc<dyn Clock>, period: Duration) -> Self {
        Self { clock: Arc::clone(clock), period, sleep: sleep(clock, period) }
    }

    /// Waits for the next time, which is a period after the last one was heard. Cancelling loses nothing.
    pub async fn next(&mut self) {
        self.sleep.as_mut().await;
        self.sleep = sleep(&self.clock, self.period);
    }
}

fn sleep(clock: &Arc<dyn Clock>, period: Duration) -> Sleep {
    let clock = Arc::clone(clock);
    Box::pin(async move { clock.sleep(period).await })
}

impl fmt::Debug for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Every").field("period", &self.period).finish_non_exhaustive()
    }
}

// === impl RealClock ===

impl RealClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one real clock")]
    pub fn start() -> Self {
        Self { started: Instant::now() }
    }
}

#[async_trait]
impl Clock for RealClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one real clock")]
    fn now(&self) -> Timestamp {
        jiff::Timestamp::now().into()
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

// === impl ManualClock ===

impl ManualClock {
    pub fn at(now: Timestamp) -> Self {
        Self { reading: watch::Sender::new(Reading { now, monotonic: Duration::ZERO }) }
    }

    /// Time passes.
    pub fn advance(&self, by: Duration) {
        self.reading.send_modify(|reading| {
            reading.now = reading.now.plus(by);
            reading.monotonic += by;
        });
    }

    /// The machine's clock is set to another time, without time passing.
    pub fn set(&self, now: Timestamp) {
        self.reading.send_modify(|reading| reading.now = now);
    }

    /// How many sleep. A test waits for its sleeper before it advances, as a sleep counts from its first poll.
    pub fn sleepers(&self) -> usize {
        self.reading.receiver_count()
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.reading.borrow().now
    }

    fn monotonic(&self) -> Duration {
        self.reading.borrow().monotonic
    }

    async fn sleep(&self, duration: Duration) {
        let mut readings = self.reading.subscribe();
        let until = self.monotonic().saturating_add(duration);
        // It fails only without a sender, and `self` is the sender.
        let _ = readings.wait_for(|reading| reading.monotonic >= until).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const BOUND: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_sleeper_wakes_when_its_time_has_passed_and_not_before() {
        let clock = Arc::new(ManualClock::at(Timestamp::EPOCH));
        let mut sleeper = tokio::spawn({
            let clock = Arc::clone(&clock);
            async move { clock.sleep(Duration::from_secs(60)).await }
        });
        let asleep = async {
            while clock.sleepers() == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(BOUND, asleep).await.unwrap();

        clock.advance(Duration::from_secs(59));
        clock.set(Timestamp::EPOCH.plus(Duration::from_hours(1)));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut sleeper).await.is_err(), "woke early");
        clock.advance(Duration::from_secs(1));
        tokio::time::timeout(BOUND, sleeper).await.unwrap().unwrap();

        assert_eq!(clock.monotonic(), Duration::from_secs(60));
        assert_eq!(clock.now(), Timestamp::EPOCH.plus(Duration::from_secs(3601)));
        assert_eq!(clock.sleepers(), 0);
    }

    #[tokio::test]
    async fn what_rings_again_and_again_is_heard_in_a_loop_that_is_always_busy() {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::start());
        let mut every = Every::new(&clock, Duration::from_millis(20));
        let heard = async {
            let mut heard = 0;
            while heard < 3 {
                tokio::select! {
                    () = every.next() => heard += 1,
                    () = clock.sleep(Duration::from_millis(2)) => {}
                }
            }
        };
        tokio::time::timeout(BOUND, heard).await.unwrap();
    }

    #[tokio::test]
    async fn the_real_clock_measures_what_was_slept() {
        let clock = RealClock::start();
        let (before, now) = (clock.monotonic(), clock.now());
        clock.sleep(Duration::from_millis(5)).await;
        assert!(clock.monotonic() - before >= Duration::from_millis(5));
        assert!(clock.now() > now);
    }
}
