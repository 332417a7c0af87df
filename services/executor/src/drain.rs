//! Whether this executor takes work. It drains when its program is to end, and when an operator has ordered it; an order
//! stands until it is taken back, also over a restart.

use std::sync::Arc;

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
    // Until the order is read nothing is claimed.
    let (sender, receiver) = watch::channel(Drain::Begun);
    tokio::spawn(async move {
        tokio::select! {
            () = sender.closed() => return,
            _ = orders.caught_up() => {}
        }
        let mut ordered = if orders.iter().next().is_some() { Drain::Begun } else { Drain::No };
        let mut grace = clock.sleep(shutdown.grace());
        loop {
            let ends = match (shutdown.is_over(), shutdown.is_draining()) {
                (true, _) => Drain::Now,
                (false, true) => Drain::Begun,
                (false, false) => Drain::No,
            };
            let drain = ordered.max(ends);
            lease.drains(drain != Drain::No);
            if sender.send_replace(drain) != drain {
                tracing::debug!(?drain, "the drain");
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
