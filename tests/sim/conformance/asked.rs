//! What may be asked of a broker, drawn at random, and what it answers.

use std::time::Duration;

use bus::{Bus, BusError, Delivered, Opened, Outgoing, Start, Stored};
use contract::buckets::{Agents, Deliveries, stream_of, subject_of};
use contract::topology::{ASSIGN, PROCESS, RECORD};
use futures_util::StreamExt;
use rand::Rng;
use rand::rngs::StdRng;

use crate::store::Store;

const KV_OPERATION: &str = "KV-Operation";

/// A delivery that has not come by then does not come.
const COMES_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) enum Asked {
    Publish(Outgoing),
    Last(Place),
    Next(Place, u64),
    At(Place, u64),
    Purge(Place, u64),
    Delete(Place, u64),
    Read(Place, Start),
}

/// A stream and subjects of it.
#[derive(Debug)]
pub(super) struct Place {
    stream: String,
    filter: String,
}

/// The streams, one of each kind of keeping, with what their subjects begin with.
fn streams() -> [(String, String); 5] {
    [
        (RECORD.to_owned(), "record".to_owned()),
        (PROCESS.to_owned(), "process".to_owned()),
        (ASSIGN.to_owned(), "assign".to_owned()),
        (stream_of::<Agents>(), subject_of::<Agents>("acme")),
        (stream_of::<Deliveries>(), subject_of::<Deliveries>("acme")),
    ]
}

const FIRST: [&str; 2] = ["one", "two"];
const SECOND: [&str; 3] = ["in", "out", "state"];

// === impl Asked ===

impl Asked {
    pub(super) fn drawn(rng: &mut StdRng, store: &Store) -> Self {
        let (stream, prefix) = one(rng, &streams());
        let (first, second) = (one(rng, &FIRST), one(rng, &SECOND));
        let subject = format!("{prefix}.{first}.{second}");
        let filters = [
            format!("{prefix}.>"),
            format!("{prefix}.{first}.*"),
            format!("{prefix}.*.{second}"),
            subject.clone(),
            format!("{prefix}.none.in"),
        ];
        let place = Place { filter: one(rng, &filters), stream: stream.clone() };
        let last = store.last_sequence(&stream);
        let sequence = rng.random_range(1..last + 3);
        match rng.random_range(0..100) {
            0..50 => Self::Publish(message(rng, store, &stream, &subject, &filters[..3])),
            50..60 => Self::Last(place),
            60..70 => Self::Next(place, sequence),
            70..76 => Self::At(place, sequence),
            76..80 => Self::Purge(place, rng.random_range(0..3)),
            80..86 => Self::Delete(place, sequence),
            86..92 => Self::Read(place, Start::LastOfEach),
            92..98 => Self::Read(place, Start::At(sequence)),
            _ => Self::Read(place, Start::New),
        }
    }

    /// The answer, without what two brokers cannot have in common.
    pub(super) async fn of(&self, bus: &Bus) -> String {
        match self {
            Self::Publish(message) => said(bus.publish(message.clone()).await),
            Self::Last(Place { stream, filter }) => found(bus.last(stream, filter).await),
            Self::Next(Place { stream, filter }, from) => found(bus.next(stream, filter, *from).await),
            Self::At(Place { stream, .. }, sequence) => found(bus.at(stream, *sequence).await),
            Self::Purge(Place { stream, filter }, keep) => said(bus.purge(stream, filter, *keep).await),
            Self::Delete(Place { stream, .. }, sequence) => said(bus.delete(stream, *sequence).await),
            Self::Read(place, start) => read(bus, place, *start).await,
        }
    }
}

fn message(rng: &mut StdRng, store: &Store, stream: &str, subject: &str, over: &[String]) -> Outgoing {
    let mut message = Outgoing::bare(&subject, rng.random_range(0..1_000_u32).to_string().into_bytes());
    if rng.random_bool(0.7) {
        message.kind = Some("said".to_owned());
    }
    if rng.random_bool(0.2) {
        message.traceparent =
            Some(format!("00-{:032x}-{:016x}-01", rng.random::<u128>(), rng.random::<u64>()));
    }
    // Its window is longer than the run: that of the other streams may end within it.
    if stream == RECORD && rng.random_bool(0.5) {
        message = message.with_id(rng.random_range(0..40_u32).to_string());
    }
    if stream.starts_with("KV_") && rng.random_bool(0.2) {
        message.headers.push((KV_OPERATION, "DEL".to_owned()));
    }
    let now_and_then = |rng: &mut StdRng, right: u64| if rng.random_bool(0.3) { right + 1 } else { right };
    let stands = |filter: &str| store.last(stream, filter).map_or(0, |last| last.sequence);
    match rng.random_range(0..10) {
        0..4 => {
            let expected = now_and_then(rng, stands(subject));
            message.after(expected)
        }
        4..6 => {
            let filter = one(rng, over);
            let expected = now_and_then(rng, stands(&filter));
            message.after_all_of(filter, expected)
        }
        _ => message,
    }
}

async fn read(bus: &Bus, Place { stream, filter }: &Place, start: Start) -> String {
    let Ok(Opened { mut messages, stored, before }) = bus.read(stream, filter, start).await else {
        return "cannot be opened".to_owned();
    };
    let mut read = format!("{stored} stored");
    if start == Start::New {
        read += &format!(" behind {before}");
    }
    for _ in 0..stored {
        let next = tokio::time::timeout(COMES_WITHIN, messages.next()).await;
        let Ok(Some(Ok(Delivered { stored, behind }))) = next else { return read + ", then nothing" };
        read += &format!(", {} and {behind} to come", shown(&stored));
    }
    read
}

fn found(found: Result<Option<Stored>, BusError>) -> String {
    said(found.map(|found| found.as_ref().map(shown)))
}

fn shown(Stored { subject, sequence, at: _, envelope, deleted }: &Stored) -> String {
    let mark = if *deleted { " deleted" } else { "" };
    format!("{sequence} {subject}{mark} {envelope:?}")
}

/// Sentences are each side's own.
fn said<T: std::fmt::Debug>(said: Result<T, BusError>) -> String {
    let kept_to_the_variant = said.map_err(|error| match error {
        BusError::Unavailable(_) => BusError::Unavailable(String::new()),
        BusError::Rejected(_) => BusError::Rejected(String::new()),
        error @ (BusError::Conflict | BusError::Occupied | BusError::Unknown) => error,
    });
    format!("{kept_to_the_variant:?}")
}

fn one<T: Clone>(rng: &mut StdRng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())].clone()
}
