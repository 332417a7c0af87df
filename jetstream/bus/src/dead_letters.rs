//! Messages that no handler could take: kept with where they came from and why, listed, and sent again.

use async_nats::HeaderMap;
use contract::envelope::header;
use contract::subjects::{DeadOf, filter};
use contract::topology::DEAD;
use contract::{Envelope, Subject};
use domain::Timestamp;

use crate::connect::Nats;
use crate::port::{BusError, Outgoing, Port, Stored};

/// What was put aside.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// Its own sequence in `DEAD`.
    pub sequence: u64,
    /// When it was put aside.
    pub at: Timestamp,
    /// Where it was read.
    pub subject: String,
    pub original_sequence: u64,
    pub because: String,
    pub envelope: Envelope,
}

/// Keeps a message that nobody could handle, with where it came from and why. Doing it again keeps one.
pub async fn bury(
    port: &dyn Port,
    of: DeadOf,
    stream: &str,
    stored: &Stored,
    why: &str,
) -> Result<(), BusError> {
    tracing::error!(subject = stored.subject, sequence = stored.sequence, why, "put aside as a dead letter");
    let envelope = &stored.envelope;
    let mut letter = Outgoing::bare(&Subject::Dead(of), envelope.body.clone())
        .traced(envelope.traceparent.clone())
        .with_id(format!("{stream}-{}", stored.sequence));
    letter.kind = Some(envelope.kind.clone());
    letter.headers = vec![
        (header::DEAD_BECAUSE, why.replace(['\r', '\n'], " ")),
        (header::DEAD_SUBJECT, stored.subject.clone()),
        (header::DEAD_SEQUENCE, stored.sequence.to_string()),
    ];
    port.publish(letter).await.map(drop)
}

// === impl DeadLetter ===

impl DeadLetter {
    /// The first one whose sequence is at least `from`.
    pub async fn next(nats: &Nats, from: u64) -> Result<Option<Self>, BusError> {
        let found = nats.next_with_headers(DEAD, &filter::all_dead(), from).await?;
        Ok(found.map(|(stored, headers)| Self::read(stored, &headers)))
    }

    /// The one with this sequence.
    pub async fn at(nats: &Nats, sequence: u64) -> Result<Option<Self>, BusError> {
        Ok(Self::next(nats, sequence).await?.filter(|letter| letter.sequence == sequence))
    }

    /// Sends it again to where it was read, and forgets it. Doing it again sends it once.
    pub async fn replay(self, port: &dyn Port) -> Result<(), BusError> {
        let mut again = Outgoing::bare(&self.subject, self.envelope.body)
            .traced(self.envelope.traceparent)
            .with_id(format!("replay-{}", self.sequence));
        again.kind = Some(self.envelope.kind);
        port.publish(again).await?;
        port.delete(DEAD, self.sequence).await
    }

    fn read(stored: Stored, headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).map(|value| value.as_str().to_owned()).unwrap_or_default();
        Self {
            sequence: stored.sequence,
            at: stored.at,
            subject: text(header::DEAD_SUBJECT),
            original_sequence: text(header::DEAD_SEQUENCE).parse().unwrap_or(0),
            because: text(header::DEAD_BECAUSE),
            envelope: stored.envelope,
        }
    }
}
