//! The registry: appends what executors report, shows how processes stand (in the record and in the fleet's list), and
//! takes back segments that no executor runs any more.
//!
//! What it shows follows the log and can be made again from it. It places nothing and reads no texts.

mod leases;
mod on_report;
mod on_step;
mod projection;

use std::sync::Arc;

use bus::{Bus, Consumer, Log};
use contract::subjects::DeadOf;
use contract::topology::{REGISTRY, SEGMENT};
use service::Runtime;
use service::health::Condition;

/// Works until the shutdown begins.
pub async fn run(bus: Bus, runtime: Runtime) {
    let stop = runtime.shutdown.draining_token();
    let port = bus.port();
    let log = Log::new(port.clone());
    let steps = on_step::follow(&bus, &log, &runtime, stop.clone());
    let check = runtime.health.check("registry reports");
    let ready = move |reached: Result<(), String>| {
        check.set(reached.map_or_else(Condition::Failed, |()| Condition::Ready));
    };
    let registry = Arc::new(on_report::Reports { port, log: log.clone(), clock: Arc::clone(&runtime.clock) });
    let reports = Consumer::new(&bus, SEGMENT, REGISTRY, DeadOf::Segment).run(stop, ready, move |delivery| {
        let registry = Arc::clone(&registry);
        async move { registry.on_report(delivery).await }
    });
    tokio::join!(steps, reports);
}
