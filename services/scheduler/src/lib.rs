//! The scheduler: sets a timer for every booked wait that ends at a time, and takes it back when the wait is closed.
//! The broker keeps the timers, and the waker is rung by them; here is only what ought to be set. It also knows which
//! processes nobody has needed for long: those are asked about, and then finish themselves.

mod config;
mod idle;
mod missing;
mod on_step;

use bus::{Bus, Steps};
use service::Runtime;

pub use config::SchedulerConfig;

/// Works until the shutdown begins.
pub async fn run(bus: Bus, runtime: Runtime, config: SchedulerConfig, log: [Steps; 2]) {
    let [for_timers, for_idle] = log;
    tokio::join!(
        on_step::follow(bus.clone(), runtime.clone(), for_timers),
        idle::follow(bus, runtime, config, for_idle)
    );
}
