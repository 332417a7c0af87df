//! The steerer: which process an input belongs to. It is rung by the record and appends what each input comes to, in
//! the order of the record: a steer into the live process, the start of the next one, a stop, or why not.
//!
//! It reads texts only for a conversation's title. It does not place, wake or run anything.

mod index;
mod on_input;

use std::sync::Arc;

use bus::{Bus, Consumer};
use contract::subjects::DeadOf;
use contract::topology::{RECORD, STEERER};
use service::Runtime;
use service::health::Condition;

use on_input::Steerer;

/// Works until the shutdown begins.
pub async fn run(bus: Bus, runtime: Runtime) {
    let check = runtime.health.check("steerer");
    let stop = runtime.shutdown.draining_token();
    let steerer = Arc::new(Steerer::new(bus.port(), runtime.clock));
    let ready = move |reached: Result<(), String>| {
        check.set(reached.map_or_else(Condition::Failed, |()| Condition::Ready));
    };
    Consumer::new(&bus, RECORD, STEERER, DeadOf::Record)
        .run(stop, ready, move |delivery| {
            let steerer = Arc::clone(&steerer);
            async move { steerer.on_input(delivery).await }
        })
        .await;
}
