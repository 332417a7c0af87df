//! The waker: places everything that is waking on an executor, and takes back what no process wants any more.
//!
//! It follows the log and acts on what the leader says now, so a late or repeated hint does no harm; what a hint did
//! not bring about is mended by looking again. When a timer rings, or an event comes that a process waits for, it
//! appends that the wait is over.

mod assignments;
mod matcher;
mod on_due;
mod on_step;

use std::sync::Arc;

use bus::{Bus, Consumer, Log, Steps};
use contract::subjects::DeadOf;
use contract::topology::{TIMERS, WAKER};
use service::Runtime;
use service::health::Condition;

use on_due::Timers;

/// Works until the shutdown begins.
pub async fn run(bus: Bus, runtime: Runtime, log: [Steps; 2]) {
    let [for_places, for_waits] = log;
    tokio::join!(
        on_step::follow(bus.clone(), runtime.clone(), for_places),
        matcher::follow(bus.clone(), runtime.clone(), for_waits),
        serve_timers(bus, runtime)
    );
}

async fn serve_timers(bus: Bus, runtime: Runtime) {
    let check = runtime.health.check("waker timers");
    let stop = runtime.shutdown.draining_token();
    let port = bus.port();
    let timers = Arc::new(Timers { log: Log::new(Arc::clone(&port)), port, clock: runtime.clock });
    let ready = move |reached: Result<(), String>| {
        check.set(reached.map_or_else(Condition::Failed, |()| Condition::Ready));
    };
    Consumer::new(&bus, TIMERS, WAKER, DeadOf::Timers)
        .run(stop, ready, move |delivery| {
            let timers = Arc::clone(&timers);
            async move { timers.on_due(delivery).await }
        })
        .await;
}
