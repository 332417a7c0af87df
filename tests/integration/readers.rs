//! Readers and consumers outlive the broker: nothing is skipped, nothing given twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bus::{Consumer, Fanout, Followed, Handled, Item, Log, Outgoing, Port, Reader, Seen, Start};
use contract::Subject;
use contract::messages::record::{InputEntry, InputKind, Source};
use contract::subjects::{DeadOf, filter};
use contract::topology::{CONSOLE, DEAD, INGRESS, OPERATOR, PROCESS, RECORD, STEERER, WAKER};
use domain::process::{ConversationKey, Mode};
use futures_util::future::join_all;
use serde_json::Value;
use tests::builders::{agent, key, message, user};
use tests::installation::program;
use tests::{Broker, soon};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

fn said(text: &str) -> InputEntry {
    InputEntry {
        at: tests::now(),
        agent: agent(),
        from: user(),
        author: None,
        source: Source::Api,
        idempotency_key: None,
        what: InputKind::Message { text: text.into(), files: Vec::new(), mode: Mode::Auto },
    }
}

async fn say(port: &dyn Port, key: ConversationKey, text: &str) -> u64 {
    soon("a stored input", async || {
        port.publish(Outgoing::message(&Subject::RecordIn(key), &said(text)).with_id(text)).await
    })
    .await
    .sequence
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_goes_on_behind_what_it_gave_when_the_broker_restarts() {
    let mut broker = Broker::start().await;
    let log = Log::new(Arc::new(broker.connect(STEERER).await));
    let append = async |n: u128| {
        soon("an append", async || log.append(key(n), message(n as u64), None, tests::now).await).await;
    };
    for n in 1..=3 {
        append(n).await;
    }
    let mut reader =
        Reader::open(&broker.connect(WAKER).await, PROCESS, filter::all_logs(), Start::LastOfEach);
    let (sender, mut given) = mpsc::channel(100);
    tokio::spawn(async move {
        loop {
            let seen = reader.next().await;
            if sender.send(seen).await.is_err() {
                return;
            }
        }
    });
    let mut sequences = Vec::new();
    let mut read = async |count: usize| {
        while sequences.len() < count {
            let seen =
                tokio::time::timeout(Duration::from_secs(20), given.recv()).await.expect("something to read");
            if let Some(Seen::Message(stored)) = seen {
                sequences.push(stored.sequence);
            }
        }
        sequences.clone()
    };
    assert_eq!(read(3).await.len(), 3);
    broker.restart().await;
    for n in 4..=6 {
        append(n).await;
    }
    let all = read(6).await;
    assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_does_not_wait_for_what_has_gone_since_it_opened() {
    /// More than a reader has in flight, so that most of them have not been sent when they go.
    const MANY: u128 = 3_000;
    let broker = Broker::start().await;
    let ingress = broker.connect(INGRESS).await;
    join_all((0..MANY).map(|n| {
        let said = Outgoing::message(&Subject::RecordIn(key(n)), &said("a text"));
        let ingress = &ingress;
        async move { ingress.publish(said).await.expect("stored") }
    }))
    .await;
    let operator = broker.connect(OPERATOR).await;
    let mut reader = Reader::open(&operator, RECORD, filter::all_records(), Start::LastOfEach);
    assert_eq!(u128::from(reader.stored().await), MANY);
    operator.purge(RECORD, &filter::all_records(), 0).await.expect("purged");
    let caught_up = async { while matches!(reader.next().await, Seen::Message(_)) {} };
    tokio::time::timeout(Duration::from_secs(20), caught_up).await.expect("it says that it has caught up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_whose_reader_is_busy_with_something_else_asks_the_server_once() {
    let broker = Broker::start().await;
    let log = Log::new(Arc::new(broker.connect(STEERER).await));
    soon("an append", async || log.append(key(1), message(1), None, tests::now).await).await;
    let nats = broker.connect(WAKER).await;
    let mut reader = Reader::open(&nats, PROCESS, filter::all_logs(), Start::LastOfEach);
    // Shorter than one round trip takes.
    while tokio::time::timeout(Duration::from_micros(20), reader.next()).await.is_err() {}
    let stream = broker.jetstream().await.get_stream(PROCESS).await.expect("the stream");
    assert_eq!(stream.cached_info().state.consumer_count, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_rings_until_it_is_done_and_puts_aside_what_nobody_can_take() {
    let mut broker = Broker::start().await;
    let ingress = broker.connect(INGRESS).await;
    let (sender, mut rung) = mpsc::unbounded_channel();
    let postponed = Arc::new(AtomicBool::new(false));
    let stop = CancellationToken::new();
    let consumer = Consumer::new(&broker.connect(STEERER).await, RECORD, STEERER, DeadOf::Record);
    let running = tokio::spawn(consumer.run(
        stop.clone(),
        |_| {},
        move |delivery| {
            let (sender, postponed) = (sender.clone(), postponed.clone());
            async move {
                let InputKind::Message { text, .. } =
                    delivery.stored.decode::<InputEntry>().expect("an input").what
                else {
                    return Handled::Done;
                };
                let first = text == "later" && !postponed.swap(true, Ordering::Relaxed);
                let _ = sender.send((text.clone(), delivery.failures));
                match text.as_str() {
                    "poison" => panic!("cannot be taken"),
                    "later" if first => Handled::Later(Duration::from_millis(10)),
                    _ => Handled::Done,
                }
            }
        },
    ));
    for text in ["one", "later", "poison", "two"] {
        say(&ingress, key(1), text).await;
    }
    broker.restart().await;
    say(&ingress, key(1), "three").await;
    let mut seen = Vec::new();
    let done = |seen: &[(String, u32)]| {
        ["one", "two", "three"].iter().all(|text| seen.iter().any(|(t, _)| t == text))
            && seen.iter().filter(|(text, _)| text == "later").count() >= 2
            && seen.contains(&("poison".into(), bus::FAILURES_MAX - 1))
    };
    while !done(&seen) {
        let next = tokio::time::timeout(Duration::from_secs(60), rung.recv()).await;
        seen.push(next.unwrap_or_else(|_| panic!("rung so far: {seen:?}")).expect("a delivery"));
    }
    let operator = broker.connect(OPERATOR).await;
    let letter = soon("a dead letter", async || match operator.last(DEAD, "dead.record").await {
        Ok(Some(letter)) => Ok(letter),
        other => Err(format!("{other:?}")),
    })
    .await;
    let entry: InputEntry = letter.decode().expect("the original");
    assert!(matches!(entry.what, InputKind::Message { text, .. } if text == "poison"));
    let listed = dlq(&broker, &["ls", "--json"]).await;
    let number = listed["letter"].as_u64().expect("its number").to_string();
    assert!(listed["because"].as_str().is_some_and(|why| why.contains("failed")), "{listed}");
    assert_eq!(listed["subject"], Subject::RecordIn(key(1)).to_string());
    let shown = dlq(&broker, &["show", &number, "--json"]).await;
    assert!(shown["body"].to_string().contains("poison"), "{shown}");
    dlq(&broker, &["replay", &number]).await;
    while seen.iter().filter(|(text, _)| text == "poison").count() <= bus::FAILURES_MAX as usize {
        seen.push(
            tokio::time::timeout(Duration::from_secs(60), rung.recv()).await.expect("again").expect("one"),
        );
    }
    assert_eq!(dlq(&broker, &["show", &number]).await, Value::Null, "it is gone");
    stop.cancel();
    running.await.expect("the loop ends when it is stopped");
}

/// What `resident dlq` prints; null where it prints nothing or fails.
async fn dlq(broker: &Broker, args: &[&str]) -> Value {
    let output = tokio::process::Command::new(program("resident"))
        .arg("dlq")
        .args(args)
        .env_clear()
        .env("RESIDENT__BROKER__URL", broker.url())
        .env("RESIDENT__BROKER__CREDENTIALS", broker.dir())
        .output()
        .await
        .expect("resident");
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_every_entry_once_whenever_it_comes() {
    let mut broker = Broker::start().await;
    let ingress = broker.connect(INGRESS).await;
    let fanout = Fanout::start(&broker.connect(CONSOLE).await, CancellationToken::new());
    let mut expected = Vec::new();
    let mut followers = Vec::new();
    for n in 0..30 {
        if n == 15 {
            broker.restart().await;
        }
        followers.push((expected.len(), fanout.follow(key(1), expected.last().copied().unwrap_or(0)).await));
        expected.push(say(&ingress, key(1), &format!("text {n}")).await);
        say(&ingress, key(2), &format!("elsewhere {n}")).await;
    }
    for (from, mut follower) in followers {
        let mut got = Vec::new();
        while got.len() < expected.len() - from {
            match tokio::time::timeout(Duration::from_secs(30), follower.next()).await {
                Ok(Followed::Item(Item::Entry(stored))) => got.push(stored.sequence),
                Ok(Followed::CaughtUp) => {}
                other => panic!("{other:?} after {got:?}"),
            }
        }
        assert_eq!(got, expected[from..], "followed from {from}");
    }
}
