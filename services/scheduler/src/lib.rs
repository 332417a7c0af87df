//! The scheduler: sets a timer for every booked wait that ends at a time, and takes it back when the wait is closed.
//! The broker keeps the timers, and the waker is rung by them; here is only what ought to be set.

mod on_step;

use bus::Nats;
use service::Runtime;

/// Works until the shutdown begins.
pub async fn run(nats: Nats, runtime: Runtime) {
    on_step::follow(nats, runtime).await;
}
