//! An entry was stored on a conversation's inbox. The delivery is only a doorbell: everything behind the last input of
//! the log is read from the record, in order, and each entry comes to a step.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bus::kv::{self, Revision};
use bus::{
    AppendError, BusError, Delivery, FAILURES_MAX, Handled, Head, Log, Port, Stored, bury, last_event,
};
use contract::Subject;
use contract::buckets::{AgentKey, Agents, Deliveries, Delivery as Remembered, DeliveryKey};
use contract::messages::record::{InputEntry, InputKind};
use contract::subjects::{DeadOf, filter};
use contract::topology::RECORD;
use domain::Refusal;
use domain::ids::{AgentId, RecordSeq, UserId};
use domain::process::{Cause, ConversationKey, Input, StartWith, State};
use service::clock::Clock;
use service::telemetry::{continue_from, traceparent_of};
use tokio::sync::Mutex;
use tracing::Instrument;

use crate::index;

/// How long a doorbell waits when the broker could not be asked.
const BROKER_AWAY: Duration = Duration::from_millis(500);

/// One conversation is worked on by one task of this instance at a time. The number of locks only bounds how many
/// conversations are worked on at once.
const LOCKS: usize = 1_024;

/// What was appended here this long ago is seldom the last step any more: the segment has reported since.
const STALE_AFTER: Duration = Duration::from_millis(20);

pub(crate) struct Steerer {
    port: Arc<dyn Port>,
    log: Log,
    clock: Arc<dyn Clock>,
    /// With the time of the last append.
    locks: Vec<Mutex<Duration>>,
}

/// What is known besides the entry itself.
struct View {
    /// What a process would start with; absent when the agent is gone.
    start: Option<StartWith>,
    /// The input that was first with this delivery id.
    first: Option<RecordSeq>,
}

// === impl Steerer ===

impl Steerer {
    pub(crate) fn new(port: Arc<dyn Port>, clock: Arc<dyn Clock>) -> Self {
        let log = Log::new(Arc::clone(&port));
        Self { port, log, clock, locks: std::iter::repeat_with(Mutex::default).take(LOCKS).collect() }
    }

    pub(crate) async fn on_input(&self, delivery: Delivery) -> Handled {
        let Ok(Subject::RecordIn(key)) = delivery.stored.subject.parse() else {
            return Handled::Dead("this subject is no conversation's inbox".into());
        };
        let lock =
            &self.locks[usize::try_from(key.conversation.uuid().as_u128() % LOCKS as u128).unwrap_or(0)];
        let mut appended_at = lock.lock().await;
        let fresh = self.clock.monotonic().saturating_sub(*appended_at) < STALE_AFTER;
        let caught_up = self.catch_up(key, delivery.stored.sequence, fresh, delivery.failures).await;
        *appended_at = self.clock.monotonic();
        match caught_up {
            Ok(()) => Handled::Done,
            Err(why) => {
                tracing::warn!(conversation = %key.conversation, why, "input waits");
                Handled::Later(BROKER_AWAY)
            }
        }
    }

    /// Works off everything up to the entry that rang. What is known is the last step where it is `fresh`.
    async fn catch_up(
        &self,
        key: ConversationKey,
        rung: u64,
        fresh: bool,
        failures: u32,
    ) -> Result<(), Waits> {
        let cached = self.log.cached(key);
        let known = cached.as_ref().map_or(0, handled_in);
        if known >= rung {
            return Ok(());
        }
        let inputs = filter::inputs(key);
        // Both reads take the time of one; a publish that loses would take longer.
        let head = async {
            match cached.filter(|_| fresh) {
                Some(head) => Ok(head),
                None => self.log.head(key).await,
            }
        };
        let (head, next) = tokio::join!(head, self.port.next(RECORD, &inputs, known + 1));
        let mut handled = handled_in(&head.map_err(waits)?);
        let mut next = next.map_err(waits)?.filter(|entry| entry.sequence > handled);
        while handled < rung {
            let entry = match next.take() {
                Some(entry) => entry,
                None => match self.port.next(RECORD, &inputs, handled + 1).await.map_err(waits)? {
                    Some(entry) => entry,
                    None => return Ok(()),
                },
            };
            let span = tracing::info_span!(
                "steer",
                conversation = %key.conversation,
                input = entry.sequence,
            );
            if let Some(traceparent) = &entry.envelope.traceparent {
                continue_from(&span, traceparent);
            }
            let poison = entry.sequence == rung && failures + 1 >= FAILURES_MAX;
            self.take(key, &entry, poison).instrument(span).await?;
            handled = entry.sequence;
        }
        Ok(())
    }

    /// Brings one entry to its step.
    async fn take(&self, key: ConversationKey, entry: &Stored, poison: bool) -> Result<(), Waits> {
        let seq = RecordSeq(entry.sequence);
        let cause = match entry.decode::<InputEntry>() {
            Ok(_) if poison => dead(seq, format!("the handler failed {FAILURES_MAX} times")),
            Ok(said) => decide(seq, &said, &self.view(key, seq, &said).await?),
            Err(error) => dead(seq, error.to_string()),
        };
        if let Cause::Input { input: Input::Dead { error }, .. } = &cause {
            bury(self.port.as_ref(), DeadOf::Record, RECORD, entry, error).await.map_err(waits)?;
        }
        let traceparent = traceparent_of(&tracing::Span::current());
        match self.log.append(key, cause, traceparent.as_deref(), || self.clock.now()).await {
            // Another instance was first.
            Ok(_) | Err(AppendError::Refused(Refusal::AlreadyHandled { .. })) => Ok(()),
            Err(error) => Err(waits(error)),
        }
    }

    async fn view(&self, key: ConversationKey, seq: RecordSeq, said: &InputEntry) -> Result<View, Waits> {
        let first = match &said.idempotency_key {
            Some(delivery_id) => Some(self.claim(key, seq, delivery_id, said).await?),
            None => None,
        };
        let live = self.log.cached(key).and_then(|head| head.state).filter(State::is_live);
        let start = match (&said.what, live) {
            (InputKind::Message { .. }, None) => {
                // Before the step, so that a crash in between is mended by being rung again.
                index::update(self.port.as_ref(), key, seq, said).await.map_err(waits)?;
                let name = AgentKey { org: key.org, agent: said.agent };
                let agent = kv::get::<Agents>(self.port.as_ref(), &name).await.map_err(waits)?.value;
                let events = Some(last_event(self.port.as_ref()).await.map_err(waits)?);
                agent
                    .filter(|agent| agent.deleted_at.is_none())
                    .map(|agent| StartWith { harness: agent.harness, events })
            }
            // Should the process end before the step, the next one of the chain starts alike.
            (InputKind::Message { .. }, Some(live)) => {
                Some(StartWith { harness: live.harness, events: None })
            }
            (InputKind::Archive, _) => {
                index::update(self.port.as_ref(), key, seq, said).await.map_err(waits)?;
                None
            }
            (
                InputKind::Answer { .. } | InputKind::Stop { .. } | InputKind::Retry | InputKind::Fail { .. },
                _,
            ) => None,
        };
        Ok(View { start, first })
    }

    /// Remembers the delivery under its id and returns the input that was first with it.
    async fn claim(
        &self,
        key: ConversationKey,
        seq: RecordSeq,
        delivery_id: &str,
        said: &InputEntry,
    ) -> Result<RecordSeq, Waits> {
        let name = DeliveryKey::new(key, delivery_id);
        let port = self.port.as_ref();
        let mine = Remembered { input: seq, content: said.content_hash() };
        match kv::put::<Deliveries>(port, &name, &mine, Revision(0)).await {
            Ok(_) => return Ok(seq),
            Err(BusError::Conflict) => {}
            Err(error) => return Err(waits(error)),
        }
        let known = kv::get::<Deliveries>(port, &name).await.map_err(waits)?;
        Ok(known.value.map_or(seq, |known| known.input))
    }
}

fn handled_in(head: &Head) -> u64 {
    head.state.as_ref().map_or(0, |state| state.handled.0)
}

/// What an entry asks for, given what is known.
fn decide(seq: RecordSeq, said: &InputEntry, view: &View) -> Cause {
    let input = match (&said.what, view.first) {
        (_, Some(first)) if first != seq => Input::Duplicate { of: first },
        (InputKind::Message { mode, .. }, _) => Input::Message { mode: *mode, start: view.start.clone() },
        (InputKind::Answer { card, answers }, _) => {
            Input::Answer { card: *card, questions: answers.iter().map(|answer| answer.question).collect() }
        }
        (InputKind::Stop { scope }, _) => Input::Stop { scope: *scope },
        (InputKind::Retry, _) => Input::Retry,
        (InputKind::Fail { why }, _) => Input::Fail { why: why.clone() },
        (InputKind::Archive, _) => Input::Archive,
    };
    Cause::Input { seq, from: said.from, agent: said.agent, input }
}

/// What nobody can take still takes its number.
fn dead(seq: RecordSeq, error: String) -> Cause {
    Cause::Input { seq, from: UserId::UNKNOWN, agent: AgentId::UNKNOWN, input: Input::Dead { error } }
}

/// An entry that cannot be decided now waits; this is why.
type Waits = String;

fn waits(error: impl Error) -> Waits {
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        why = format!("{why}: {cause}");
        source = cause.source();
    }
    why
}
