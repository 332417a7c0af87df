//! Events and the waits for them. One task follows the log and the events: a wait that it learns of is first looked for
//! among the events there are, from the leader, and from then on each event that comes is held against it. So nothing
//! falls in between, and a second matcher does no harm, since a wait is over once.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bus::{AppendError, Bus, BusError, Log, Port, Reader, Seen, Start, Steps, Stored, Told};
use contract::messages::event::EventEntry;
use contract::subjects::{self, filter};
use contract::topology::EVENTS;
use domain::Refusal;
use domain::ids::{EventSeq, ProcessId, WaitId};
use domain::process::{Cause, ConversationKey, LookBack, State, Wait, WaitOn, wakes};
use service::Runtime;
use service::clock::Clock;

/// How often what could not be looked for is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Events that are looked at for one wait before the others get their turn.
const LOOKED_AT_MAX: usize = 1_000;

struct Matcher {
    port: Arc<dyn Port>,
    log: Log,
    clock: Arc<dyn Clock>,
    waits: HashMap<ProcessId, Waiting>,
    /// Who waits for what, by the subject of its events.
    by_subject: HashMap<Arc<str>, Vec<ProcessId>>,
    /// Waits that are still to be looked for among the events there are.
    unlooked: BTreeSet<ProcessId>,
}

struct Waiting {
    key: ConversationKey,
    wait: WaitId,
    kinds: Vec<String>,
    look_back: LookBack,
    subject: Arc<str>,
}

/// Follows the log and the events until the shutdown begins.
pub(crate) async fn follow(bus: Bus, runtime: Runtime, mut steps: Steps) {
    let check = runtime.health.check("waker events");
    let stop = runtime.shutdown.draining_token();
    let port = bus.port();
    let mut matcher = Matcher {
        log: Log::new(Arc::clone(&port)),
        port,
        clock: Arc::clone(&runtime.clock),
        waits: HashMap::new(),
        by_subject: HashMap::new(),
        unlooked: BTreeSet::new(),
    };
    let mut events = Reader::open(&bus, EVENTS, filter::all_events(), Start::LastOfEach);
    // The last event of each subject, until both have caught up: a wait that began behind it need not be looked for.
    let mut latest: Option<HashMap<String, u64>> = Some(HashMap::new());
    let (mut steps_read, mut events_read) = (false, false);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            told = steps.next() => match told {
                Told::CaughtUp => steps_read = true,
                Told::Step(step) => matcher.on_step(&step.state),
            },
            seen = events.next() => match seen {
                Seen::CaughtUp => events_read = true,
                Seen::Message(stored) => match &mut latest {
                    Some(latest) => drop(latest.insert(stored.subject.clone(), stored.sequence)),
                    None => matcher.on_event(&stored).await,
                },
            },
            () = runtime.clock.sleep(AGAIN_AFTER), if latest.is_none() && !matcher.unlooked.is_empty() => {}
        }
        if steps_read && events_read {
            if let Some(latest) = latest.take() {
                matcher.leave_out(&latest);
                check.ready();
            }
            matcher.look_back().await;
        }
    }
}

// === impl Matcher ===

impl Matcher {
    fn on_step(&mut self, state: &State) {
        let booked = state.wait.as_ref().filter(|_| state.is_live());
        if let (Some(wait), Some(known)) = (booked, self.waits.get(&state.process))
            && wait.id == known.wait
        {
            return;
        }
        self.forget(state.process);
        if let Some(Wait { id, on: WaitOn::Event { event, kinds, .. }, look_back, .. }) = booked {
            let subject = self.by_subject(&subjects::event(state.org, event), state.process);
            let (kinds, look_back) = (kinds.clone(), look_back.clone());
            let waiting = Waiting { key: state.key(), wait: *id, kinds, look_back, subject };
            self.waits.insert(state.process, waiting);
            self.unlooked.insert(state.process);
        }
    }

    /// Notes who waits for events of the subject; its one copy in memory.
    fn by_subject(&mut self, subject: &str, process: ProcessId) -> Arc<str> {
        let known = self.by_subject.get_key_value(subject).map(|(known, _)| Arc::clone(known));
        let subject = known.unwrap_or_else(|| Arc::from(subject));
        self.by_subject.entry(Arc::clone(&subject)).or_default().push(process);
        subject
    }

    fn forget(&mut self, process: ProcessId) {
        self.unlooked.remove(&process);
        let Some(known) = self.waits.remove(&process) else { return };
        if let Some(all) = self.by_subject.get_mut(&known.subject) {
            all.retain(|waiting| *waiting != process);
            if all.is_empty() {
                self.by_subject.remove(&known.subject);
            }
        }
    }

    /// Leaves out the waits behind whose beginning there is no event.
    fn leave_out(&mut self, latest: &HashMap<String, u64>) {
        let Self { unlooked, waits, .. } = self;
        unlooked.retain(|process| {
            waits.get(process).is_some_and(|waiting| {
                latest.get(&*waiting.subject).is_some_and(|last| *last > waiting.look_back.after.0)
            })
        });
    }

    async fn on_event(&mut self, stored: &Stored) {
        let waiting: Vec<_> =
            self.by_subject.get(stored.subject.as_str()).into_iter().flatten().copied().collect();
        for process in waiting {
            // Whoever is still to be looked for finds it then, in its order.
            if self.unlooked.contains(&process) {
                continue;
            }
            if let Err(error) = self.hold_against(process, stored).await {
                tracing::warn!(%process, %error, "an event waits for the broker");
                self.unlooked.insert(process);
            }
        }
    }

    /// Looks for every wait that is still to be looked for. What fails stays.
    async fn look_back(&mut self) {
        for process in self.unlooked.clone() {
            match self.look_for(process).await {
                Ok(true) => drop(self.unlooked.remove(&process)),
                Ok(false) => {}
                Err(error) => tracing::warn!(%process, %error, "a wait is looked for again"),
            }
        }
    }

    /// Whether there is nothing left to look at.
    async fn look_for(&mut self, process: ProcessId) -> Result<bool, BusError> {
        for _ in 0..LOOKED_AT_MAX {
            let Some(waiting) = self.waits.get(&process) else { return Ok(true) };
            let from = waiting.look_back.after.0 + 1;
            let Some(stored) = self.port.next(EVENTS, &waiting.subject, from).await? else { return Ok(true) };
            self.hold_against(process, &stored).await?;
            if let Some(waiting) = self.waits.get_mut(&process) {
                waiting.look_back.after = EventSeq(stored.sequence);
            }
        }
        Ok(false)
    }

    /// Fires the wait if it is for this event.
    async fn hold_against(&mut self, process: ProcessId, stored: &Stored) -> Result<(), BusError> {
        let Some(waiting) = self.waits.get(&process) else { return Ok(()) };
        let seq = EventSeq(stored.sequence);
        let given = seq <= waiting.look_back.after || waiting.look_back.given.contains(&seq);
        let entry: EventEntry = match stored.decode() {
            Ok(entry) => entry,
            Err(error) => {
                tracing::error!(subject = stored.subject, %error, "an event that cannot be read");
                return Ok(());
            }
        };
        if given || entry.own || !wakes(&waiting.kinds, &entry.kind) {
            return Ok(());
        }
        let cause = Cause::Happened { wait: waiting.wait, event: Box::new(entry.digest(seq)) };
        let traceparent = stored.envelope.traceparent.as_deref();
        match self.log.append(waiting.key, cause, traceparent, || self.clock.now()).await {
            Ok(_) | Err(AppendError::Refused(Refusal::NotBooked { .. })) => {
                self.forget(process);
                Ok(())
            }
            Err(AppendError::Bus { source, .. }) => Err(source),
            Err(error) => {
                tracing::error!(%process, %error, "an event could not be appended");
                Err(BusError::Unavailable(error.to_string()))
            }
        }
    }
}
