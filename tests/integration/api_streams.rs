//! Streams: everything in its order, each character once also over a reconnection, and a viewer is seen.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::messages::record::{Output, PlanItem, PlanStatus};
use domain::process::ParkReason;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::api::{Event, Events};

use crate::served::{Hand, Served, heard_beat, is_problem, path, post, seq};

/// The texts, joined as a client would, over all its connections.
#[derive(Debug, Default)]
struct Joined(BTreeMap<String, String>);

impl Joined {
    fn take(&mut self, event: &Event) {
        let id = || event.data["message_id"].as_str().expect("a message").to_owned();
        match event.name.as_str() {
            "chunk" => {
                let offset =
                    usize::try_from(event.data["offset"].as_u64().expect("an offset")).expect("small");
                let joined = self.0.entry(id()).or_default();
                let kept: String = joined.chars().take(offset).collect();
                assert_eq!(kept.chars().count(), offset, "a gap before {event:?}");
                *joined = kept + event.data["text"].as_str().expect("text");
            }
            "message_reset" => drop(self.0.remove(&id())),
            _ => {}
        }
    }

    async fn until(&mut self, events: &mut Events, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        let from = events.seen.len();
        let event = events.until(what, wanted).await;
        events.seen[from..].iter().for_each(|event| self.take(event));
        event
    }
}

fn named(name: &'static str) -> impl Fn(&Event) -> bool {
    move |event| event.name == name
}

fn chunk(text: &'static str) -> impl Fn(&Event) -> bool {
    move |event| event.name == "chunk" && event.data["text"] == text
}

fn receipt(message: &str, receipt: &'static str) -> impl Fn(&Event) -> bool {
    let message = message.to_owned();
    move |event| event.data["message_id"] == message && event.data["receipt"] == receipt
}

/// A conversation whose first message is in a running turn: agent, conversation, and the executor's hand.
async fn working(served: &Served) -> (String, String, Hand) {
    let api = served.member().await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    let mut hand = served.claim(&conversation).await;
    hand.take(&served.state(hand.key).await.expect("a state").undelivered).await;
    (agent, conversation, hand)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invoked_task_is_told_from_its_first_message_to_its_end() {
    let served = Served::start().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let mut events = api.stream(&agent, "begin").await;
    let created = events.until("the task", named("task_created")).await;
    assert_eq!(
        (&created.data["input"]["text"], &created.data["status"]),
        (&json!("begin"), &json!("executing"))
    );
    let conversation = created.data["id"].as_str().expect("an id").to_owned();
    let mut hand = served.claim(&conversation).await;
    hand.take(&served.state(hand.key).await.expect("a state").undelivered).await;
    let name = "text";
    let (id, message_id) = ("tool".to_owned(), hand.text_id(name));
    hand.say(Output::ToolCall { id: id.clone(), name: "Bash".into(), input: json!({ "command": "ls" }) })
        .await;
    hand.say(Output::ToolResult { id, output: json!("a\nb"), is_error: false }).await;
    hand.say(Output::Plan { items: vec![PlanItem { text: "p".into(), status: PlanStatus::Pending }] }).await;
    hand.say(Output::Note { text: "half way".into() }).await;
    hand.say(Output::MessageStarted { message_id }).await;
    events.until("the note", named("process_update")).await;
    hand.piece(name, 0, "Hello").await;
    hand.piece(name, 5, ", wörld").await;
    events.until("the last piece", chunk(", wörld")).await;
    hand.say(Output::Text { message_id, text: "Hello, wörld.".into() }).await;
    hand.finish("done").await;
    events.until("the exit", named("task_finished")).await;
    hand.end_turn("Hello, wörld.").await;
    while events.next().await.is_some() {}

    let mut names = events.names();
    names.retain(|name| !matches!(*name, "message_receipt" | "process_state_changed"));
    assert_eq!(
        names,
        [
            "connected",
            "task_created",
            "turn_started",
            "tool_call_request",
            "tool_call_result",
            "plan_updated",
            "process_update",
            "chunk",
            "chunk",
            "chunk",
            "task_finished",
            "turn_finished",
        ]
    );
    let chunks: Vec<_> = events.seen.iter().filter(|event| event.name == "chunk").collect();
    let with_id: Vec<_> = chunks.iter().map(|chunk| chunk.id.is_some()).collect();
    assert_eq!(with_id, [false, false, true]);
    assert_eq!((&chunks[2].data["text"], &chunks[2].data["done"]), (&json!("."), &json!(true)));
    let finished = events.seen.iter().find(|event| event.name == "task_finished").expect("the exit");
    assert_eq!((&finished.data["status"], &finished.data["result"]), (&json!("completed"), &json!("done")));
    let turn = events.seen.iter().find(|event| event.name == "turn_finished").expect("the turn");
    assert_eq!((&turn.data["result"], &turn.data["outcome"]), (&json!("Hello, wörld."), &json!("completed")));
    let ids: Vec<_> = events.seen.iter().filter_map(|event| event.id).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reconnects_in_the_middle_of_a_text_joins_it_without_a_gap() {
    let served = Served::start().await;
    let api = served.member().await;
    let (agent, conversation, mut hand) = working(&served).await;
    let (name, whole) = ("text", "añadir 🎉 y más");
    let message_id = hand.text_id(name);
    let mut beats = served.beats(hand.key).await;
    let mut joined = Joined::default();

    let mut events = api.follow(&agent, &conversation, None).await;
    assert!(heard_beat(&mut beats).await.wants_text);
    hand.say(Output::MessageStarted { message_id }).await;
    joined.until(&mut events, "the turn", named("turn_started")).await;
    hand.piece(name, 0, "añadir").await;
    joined.until(&mut events, "the first piece", chunk("añadir")).await;
    let last = events.seen.iter().filter_map(|event| event.id).next_back();
    drop(events);

    // A piece is written while nobody listens.
    hand.piece(name, 6, " 🎉").await;
    let mut events = api.follow(&agent, &conversation, last).await;
    joined.until(&mut events, "it is connected", named("connected")).await;
    assert!(heard_beat(&mut beats).await.wants_text, "the text so far is asked for");
    // The next piece comes before the answer: a gap, which is asked about again.
    hand.piece(name, 8, " y").await;
    assert!(heard_beat(&mut beats).await.wants_text, "the gap was not seen");
    hand.piece(name, 0, "añadir 🎉 y").await;
    let answer = joined.until(&mut events, "the text so far", named("chunk")).await;
    assert_eq!((&answer.data["offset"], &answer.data["text"]), (&json!(0), &json!("añadir 🎉 y")));
    assert_eq!(answer.id, None, "a piece has no place to come back to");
    hand.say(Output::Text { message_id, text: whole.into() }).await;
    let rest = joined.until(&mut events, "the rest", named("chunk")).await;
    assert_eq!((&rest.data["offset"], &rest.data["done"]), (&json!(10), &json!(true)));
    assert_eq!(joined.0.values().collect::<Vec<_>>(), [whole]);
    hand.end_turn(whole).await;

    // Once more from there: nothing of it comes again.
    let mut events = api.follow(&agent, &conversation, rest.id).await;
    events.until("the turn's end", named("turn_finished")).await;
    assert!(!events.names().contains(&"chunk"), "{:?}", events.names());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_its_executor_did_not_finish_is_taken_back_also_after_a_reconnection() {
    let served = Served::start().await;
    let api = served.member().await;
    let (agent, conversation, mut hand) = working(&served).await;
    let message_id = hand.text_id("text");
    hand.say(Output::MessageStarted { message_id }).await;
    let mut events = api.follow(&agent, &conversation, None).await;
    events.until("the turn", named("turn_started")).await;
    hand.piece("text", 0, "half of").await;
    events.until("a piece", chunk("half of")).await;
    let last = events.seen.iter().filter_map(|event| event.id).next_back();
    drop(events);
    // The segment goes without a word, and the next one claims.
    hand.park(ParkReason::Drain).await;
    api.say(&agent, &conversation, "go on", "auto").await;
    served.claim(&conversation).await;
    let mut events = api.follow(&agent, &conversation, last).await;
    let reset = events.until("it is taken back", named("message_reset")).await;
    assert_eq!(reset.data["message_id"], json!(message_id));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_late_gets_the_last_process_from_its_start() {
    let served = Served::start().await;
    let api = served.member().await;
    let (agent, conversation, mut hand) = working(&served).await;
    hand.answer("the first process").await;
    hand.finish("over").await;
    let second = api.say(&agent, &conversation, "the second", "auto").await;
    api.until_receipt(&agent, &conversation, &second, "routed").await;
    let mut events = api.follow(&agent, &conversation, None).await;
    events.until("it is routed", receipt(&second, "routed")).await;
    assert_eq!(events.names()[..3], ["connected", "task_created", "message_receipt"]);
    assert_eq!(events.seen[1].data["input"]["text"], "the second");
    assert_eq!(events.seen[1].data["process"]["ordinal"], 2);
    assert!(!events.names().contains(&"chunk"));
    // The next process of the chain is announced on the open stream.
    post(&api, &path(&agent, &conversation, "/stop"), json!({ "scope": "process" })).await;
    events.until("the exit", named("task_finished")).await;
    api.say(&agent, &conversation, "the third", "auto").await;
    let created = events.until("the next task", named("task_created")).await;
    assert_eq!(created.data["input"]["text"], "the third");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steer_is_confirmed_by_its_consumption() {
    let served = Served::start().await;
    let api = served.member().await;
    let (agent, conversation, mut hand) = working(&served).await;
    let mut events = api.follow(&agent, &conversation, None).await;
    let steer = api.say(&agent, &conversation, "and this", "steer").await;
    events.until("it is routed", receipt(&steer, "routed")).await;
    assert!(!events.names().contains(&"gateway_steer_applied"), "it was only routed");
    hand.take(&[seq(hand.key, &Value::from(steer.clone()))]).await;
    let applied = events.until("it is applied", named("gateway_steer_applied")).await;
    assert_eq!((&applied.data["message_id"], &applied.data["message"]), (&json!(steer), &json!("and this")));
    assert_eq!((&applied.data["at"], &applied.data["execution_id"]), (&json!("child"), &json!(hand.process)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_says_that_somebody_watches_and_ends_with_the_drain() {
    let served = Served::start().await;
    let api = served.member().await;
    let (agent, conversation, hand) = working(&served).await;
    let mut beats = served.beats(hand.key).await;
    let mut reading = api.follow(&agent, &conversation, None).await;
    assert!(heard_beat(&mut beats).await.wants_text);
    let invoke = format!("/v1/agents/{agent}/conversations/invoke/stream");
    let body = json!({ "input": { "text": "more" }, "id": conversation });
    let streaming = api.request(Method::POST, &invoke).json(&body).send().await.expect("an answer");
    assert_eq!(streaming.headers()["content-type"], "text/event-stream");
    assert_eq!(streaming.headers()["x-accel-buffering"], "no");
    assert!(heard_beat(&mut beats).await.wants_text);
    reading.until("the message", |event| event.data["text"] == "more").await;
    served.shutdown.begin();
    let both_end = async {
        while reading.next().await.is_some() {}
        streaming.bytes().await.expect("a whole answer");
    };
    tokio::time::timeout(Duration::from_secs(5), both_end).await.expect("the streams end with the drain");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_where_it_is_told_to_and_says_what_is_wrong_with_a_place() {
    let served = Served::start().await;
    let api = served.member().await;
    let (agent, conversation, _hand) = working(&served).await;
    let stream = path(&agent, &conversation, "/stream");
    let mut events = api.follow(&agent, &conversation, None).await;
    let first = events.until("the message", |event| event.id.is_some()).await;
    let second = events.until("what follows", |event| event.id > first.id).await;
    // By the address, for clients that cannot send the header.
    let answer =
        api.request(Method::GET, &format!("{stream}?after={}", first.id.expect("an id"))).send().await;
    let mut body = answer.expect("an answer");
    let mut told = String::new();
    while !told.contains(&format!("id: {}\n", second.id.expect("an id"))) {
        let piece = tokio::time::timeout(Duration::from_secs(10), body.chunk()).await;
        let piece = piece.unwrap_or_else(|_| panic!("no more after {told}")).expect("a stream");
        told += std::str::from_utf8(&piece.expect("it goes on")).expect("text");
    }
    assert!(!told.contains(&format!("id: {}\n", first.id.expect("an id"))), "{told}");
    assert!(told.starts_with("event: connected\n") && told.contains("retry: "), "{told}");
    is_problem(
        &api.send(Method::GET, &format!("{stream}?after=x"), None).await,
        400,
        "malformed",
        Some("after"),
    );
    let wrong =
        api.request(Method::GET, &stream).header("last-event-id", "x").send().await.expect("an answer");
    assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
}
