//! Up to where the log is shown. It is stored now and then, so that a restart need not look at every conversation anew.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bus::kv;
use bus::{Bus, Port};
use contract::buckets::{Watermark, WatermarkKey, Watermarks};
use contract::topology::REGISTRY;
use service::clock::{Clock, Every};
use tokio_util::sync::CancellationToken;

use crate::on_step::HotSegments;

/// What was shown since is looked at again after a restart.
const STORE_EVERY: Duration = Duration::from_secs(5);

/// Of more hot segments nothing is stored: the row would not fit a message. A restart begins further back then.
const HOT_MAX: usize = 2_000;

#[derive(Clone, Default)]
pub(crate) struct Shown(Arc<Mutex<Steps>>);

#[derive(Debug, Default)]
struct Steps {
    read: u64,
    open: BTreeSet<u64>,
}

/// A step that is being shown, until the last of these is dropped.
pub(crate) struct Unshown {
    sequence: u64,
    steps: Shown,
}

// === impl Shown ===

impl Shown {
    /// Where the last life of the registry had come to.
    pub(crate) async fn before(bus: &Bus) -> Option<Watermark> {
        match kv::get::<Watermarks>(&**bus, &WatermarkKey(REGISTRY)).await {
            Ok(stored) => stored.value,
            Err(error) => {
                tracing::warn!(%error, "how far the log is shown cannot be read; it is shown anew");
                None
            }
        }
    }

    /// Steps come in their order.
    pub(crate) fn begin(&self, sequence: u64) -> Arc<Unshown> {
        let mut steps = self.lock();
        steps.read = sequence;
        steps.open.insert(sequence);
        drop(steps);
        Arc::new(Unshown { sequence, steps: self.clone() })
    }

    /// Stores it until `stop`. What is dropped while everything stops was not shown, so nothing is stored from then on.
    pub(crate) async fn keep(
        self,
        hot: HotSegments,
        port: Arc<dyn Port>,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) {
        let mut stored = 0;
        let mut every = Every::new(&clock, STORE_EVERY);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = every.next() => {}
            }
            // In this order: what is hot is read at the step or later, and the steps between are read again.
            let step = self.lock().all_up_to();
            let hot = hot.all();
            if stop.is_cancelled() || step == stored || hot.len() > HOT_MAX {
                continue;
            }
            let key = WatermarkKey(REGISTRY);
            match kv::overwrite::<Watermarks>(port.as_ref(), &key, &Watermark { step, hot }).await {
                Ok(_) => stored = step,
                Err(error) => tracing::debug!(%error, "how far the log is shown is stored later"),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Steps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Steps ===

impl Steps {
    fn all_up_to(&self) -> u64 {
        self.open.first().map_or(self.read, |first| first - 1)
    }
}

// === impl Unshown ===

impl Drop for Unshown {
    fn drop(&mut self) {
        self.steps.lock().open.remove(&self.sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_shown_up_to_the_first_step_that_is_not() {
        let shown = Shown::default();
        let (first, second) = (shown.begin(3), shown.begin(7));
        let also = Arc::clone(&first);
        drop(second);
        assert_eq!(shown.lock().all_up_to(), 2);
        drop(first);
        assert_eq!(shown.lock().all_up_to(), 2, "somebody still shows it");
        drop(also);
        assert_eq!(shown.lock().all_up_to(), 7);
    }
}
