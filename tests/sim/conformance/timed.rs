//! What takes its time: schedules, expiry, and work that is not answered.

use std::collections::BTreeSet;
use std::time::Duration;

use bus::{Answer, Bus, Messages, Outgoing, Queue, Reader, Rung, Seen, Start};
use contract::buckets::{Executors, stream_of, subject_of};
use contract::subjects::filter;
use contract::topology::{RECORD, STEERER, TIMERS};
use domain::Timestamp;
use futures_util::StreamExt;

use super::Side;

const SCHEDULE: &str = "Nats-Schedule";
const SCHEDULE_TARGET: &str = "Nats-Schedule-Target";

/// Longer than everything here that comes soon.
const A_WHILE: Duration = Duration::from_secs(4);

/// Longer than a delivery may go unanswered.
const LONG: Duration = Duration::from_secs(25);

pub(super) async fn all(side: &Side) {
    tokio::join!(schedules(side), expiry(side), answers(side));
}

// --- schedules ---

async fn schedules(Side { bus, clock }: &Side) {
    let mut due = Reader::open(bus, TIMERS, filter::all_due(), Start::New);
    assert!(matches!(due.next().await, Seen::CaughtUp));
    let now = clock.now();
    let timer = |name: &str, millis: i64, body: &str| {
        let when = Timestamp::from_millis(now.as_millis() + millis).expect("a time");
        let mut message = Outgoing::bare(&format!("timer.{name}"), body.as_bytes().to_vec());
        message.kind = Some("ring".to_owned());
        message.headers = vec![(SCHEDULE, format!("@at {when}")), (SCHEDULE_TARGET, format!("due.{name}"))];
        message
    };
    for message in [
        timer("once", 1_000, "once"),
        timer("replaced", 1_000, "the first"),
        timer("replaced", 2_000, "the second"),
        timer("purged", 1_000, "purged"),
        timer("deleted", 1_000, "deleted"),
        timer("past", -5_000, "past"),
        timer("later", 3_600_000, "later"),
    ] {
        bus.publish(message).await.expect("scheduled");
    }
    bus.purge(TIMERS, "timer.purged", 0).await.expect("purged");
    let deleted = bus.last(TIMERS, "timer.deleted").await.expect("read").expect("it is there");
    bus.delete(TIMERS, deleted.sequence).await.expect("deleted");
    let mut rung = Vec::new();
    while let Ok(seen) = tokio::time::timeout(A_WHILE, due.next()).await {
        let Seen::Message(stored) = seen else { continue };
        assert_eq!(stored.envelope.kind, "ring");
        rung.push((stored.subject.clone(), String::from_utf8(stored.envelope.body).expect("text")));
    }
    let ought = [("due.past", "past"), ("due.once", "once"), ("due.replaced", "the second")];
    assert_eq!(rung, ought.map(|(subject, body)| (subject.to_owned(), body.to_owned())));
    assert_eq!(stands(bus, &filter::all_timers()).await, BTreeSet::from(["timer.later".to_owned()]));
}

/// The subjects under the filter that hold something.
async fn stands(bus: &Bus, filter: &str) -> BTreeSet<String> {
    let mut reader = Reader::open(bus, TIMERS, filter, Start::LastOfEach);
    let mut subjects = BTreeSet::new();
    while let Seen::Message(stored) = reader.next().await {
        subjects.insert(stored.subject);
    }
    subjects
}

// --- expiry ---

async fn expiry(Side { bus, .. }: &Side) {
    let stream = stream_of::<Executors>();
    let mut reader = Reader::open(bus, stream.clone(), subject_of::<Executors>(">"), Start::New);
    assert!(matches!(reader.next().await, Seen::CaughtUp));
    let key = |name: &str| subject_of::<Executors>(name);
    let lease = |name, seconds: u64| Outgoing {
        ttl_seconds: Some(seconds),
        ..Outgoing::bare(&key(name), seconds.to_string().into_bytes())
    };
    let renewed = key("renewed");
    bus.publish(lease("gone", 1)).await.expect("stored");
    bus.publish(lease("renewed", 1)).await.expect("stored");
    bus.publish(lease("renewed", 60)).await.expect("stored");
    let mut told = Vec::new();
    while told.last().is_none_or(|(_, body)| body != b"60") {
        let seen = tokio::time::timeout(A_WHILE, reader.next()).await.expect("it is told");
        let Seen::Message(stored) = seen else { panic!("{seen:?} after {told:?}") };
        told.push((stored.subject, stored.envelope.body));
    }
    assert_eq!(told[0].0, key("gone"));
    // The renewal may have taken the place of the first lease before that was told.
    assert!(told[1..].iter().all(|(subject, _)| *subject == renewed), "{told:?}");
    // An expiry is not told; whoever wants to know looks.
    let more = tokio::time::timeout(A_WHILE, reader.next()).await;
    assert!(more.is_err(), "{more:?}");
    assert!(bus.last(&stream, &key("gone")).await.expect("read").is_none());
    let stands = bus.last(&stream, &renewed).await.expect("read").expect("it is there");
    assert_eq!(stands.envelope.body, b"60");
}

// --- answers ---

async fn answers(Side { bus, .. }: &Side) {
    let mut messages = bus.pull(RECORD, STEERER, 16).await.expect("pulled");
    for name in ["done", "again", "gone"] {
        say(bus, name).await;
    }
    taken(&mut messages, "done").await.answer.with(Answer::Done).await.expect("sent");
    let again = taken(&mut messages, "again").await;
    let after = Duration::from_millis(500);
    again.answer.with(Answer::Again(after)).await.expect("sent");
    // What is deleted before it is answered does not come again.
    let gone = taken(&mut messages, "gone").await;
    bus.delete(RECORD, gone.delivered.stored.sequence).await.expect("deleted");
    // It is not waited for.
    say(bus, "next").await;
    taken(&mut messages, "next").await.answer.with(Answer::Done).await.expect("sent");
    taken(&mut messages, "again").await.answer.with(Answer::Done).await.expect("sent");
    say(bus, "unanswered").await;
    drop(taken(&mut messages, "unanswered").await);
    drop(messages);
    // Another instance is given it, and what nobody may have had comes in its turn.
    say(bus, "behind").await;
    let mut queue = Queue::new(bus, RECORD, STEERER);
    for name in ["behind", "unanswered"] {
        let taken = tokio::time::timeout(LONG, queue.next()).await.expect("it comes");
        assert_eq!(taken.stored.envelope.body, name.as_bytes());
        taken.done().await;
    }
    let more = tokio::time::timeout(A_WHILE, queue.next()).await;
    assert!(more.is_err(), "{more:?}");
}

async fn say(bus: &Bus, name: &str) {
    let message = Outgoing::bare(&format!("record.acme.{name}.in"), name.as_bytes().to_vec());
    bus.publish(message).await.expect("stored");
}

async fn taken(messages: &mut Messages<Rung>, ought: &str) -> Rung {
    let rung = tokio::time::timeout(A_WHILE, messages.next()).await.expect("it comes");
    let rung = rung.expect("it goes on").expect("a message");
    assert_eq!(rung.delivered.stored.envelope.body, ought.as_bytes());
    rung
}

// --- a restart ---

pub(super) async fn read_on(Side { bus, .. }: &Side, restart: impl AsyncFnOnce()) {
    let mut connections = bus.connections();
    let mut reader = Reader::open(bus, RECORD, filter::all_records(), Start::LastOfEach);
    let mut queue = Queue::new(bus, RECORD, STEERER);
    say(bus, "before").await;
    while matches!(reader.next().await, Seen::CaughtUp) {}
    queue.next().await.done().await;
    let count = *connections.borrow_and_update();
    restart().await;
    connections.wait_for(|now| *now > count).await.expect("connected anew");
    say(bus, "after").await;
    loop {
        let Seen::Message(stored) = reader.next().await else { continue };
        assert_eq!(stored.envelope.body, b"after");
        break;
    }
    // Of an acknowledgement nobody hears whether it came before the end: what was done may come again, and nothing else.
    let mut taken = queue.next().await;
    while taken.stored.envelope.body == b"before" {
        taken.done().await;
        taken = queue.next().await;
    }
    assert_eq!(taken.stored.envelope.body, b"after");
}
