//! The one path on which anything said to a conversation is accepted: into the record, once, or not at all.

use api::{Caller, Problem, Saying, fits};
use bus::kv;
use bus::{BusError, Outgoing, Port};
use contract::Subject;
use contract::buckets::{Agent, Deliveries, Delivery, DeliveryKey};
use contract::messages::record::{InputEntry, Source};
use contract::topology::RECORD;
use domain::Refusal;
use domain::ids::{ConversationId, MessageId, RecordSeq};
use domain::policy::{HELD_MAX, UNDELIVERED_MAX};
use domain::process::{ConversationKey, Mode, State};
use reads::{Head, decoded, head, row_problem};
use service::fresh;
use service::telemetry::traceparent_of;
use tracing::Span;

use crate::Ingress;

/// Where something is said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) key: ConversationKey,
    /// Nobody can have said anything here before.
    fresh: bool,
}

/// It is in the record.
#[derive(Debug, Clone)]
pub(crate) struct Accepted {
    pub(crate) key: ConversationKey,
    pub(crate) input: RecordSeq,
    /// The last step before it; where it was said before, the last step of all.
    pub(crate) last: Head,
    /// Its own step is behind this sequence of the log.
    pub(crate) behind: u64,
}

/// What the broker says of an entry.
enum Stored {
    New(RecordSeq),
    /// The same had been stored before.
    Before(RecordSeq),
}

// === impl Place ===

impl Place {
    pub(crate) const fn existing(key: ConversationKey) -> Self {
        Self { key, fresh: false }
    }

    /// A conversation that the message opens. With an idempotency key it is the same one each time.
    pub(crate) fn opened(agent: &Agent, idempotency_key: Option<&str>) -> Self {
        let conversation = match idempotency_key {
            Some(key) => ConversationId::of_key(agent.org, agent.id, key),
            None => ConversationId::from_uuid(fresh::uuid()),
        };
        let key = ConversationKey { org: agent.org, conversation };
        Self { key, fresh: idempotency_key.is_none() }
    }
}

// === impl Ingress ===

impl Ingress {
    pub(crate) async fn accept(
        &self,
        caller: &Caller,
        agent: &Agent,
        place: Place,
        saying: Saying,
    ) -> Result<Accepted, Problem> {
        let (key, mode) = (place.key, saying.mode());
        if place.fresh && mode == Some(Mode::Steer) {
            return Err(Problem::Refused(Refusal::NothingToSteer));
        }
        let entry = InputEntry {
            at: self.runtime.clock.now(),
            agent: agent.id,
            from: caller.user,
            author: saying.author,
            source: Source::Api,
            idempotency_key: saying.idempotency_key,
            what: saying.what,
        };
        fits(&entry)?;
        let delivery = entry.idempotency_key.as_deref().map(|id| DeliveryKey::new(key, id));
        let (last, delivered) = tokio::try_join!(self.head(place), self.delivered(delivery.as_ref()))?;
        if let Some(delivered) = delivered {
            if delivered.content != entry.content_hash() {
                return Err(Problem::KeyReused);
            }
            return Ok(Accepted { key, input: delivered.input, last, behind: 0 });
        }
        if let Some(state) = &last.state {
            room(state, mode)?;
        }
        let (input, behind) = match self.store(key, &entry, delivery.as_ref()).await? {
            Stored::New(input) => (input, last.sequence),
            Stored::Before(input) => (input, 0),
        };
        tracing::info!(
            conversation = %key.conversation,
            message_id = %MessageId::of_input(key.conversation, input),
            input = input.0,
            "accepted",
        );
        Ok(Accepted { key, input, last, behind })
    }

    async fn head(&self, place: Place) -> Result<Head, Problem> {
        if place.fresh { Ok(Head::default()) } else { head(&self.nats, place.key).await }
    }

    async fn delivered(&self, name: Option<&DeliveryKey>) -> Result<Option<Delivery>, Problem> {
        let Some(name) = name else { return Ok(None) };
        let row = kv::get::<Deliveries>(&self.nats, name).await.map_err(|error| row_problem(&error))?;
        Ok(row.value)
    }

    async fn store(
        &self,
        key: ConversationKey,
        entry: &InputEntry,
        delivery: Option<&DeliveryKey>,
    ) -> Result<Stored, Problem> {
        let mut message =
            Outgoing::message(&Subject::RecordIn(key), entry).traced(traceparent_of(&Span::current()));
        if let Some(delivery) = delivery {
            message = message.with_id(delivery.to_string());
        }
        let published = self.nats.publish(message).await.map_err(|error| not_stored(&error))?;
        let input = RecordSeq(published.sequence);
        if !published.duplicate {
            return Ok(Stored::New(input));
        }
        let first = self.nats.at(RECORD, input.0).await.map_err(|error| Problem::unreachable(&error))?;
        let same = match first {
            Some(first) => decoded::<InputEntry>(&first)?.content_hash() == entry.content_hash(),
            None => false,
        };
        if same { Ok(Stored::Before(input)) } else { Err(Problem::KeyReused) }
    }
}

/// Refuses what the process has no room for, before it is accepted.
fn room(state: &State, mode: Option<Mode>) -> Result<(), Problem> {
    let Some(mode) = mode else { return Ok(()) };
    let (waiting, held) = (state.undelivered.len(), state.held.len());
    if waiting >= UNDELIVERED_MAX {
        let why = format!("{waiting} messages wait for the agent, as many as may; let it read some first");
        return Err(Problem::TooMany { why });
    }
    if mode == Mode::Queue && held >= HELD_MAX {
        let why = format!(
            "{held} messages are queued for the end of the turn, as many as may; wait for it, or send with mode auto"
        );
        return Err(Problem::TooMany { why });
    }
    Ok(())
}

/// Why an entry is not known to be stored.
pub(crate) fn not_stored(error: &BusError) -> Problem {
    match error {
        BusError::Unknown => {
            tracing::warn!(error = error as &dyn std::error::Error, "the broker did not acknowledge a write");
            Problem::OutcomeUnknown
        }
        BusError::Rejected(_) => Problem::internal(error, "the broker does not take what is to be stored"),
        BusError::Conflict | BusError::Occupied | BusError::Unavailable(_) => Problem::unreachable(error),
    }
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;
    use domain::ids::{AgentId, OrgId, UserId};
    use domain::process::{Cause, Decision, Harness, Input, StartWith, step};
    use uuid::Uuid;

    use super::*;

    fn state(undelivered: usize, held: usize) -> State {
        let key = ConversationKey {
            org: OrgId::from_uuid(Uuid::from_u128(1)),
            conversation: ConversationId::from_uuid(Uuid::from_u128(2)),
        };
        let cause = Cause::Input {
            seq: RecordSeq(1),
            from: UserId::from_uuid(Uuid::from_u128(3)),
            agent: AgentId::from_uuid(Uuid::from_u128(4)),
            input: Input::Message {
                mode: Mode::Auto,
                start: Some(StartWith { harness: Harness::ClaudeCode, events: None }),
            },
        };
        let Ok(Decision::Append(first)) = step(key, None, cause, Timestamp::EPOCH) else { panic!("no step") };
        let numbered = |count: usize| (1..=count as u64).map(RecordSeq).collect();
        State { undelivered: numbered(undelivered), held: numbered(held), ..first.state }
    }

    #[test]
    fn what_there_is_no_room_for_is_refused_before_it_is_accepted() {
        let full = state(UNDELIVERED_MAX, 0);
        assert!(matches!(room(&full, Some(Mode::Auto)), Err(Problem::TooMany { .. })));
        assert!(room(&state(UNDELIVERED_MAX - 1, 0), Some(Mode::Auto)).is_ok());
        // A stop always finds room.
        assert!(room(&full, None).is_ok());
        let held = state(HELD_MAX, HELD_MAX);
        assert!(matches!(room(&held, Some(Mode::Queue)), Err(Problem::TooMany { .. })));
        assert!(room(&held, Some(Mode::Auto)).is_ok());
    }
}
