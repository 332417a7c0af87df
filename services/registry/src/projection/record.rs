//! The `state` entries of the record: how a process stands, and the facts that led there. Steps that come while an
//! entry is written go into the next one together, so a busy process costs fewer entries than steps.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bus::{BusError, Outgoing, Port};
use contract::Subject;
use contract::messages::record::{DatedFact, StateEntry};
use contract::subjects::filter;
use contract::topology::{PROCESS, RECORD};
use domain::policy::HISTORY_STEPS_KEPT;
use domain::process::{ConversationKey, Phase, State, Step};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Unshown;

/// Steps that were read and are not shown yet, over all conversations. Beyond it the log is read no further.
const STEPS_WAITING_MAX: usize = 8_192;

/// Steps are gathered this long, so that those of one message share an entry and do not stand in the way of what its
/// segment writes into the same record. Nobody sees the difference.
const GATHERED_FOR: Duration = Duration::from_millis(10);

/// Entries written at once.
const WRITERS_MAX: usize = 64;

/// Facts in one entry, so that it stays small.
const FACTS_MAX: usize = 256;

/// Conversations whose last entry is remembered. All are forgotten when it is full and read again when needed.
const TOLD_MAX: usize = 8_192;

const RETRY_AFTER: Duration = Duration::from_millis(200);

#[derive(Clone)]
pub(crate) struct Record(Arc<Shared>);

struct Shared {
    port: Arc<dyn Port>,
    room: Arc<Semaphore>,
    writers: Semaphore,
    queues: Mutex<HashMap<ConversationKey, Vec<Waiting>>>,
    told: Mutex<HashMap<ConversationKey, Told>>,
    stop: CancellationToken,
}

struct Waiting {
    sequence: u64,
    step: Step,
    _unshown: Arc<Unshown>,
    _room: OwnedSemaphorePermit,
}

/// The last entry of a conversation.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    /// The last step told.
    step: u64,
    /// Where the entry stands in the record; 0 for none.
    entry: u64,
    /// Steps told since the history was trimmed last, as far as this registry has seen them.
    untrimmed: u64,
}

// === impl Record ===

impl Record {
    pub(crate) fn new(port: Arc<dyn Port>, stop: CancellationToken) -> Self {
        Self(Arc::new(Shared {
            port,
            room: Arc::new(Semaphore::new(STEPS_WAITING_MAX)),
            writers: Semaphore::new(WRITERS_MAX),
            queues: Mutex::default(),
            told: Mutex::default(),
            stop,
        }))
    }

    /// Takes a step up; waits while too many wait.
    pub(crate) async fn show(&self, sequence: u64, step: Step, unshown: Arc<Unshown>) {
        let Ok(room) = Arc::clone(&self.0.room).acquire_owned().await else { return };
        let key = step.state.key();
        let waiting = Waiting { sequence, step, _unshown: unshown, _room: room };
        let first = {
            let mut queues = self.0.queues();
            let queue = queues.get_mut(&key);
            match queue {
                Some(queue) => {
                    queue.push(waiting);
                    false
                }
                None => {
                    queues.insert(key, vec![waiting]);
                    true
                }
            }
        };
        // A conversation with a queue has a writer, who takes what comes meanwhile.
        if first {
            let shared = Arc::clone(&self.0);
            tokio::spawn(async move { shared.write_queue(key).await });
        }
    }
}

// === impl Shared ===

impl Shared {
    async fn write_queue(&self, key: ConversationKey) {
        loop {
            tokio::time::sleep(GATHERED_FOR).await;
            let waiting = {
                let mut queues = self.queues();
                match queues.get_mut(&key).map(std::mem::take) {
                    Some(waiting) if !waiting.is_empty() => waiting,
                    _ => {
                        queues.remove(&key);
                        return;
                    }
                }
            };
            let Ok(_writer) = self.writers.acquire().await else { return };
            while let Err(error) = self.write(key, &waiting).await {
                if error != BusError::Conflict {
                    tracing::warn!(conversation = %key.conversation, %error, "the record waits for its state");
                }
                self.told().remove(&key);
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => return,
                    () = tokio::time::sleep(RETRY_AFTER) => {}
                }
            }
        }
    }

    async fn write(&self, key: ConversationKey, waiting: &[Waiting]) -> Result<(), BusError> {
        let known = self.told().get(&key).copied();
        let (mut told, read);
        let steps: Vec<(u64, &Step)> = match known {
            Some(known) => {
                told = known;
                waiting.iter().map(|waiting| (waiting.sequence, &waiting.step)).collect()
            }
            // After a restart the log is read on from what the record tells.
            None => {
                told = self.last_told(key).await?;
                let until = waiting.last().map_or(0, |waiting| waiting.sequence);
                read = self.steps_between(key, told.step, until).await?;
                read.iter().map(|(sequence, step)| (*sequence, step)).collect()
            }
        };
        let fresh: Vec<_> = steps.into_iter().filter(|(sequence, _)| *sequence > told.step).collect();
        for entry in entries(&fresh) {
            let message = Outgoing::message(&Subject::RecordState(key), &entry).after(told.entry);
            let published = self.port.publish(message).await?;
            told = Told { step: entry.step, entry: published.sequence, ..told };
            self.remember(key, told);
        }
        let Some((_, last)) = fresh.last() else { return Ok(()) };
        told.untrimmed += fresh.len() as u64;
        if told.untrimmed > HISTORY_STEPS_KEPT && rests(&last.state) {
            self.port.purge(PROCESS, &filter::log(key), HISTORY_STEPS_KEPT).await?;
            told.untrimmed = 0;
        }
        self.remember(key, told);
        Ok(())
    }

    async fn last_told(&self, key: ConversationKey) -> Result<Told, BusError> {
        let last = self.port.last(RECORD, &Subject::RecordState(key).to_string()).await?;
        Ok(last.map_or(Told::default(), |stored| Told {
            step: stored.decode::<StateEntry>().map_or(0, |entry| entry.step),
            entry: stored.sequence,
            untrimmed: 0,
        }))
    }

    async fn steps_between(
        &self,
        key: ConversationKey,
        told: u64,
        until: u64,
    ) -> Result<Vec<(u64, Step)>, BusError> {
        let mut steps = Vec::new();
        let mut from = told + 1;
        while from <= until {
            let Some(stored) = self.port.next(PROCESS, &filter::log(key), from).await? else { break };
            from = stored.sequence + 1;
            match stored.decode::<Step>() {
                Ok(step) => steps.push((stored.sequence, step)),
                Err(error) => tracing::error!(subject = stored.subject, %error, "a step that cannot be read"),
            }
        }
        Ok(steps)
    }

    fn remember(&self, key: ConversationKey, told: Told) {
        let mut all = self.told();
        if all.len() >= TOLD_MAX {
            all.clear();
        }
        all.insert(key, told);
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<ConversationKey, Vec<Waiting>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> MutexGuard<'_, HashMap<ConversationKey, Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a history may be cut behind this state: it is parked or ended, and no step before it is still owed.
fn rests(state: &State) -> bool {
    matches!(state.phase, Phase::Parked { .. } | Phase::Ended { .. }) && state.undelivered.is_empty()
}

/// One entry for steps of one process that follow each other.
fn entries(steps: &[(u64, &Step)]) -> Vec<StateEntry> {
    let mut entries: Vec<StateEntry> = Vec::new();
    for (sequence, step) in steps {
        let facts = step.facts.iter().map(|fact| DatedFact { at: step.at, fact: fact.clone() });
        match entries.last_mut() {
            Some(entry) if entry.process.id == step.state.process && entry.facts.len() < FACTS_MAX => {
                entry.step = *sequence;
                entry.facts.extend(facts);
                entry.process = step.state.public();
            }
            _ => entries.push(StateEntry {
                step: *sequence,
                facts: facts.collect(),
                process: step.state.public(),
            }),
        }
    }
    entries
}
