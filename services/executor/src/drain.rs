//! Whether this executor takes work. It drains when its program is to end, and when an operator has ordered it; an order
//! stands until it is taken back, also over a restart.

use std::sync::Arc;
use std::time::Duration;

use bus::Nats;
use bus::kv::Rows;
use contract::buckets::Drains;
use domain::ids::ExecutorId;
use service::clock::Clock;
use service::shutdown::Shutdown;
use tokio::sync::watch;

use crate::lease::Lease;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Drain {
    /// It takes work.
    No,
    /// Nothing is begun; what runs goes at its next boundary.
    Begun,
    /// What runs is not waited for.
    Now,
}

/// Follows the order and the shutdown.
pub(crate) fn follow(
    nats: &Nats,
    id: ExecutorId,
    lease: Arc<Lease>,
    shutdown: Shutdown,
    clock: Arc<dyn Clock>,
) -> watch::Receiver<Drain> {
    let mut orders = Rows::<Drains>::open(nats, &id.to_string());
    let (sender, receiver) = watch::channel(Drain::No);
    tokio::spawn(async move {
        let mut ordered = Drain::No;
        // Until the grace of an order is over.
        let mut grace = clock.sleep(Duration::MAX);
        loop {
            let ends = match (shutdown.is_over(), shutdown.is_draining()) {
                (true, _) => Drain::Now,
                (false, true) => Drain::Begun,
                (false, false) => Drain::No,
            };
            let drain = ordered.max(ends);
            if sender.send_replace(drain) != drain {
                tracing::info!(?drain, "the executor's drain");
                lease.drains(drain != Drain::No);
            }
            tokio::select! {
                () = sender.closed() => return,
                () = shutdown.draining(), if ends == Drain::No => {}
                () = shutdown.now(), if ends == Drain::Begun => {}
                (_, order) = orders.changed() => match (order.is_some(), ordered) {
                    (true, Drain::No) => {
                        ordered = Drain::Begun;
                        grace = clock.sleep(shutdown.grace());
                    }
                    (true, Drain::Begun | Drain::Now) => {}
                    (false, _) => ordered = Drain::No,
                },
                () = &mut grace, if ordered == Drain::Begun => ordered = Drain::Now,
            }
        }
    });
    receiver
}
