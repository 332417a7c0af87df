//! [`Log::append`]: the only way a step gets into the log. It decides on the last step of the conversation, publishes
//! with that step's sequence as the expected last one over all logs of the conversation, and decides again when another
//! append was first.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::subjects::{Subject, filter};
use contract::topology::PROCESS;
use domain::process::{Cause, ConversationKey, Decision, Fact, State, Step, WakeTrigger, step};
use domain::{Refusal, Timestamp};

use crate::port::{BusError, Outgoing, Port};

/// Appends that lose the race against another try again at once, this often. Every loss is another's success, so this
/// many at one conversation in a row are a flood.
const ATTEMPTS_MAX: u32 = 200;

/// Losers spread out a little, by up to this much for each loss.
const LOSS_JITTER: Duration = Duration::from_micros(500);
const LOSS_JITTER_MAX: Duration = Duration::from_millis(20);

/// States kept in memory, to save a read where the same instance appends again. All are dropped when it is full.
const CACHED_MAX: usize = 4_096;

/// The log of every conversation, as one that may append sees it.
#[derive(Clone)]
pub struct Log {
    port: Arc<dyn Port>,
    cache: Arc<Mutex<HashMap<ConversationKey, Head>>>,
}

/// The last step of a conversation: its sequence (0 for none) and the state it left.
#[derive(Debug, Clone, Default)]
pub struct Head {
    pub sequence: u64,
    pub state: Option<State>,
}

#[derive(Debug)]
pub enum Appended {
    Step {
        sequence: u64,
        step: Box<Step>,
    },
    /// A repeated report; nothing was appended.
    Repeated,
}

#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Decided on a state read from the leader: nothing is to be done.
    #[error(transparent)]
    Refused(Refusal),
    #[error("the log of {} could not be reached", key.conversation)]
    Bus {
        key: ConversationKey,
        #[source]
        source: BusError,
    },
    #[error("the log of {} holds a step that cannot be read", key.conversation)]
    Unreadable {
        key: ConversationKey,
        #[source]
        source: contract::DecodeError,
    },
    #[error("lost {ATTEMPTS_MAX} races for the log of {} in a row; try again later", key.conversation)]
    Flooded { key: ConversationKey },
}

// === impl Log ===

impl Log {
    pub fn new(port: Arc<dyn Port>) -> Self {
        Self { port, cache: Arc::default() }
    }

    /// Decides `cause` and appends what follows. `now` is asked anew for each decision.
    pub async fn append(
        &self,
        key: ConversationKey,
        cause: Cause,
        traceparent: Option<&str>,
        now: impl Fn() -> Timestamp,
    ) -> Result<Appended, AppendError> {
        let mut cached = self.cached(key);
        for attempt in 0..ATTEMPTS_MAX {
            let from_leader = cached.is_none();
            let head = match cached.take() {
                Some(head) => head,
                None => self.head(key).await?,
            };
            let step = match step(key, head.state.as_ref(), cause.clone(), now()) {
                Ok(Decision::Append(step)) => step,
                // "Nothing to do" is only ever said on what the leader holds.
                Ok(Decision::Repeated) if from_leader => return Ok(Appended::Repeated),
                Err(refusal) if from_leader => return Err(AppendError::Refused(refusal)),
                Ok(Decision::Repeated) | Err(_) => continue,
            };
            let message = Outgoing::message(&Subject::Process(key, step.state.process), step.as_ref())
                .traced(traceparent.map(str::to_owned))
                .after_all_of(filter::log(key), head.sequence);
            match self.port.publish(message).await {
                Ok(published) => {
                    let head = Head { sequence: published.sequence, state: Some(step.state.clone()) };
                    self.remember(key, head);
                    metrics::counter!("resident_steps_total").increment(1);
                    tell(&step);
                    return Ok(Appended::Step { sequence: published.sequence, step });
                }
                // Whether an unanswered append happened is told by the state: numbers and epochs are in it.
                Err(BusError::Conflict | BusError::Unknown) => {
                    self.forget(key);
                    tokio::time::sleep(spread(&step, attempt)).await;
                }
                Err(source) => {
                    self.forget(key);
                    return Err(AppendError::Bus { key, source });
                }
            }
        }
        Err(AppendError::Flooded { key })
    }

    /// The last step of the conversation, from the leader.
    pub async fn head(&self, key: ConversationKey) -> Result<Head, AppendError> {
        let last = self.port.last(PROCESS, &filter::log(key)).await;
        let head = match last.map_err(|source| AppendError::Bus { key, source })? {
            None => Head::default(),
            Some(stored) => {
                let step: Step = stored.decode().map_err(|source| AppendError::Unreadable { key, source })?;
                Head { sequence: stored.sequence, state: Some(step.state) }
            }
        };
        self.remember(key, head.clone());
        Ok(head)
    }

    /// The state as last seen here: good for deciding what to try, never for declining.
    pub fn cached(&self, key: ConversationKey) -> Option<Head> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    fn remember(&self, key: ConversationKey, head: Head) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= CACHED_MAX {
            cache.clear();
        }
        // Two appends of one instance may come back in either order.
        if cache.get(&key).is_none_or(|known| known.sequence <= head.sequence) {
            cache.insert(key, head);
        }
    }

    fn forget(&self, key: ConversationKey) {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }
}

/// How long the loser of a race waits. It follows from what it would append, so that two of them differ and the same
/// race is run again alike.
fn spread(step: &Step, attempt: u32) -> Duration {
    let mut hasher = DefaultHasher::new();
    (contract::envelope::encode(step), attempt).hash(&mut hasher);
    let part = f64::from(u16::try_from(hasher.finish() % 1_000).unwrap_or_default()) / 1_000.0;
    LOSS_JITTER.saturating_mul(attempt).min(LOSS_JITTER_MAX).mul_f64(part)
}

/// A process's life in the log of whoever appended it.
fn tell(step: &Step) {
    let State { process, conversation, org, agent, epoch, .. } = &step.state;
    macro_rules! event {
        ($name:literal $(, $field:ident = $value:expr)*) => {{
            metrics::counter!("resident_process_events_total", "event" => $name).increment(1);
            tracing::info!(%process, %conversation, %org, %agent, epoch = epoch.0 $(, $field = ?$value)*, $name);
        }};
    }
    for fact in &step.facts {
        match fact {
            Fact::Started { ordinal } => event!("process.start", ordinal = ordinal),
            Fact::Parked { reason } => event!("process.park", reason = reason),
            Fact::Waking { trigger, .. } if *trigger != WakeTrigger::Start => {
                event!("process.wake", trigger = trigger);
            }
            Fact::Ended { exit } => event!("process.finish", outcome = exit.outcome, reason = exit.reason),
            _ => {}
        }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}
