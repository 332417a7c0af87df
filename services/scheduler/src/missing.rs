//! What ought to be set and is not, and what is set and ought not to be: a timer that somebody deleted, or that rang and
//! was never heard, and what was booked or cancelled while no scheduler was there.

use std::collections::BTreeMap;
use std::time::Duration;

use bus::{Bus, Reader, Seen, Start};
use contract::Subject;
use contract::messages::timer::Timer;
use contract::subjects::filter;
use contract::topology::TIMERS;
use domain::Timestamp;
use domain::ids::ProcessId;

use crate::on_step::{Scheduler, Set, Wanted};

/// A timer that rang this long ago and whose wait is still booked has not been heard. In a storm many wait for their turn
/// for some seconds; ringing once more does them no harm.
const UNHEARD_AFTER: Duration = Duration::from_secs(30);

/// What is set is being compared with what the broker holds.
pub(crate) struct Comparing {
    held: Reader,
    /// What was set when this began and has not been found yet.
    unfound: BTreeMap<ProcessId, Set>,
    /// What the broker holds and nobody had set.
    surplus: Vec<Timer>,
    /// What is this late without having been heard is rung again.
    unheard_after: Duration,
}

impl Comparing {
    /// What the broker holds. Cancelling loses nothing.
    pub(crate) async fn next(&mut self) -> Seen {
        self.held.next().await
    }

    /// Whether everything has been read.
    pub(crate) fn saw(&mut self, seen: Seen) -> bool {
        let Seen::Message(stored) = seen else { return true };
        if let Ok(timer) = stored.decode::<Timer>() {
            let set = self.unfound.get(&timer.process).filter(|set| set.wait == timer.wait);
            match set {
                Some(_) => drop(self.unfound.remove(&timer.process)),
                None => self.surplus.push(timer),
            }
        }
        false
    }
}

impl Scheduler {
    pub(crate) fn begin(&self, bus: &Bus, unheard_after: Duration) -> Comparing {
        let held = Reader::open(bus, TIMERS, filter::all_timers(), Start::At(1));
        Comparing { held, unfound: self.set.clone(), surplus: Vec::new(), unheard_after }
    }

    /// Where the broker holds as many as are set, nothing more is read.
    pub(crate) async fn begin_if_unequal(&self, bus: &Bus) -> Option<Comparing> {
        let mut comparing = self.begin(bus, UNHEARD_AFTER);
        let stored = comparing.held.stored().await;
        (!usize::try_from(stored).is_ok_and(|stored| stored == self.set.len())).then_some(comparing)
    }

    /// What is missing is set again with the next settling. What is too much is taken back; it would ring for nothing.
    pub(crate) async fn end(&mut self, compared: &mut Comparing, now: Timestamp) {
        for (process, Set { key, wait, at }) in std::mem::take(&mut compared.unfound) {
            let still_set = self.set.get(&process).is_some_and(|set| set.wait == wait);
            if still_set && (at > now || now.since(at) >= compared.unheard_after) {
                tracing::info!(%process, %wait, %at, "its timer is not there; it is set");
                self.set.remove(&process);
                self.behind.entry(process).or_insert(Wanted::Timer(Timer { key, process, wait, at }));
            }
        }
        for Timer { key, process, wait, .. } in std::mem::take(&mut compared.surplus) {
            if self.set.get(&process).is_none_or(|set| set.wait != wait)
                && !self.behind.contains_key(&process)
            {
                let subject = Subject::Timer(key.org, process, wait).to_string();
                if let Err(error) = self.port.purge(TIMERS, &subject, 0).await {
                    tracing::debug!(%wait, %error, "a timer that nobody waits for stays until the next look");
                }
            }
        }
    }
}
