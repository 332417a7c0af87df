//! What a stream is held to: when it beats, and when it ends.

use contract::messages::record::Output;
use domain::ids::{Epoch, RecordSeq, TurnNo};
use domain::process::{Exit, ExitReason, Fact, Mode, Outcome, TurnOutcome};
use futures_util::StreamExt;
use service::clock::ManualClock;
use service::health::Health;
use service::metrics::Metrics;
use service::shutdown::Shutdown;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::*;
use crate::events::Begin;
use crate::testing::{facts, key, output, said, started, text_id};

const BOUND: Duration = Duration::from_secs(10);

/// Gives what the test sends, and tells the test of beats.
struct Scripted {
    next: UnboundedReceiver<Next>,
    beats: UnboundedSender<bool>,
}

impl Source for Scripted {
    async fn next(&mut self) -> Next {
        self.next.recv().await.unwrap_or(Next::Closed)
    }

    async fn beat(&self, wants_text: bool) {
        let _ = self.beats.send(wants_text);
    }
}

/// A stream that somebody reads.
struct Rig {
    source: UnboundedSender<Next>,
    beats: UnboundedReceiver<bool>,
    pieces: UnboundedReceiver<String>,
    clock: Arc<ManualClock>,
    shutdown: Shutdown,
    seen: String,
}

impl Rig {
    fn open(until: Until) -> Self {
        let clock = Arc::new(ManualClock::at(domain::Timestamp::EPOCH));
        let shutdown = Shutdown::new(BOUND, clock.clone());
        let runtime = Runtime {
            clock: clock.clone(),
            health: Health::new(shutdown.clone()),
            metrics: Metrics::install(),
            shutdown: shutdown.clone(),
        };
        let ((source, next), (beats, heard)) = (unbounded_channel(), unbounded_channel());
        let opening = Opening { events: Events::new(key(), Begin::After(0), None), task: None, until };
        let response = stream(opening, Scripted { next, beats }, &runtime);
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
        let (reader, pieces) = unbounded_channel();
        tokio::spawn(async move {
            let mut body = response.into_body().into_data_stream();
            while let Some(Ok(piece)) = body.next().await {
                let _ = reader.send(String::from_utf8(piece.to_vec()).unwrap());
            }
        });
        Self { source, beats: heard, pieces, clock, shutdown, seen: String::new() }
    }

    fn give(&self, entry: Entry) {
        self.source.send(Next::Entry(entry)).unwrap();
    }

    fn hear(&self, offset: usize, text: &str) {
        let delta = Delta { message_id: text_id(1), epoch: Epoch(1), offset, text: text.into() };
        self.source.send(Next::Delta(Arc::new(delta))).unwrap();
    }

    /// Reads until the text shows up; the stream has to go on.
    async fn until(&mut self, text: &str) {
        while !self.seen.contains(text) {
            let piece = timeout(BOUND, self.pieces.recv()).await;
            let piece = piece.unwrap_or_else(|_| panic!("no {text} in {}", self.seen));
            self.seen += &piece.unwrap_or_else(|| panic!("ended before {text}: {}", self.seen));
        }
    }

    /// Reads to the end.
    async fn end(mut self) -> String {
        while let Some(piece) = timeout(BOUND, self.pieces.recv()).await.expect("the stream goes on") {
            self.seen += &piece;
        }
        self.seen
    }

    async fn beat(&mut self) -> bool {
        timeout(BOUND, self.beats.recv()).await.expect("no beat").expect("the stream has ended")
    }

    /// Lets time pass once the stream sleeps.
    async fn pass(&self, time: Duration) {
        let asleep = async {
            while self.clock.sleepers() == 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(BOUND, asleep).await.expect("the stream does not sleep");
        self.clock.advance(time);
    }
}

fn over() -> Until {
    Until::Over(Waiting::new(RecordSeq(3)))
}

fn ended() -> Entry {
    let exit = Exit { outcome: Outcome::Stopped, reason: ExitReason::UserStop, summary: None };
    facts(20, &started(3), &[Fact::Routed { input: RecordSeq(3) }, Fact::Ended { exit }])
}

#[tokio::test]
async fn it_connects_tells_and_ends_with_the_drain() {
    let mut rig = Rig::open(Until::Left);
    rig.until("event: connected\n").await;
    rig.give(said(3, "go\r\n on", Mode::Auto));
    rig.until("id: 3\n\n").await;
    assert!(rig.seen.contains("event: message_receipt\ndata: {"), "{}", rig.seen);
    assert!(rig.seen.contains(r#""text":"go\r\n on""#), "{}", rig.seen);
    rig.shutdown.begin();
    rig.end().await;
}

#[tokio::test]
async fn it_beats_at_once_and_then_every_half_minute() {
    let mut rig = Rig::open(Until::Left);
    assert!(rig.beat().await, "the first beat asks for the text so far");
    rig.pass(BEAT_EVERY - Duration::from_millis(1)).await;
    rig.give(said(3, "go", Mode::Auto));
    rig.until("id: 3").await;
    assert!(rig.beats.is_empty(), "beat too early");
    rig.clock.advance(Duration::from_millis(1));
    assert!(!rig.beat().await);
}

#[tokio::test]
async fn a_gap_is_asked_about_at_once_and_again() {
    let mut rig = Rig::open(Until::Left);
    rig.beat().await;
    rig.source.send(Next::CaughtUp).unwrap();
    rig.hear(4, "o");
    assert!(rig.beat().await);
    rig.pass(BEAT_EVERY_IN_GAP).await;
    assert!(rig.beat().await, "the answer may have been lost");
    rig.hear(0, "hello");
    rig.until(r#""text":"hello""#).await;
    rig.pass(BEAT_EVERY_IN_GAP).await;
    assert!(!rig.beat().await);
}

#[tokio::test]
async fn it_ends_with_the_process_that_has_the_message() {
    let rig = Rig::open(over());
    let consumed = Fact::Consumed { inputs: vec![RecordSeq(3)], fired: Vec::new() };
    let turn_ended = Fact::TurnEnded { turn: TurnNo(1), outcome: TurnOutcome::Completed };
    rig.give(facts(19, &started(3), &[Fact::Routed { input: RecordSeq(3) }, consumed, turn_ended]));
    rig.give(ended());
    let seen = rig.end().await;
    assert!(seen.contains("id: 19") && seen.contains("event: task_finished"), "{seen}");
}

#[tokio::test]
async fn it_waits_for_the_turn_in_which_the_process_ended() {
    let mut rig = Rig::open(over());
    rig.give(output(18, 1, Output::TurnStarted { turn: TurnNo(1) }));
    rig.give(ended());
    rig.until("task_finished").await;
    rig.give(output(
        21,
        1,
        Output::TurnEnded { turn: TurnNo(1), outcome: TurnOutcome::Completed, text: None },
    ));
    assert!(rig.end().await.contains("event: turn_finished"));
}

#[tokio::test]
async fn it_does_not_wait_for_ever_for_the_end_of_a_turn() {
    let mut rig = Rig::open(over());
    rig.give(output(18, 1, Output::TurnStarted { turn: TurnNo(1) }));
    rig.give(ended());
    rig.until("task_finished").await;
    // Both the next beat and the end are slept for by now.
    rig.beat().await;
    rig.pass(TURN_END_WITHIN).await;
    rig.end().await;
}

#[tokio::test]
async fn it_ends_where_its_source_does() {
    let rig = Rig::open(Until::Left);
    rig.source.send(Next::Closed).unwrap();
    assert!(rig.end().await.contains("connected"));
}
