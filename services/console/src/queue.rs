//! The places of waking processes among those that wait for a slot of the same executor.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::Problem;
use bus::{Nats, Reader, Seen, Start};
use contract::Subject;
use contract::subjects::filter;
use contract::topology::ASSIGN;
use domain::ids::{ExecutorId, ProcessId};
use domain::process::{PublicProcess, WakeClass};
use reads::in_time;
use service::clock::Clock;
use tokio::sync::Mutex;

/// How old an answer may be. In a storm everybody asks, and each answer is a reading of the whole queue.
const KEPT: Duration = Duration::from_secs(1);

/// Tells waking processes their place.
#[derive(Debug, Clone)]
pub(crate) struct Queues {
    nats: Nats,
    clock: Arc<dyn Clock>,
    /// What was read last, and when.
    kept: Arc<Mutex<Option<(Duration, Places)>>>,
}

type Places = Arc<HashMap<ProcessId, (ExecutorId, usize)>>;

impl Queues {
    pub(crate) fn new(nats: &Nats, clock: Arc<dyn Clock>) -> Self {
        Self { nats: nats.clone(), clock, kept: Arc::default() }
    }

    /// Says of each that is waking how many are before it. One that no executor could be found for has no place.
    pub(crate) async fn tell<'a>(
        &self,
        processes: impl IntoIterator<Item = &'a mut PublicProcess>,
    ) -> Result<(), Problem> {
        let waking: Vec<_> = processes.into_iter().filter(|process| process.is_waking()).collect();
        if waking.is_empty() {
            return Ok(());
        }
        let places = self.places().await?;
        for process in waking {
            if let Some((executor, before)) = places.get(&process.id) {
                process.waits_for(*executor, *before);
            }
        }
        Ok(())
    }

    async fn places(&self) -> Result<Places, Problem> {
        let mut kept = self.kept.lock().await;
        if let Some((read, places)) = &*kept
            && self.clock.monotonic().saturating_sub(*read) < KEPT
        {
            return Ok(Arc::clone(places));
        }
        let places = Arc::new(places_of(in_time(assigned(&self.nats)).await?));
        *kept = Some((self.clock.monotonic(), Arc::clone(&places)));
        Ok(places)
    }
}

/// What stands in the queues, in the order in which it came.
async fn assigned(nats: &Nats) -> Vec<(ExecutorId, WakeClass, ProcessId)> {
    let mut reader = Reader::open(nats, ASSIGN, filter::all_assignments(), Start::LastOfEach);
    let mut all = Vec::new();
    while let Seen::Message(stored) = reader.next().await {
        if let Ok(Subject::Assign(executor, class, process)) = stored.subject.parse() {
            all.push((executor, class, process));
        }
    }
    all
}

/// An executor takes the lowest class first, and in it what came first.
fn places_of(assigned: Vec<(ExecutorId, WakeClass, ProcessId)>) -> HashMap<ProcessId, (ExecutorId, usize)> {
    let mut queues: BTreeMap<(ExecutorId, WakeClass), Vec<ProcessId>> = BTreeMap::new();
    for (executor, class, process) in assigned {
        queues.entry((executor, class)).or_default().push(process);
    }
    let mut before: HashMap<ExecutorId, usize> = HashMap::new();
    let mut places = HashMap::new();
    for ((executor, _), queue) in queues {
        let before = before.entry(executor).or_default();
        for process in queue {
            places.insert(process, (executor, *before));
            *before += 1;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_lower_class_is_before_whatever_came_before_it() {
        let [first, second, person, elsewhere] =
            [1, 2, 3, 4].map(|n| ProcessId::from_uuid(Uuid::from_u128(n)));
        let (here, there) = (ExecutorId(0), ExecutorId(1));
        let places = places_of(vec![
            (here, WakeClass::Event, first),
            (here, WakeClass::Event, second),
            (there, WakeClass::Resume, elsewhere),
            (here, WakeClass::Input, person),
        ]);
        assert_eq!(places[&person], (here, 0));
        assert_eq!(places[&first], (here, 1));
        assert_eq!(places[&second], (here, 2));
        assert_eq!(places[&elsewhere], (there, 0));
    }
}
