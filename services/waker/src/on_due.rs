//! A timer has rung. It may ring twice, and for a wait that is no longer booked: the step decides.

use std::sync::Arc;
use std::time::Duration;

use bus::{AppendError, Delivery, Handled, Log, Port};
use contract::messages::timer::Timer;
use contract::topology::TIMERS;
use domain::Refusal;
use domain::process::Cause;
use service::clock::Clock;

/// How long a timer waits when the broker could not be asked.
const BROKER_AWAY: Duration = Duration::from_millis(200);

pub(crate) struct Timers {
    pub(crate) port: Arc<dyn Port>,
    pub(crate) log: Log,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Timers {
    pub(crate) async fn on_due(&self, delivery: Delivery) -> Handled {
        let Timer { key, wait, .. } = match delivery.stored.decode() {
            Ok(timer) => timer,
            Err(error) => return Handled::Dead(error.to_string()),
        };
        let appended = self.log.append(key, Cause::Due { wait }, None, || self.clock.now()).await;
        match appended {
            Ok(_) | Err(AppendError::Refused(Refusal::NotBooked { .. })) => {}
            // The broker's clock is ahead of this one.
            Err(AppendError::Refused(Refusal::NotYetDue { until, .. })) => {
                return Handled::Later(until.since(self.clock.now()).max(BROKER_AWAY));
            }
            Err(error) => {
                tracing::warn!(%wait, %error, "a timer waits");
                return Handled::Later(BROKER_AWAY);
            }
        }
        // What has been handled is not kept. It rings again until it is known to be gone.
        match self.port.delete(TIMERS, delivery.stored.sequence).await {
            Err(error) if error.is_passing() => {
                tracing::debug!(%wait, %error, "a timer that has rung is deleted later");
                return Handled::Later(BROKER_AWAY);
            }
            Ok(()) | Err(_) => {}
        }
        Handled::Done
    }
}
