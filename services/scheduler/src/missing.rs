//! What ought to be set, and is not: a timer that somebody deleted, or that rang and was never heard.

use std::collections::HashSet;
use std::time::Duration;

use bus::{Nats, Reader, Seen, Start};
use contract::messages::timer::Timer;
use contract::subjects::filter;
use contract::topology::TIMERS;
use domain::Timestamp;
use domain::ids::WaitId;

use crate::on_step::{Scheduler, Wanted};

/// A timer that rang this long ago and whose wait is still booked has not been heard. In a storm many wait for their turn
/// for some seconds; ringing once more does them no harm.
const UNHEARD_AFTER: Duration = Duration::from_secs(30);

impl Scheduler {
    /// Finds timers that the broker does not hold. Where it holds as many as are set, nothing more is read.
    pub(crate) async fn compare(&mut self, nats: &Nats, now: Timestamp) {
        let mut reader = Reader::open(nats, TIMERS, filter::all_timers(), Start::At(1));
        if usize::try_from(reader.stored().await).is_ok_and(|stored| stored == self.set.len()) {
            return;
        }
        let mut held: HashSet<WaitId> = HashSet::new();
        while let Seen::Message(stored) = reader.next().await {
            held.extend(stored.decode::<Timer>().ok().map(|timer| timer.wait));
        }
        let lost: Vec<_> = self
            .set
            .iter()
            .filter(|(_, set)| {
                !held.contains(&set.wait) && (set.at > now || now.since(set.at) > UNHEARD_AFTER)
            })
            .map(|(process, set)| Timer { key: set.key, process: *process, wait: set.wait, at: set.at })
            .collect();
        for timer in lost {
            tracing::warn!(process = %timer.process, wait = %timer.wait, at = %timer.at, "its timer is gone; set again");
            self.set.remove(&timer.process);
            self.behind.entry(timer.process).or_insert(Wanted::Timer(timer));
        }
    }
}
