//! The stream: everything that happens, in order, token by token, and nothing twice after a reconnection.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use contract::buckets::Role;
use tests::api::Event;
use tests::{Installation, model};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

/// The texts of the stream, joined by message and offset as a client would.
#[derive(Debug, Default)]
struct Joined(BTreeMap<String, Vec<char>>);

impl Joined {
    fn take(&mut self, event: &Event) {
        if event.name != "chunk" {
            return;
        }
        let id = event.data["message_id"].as_str().expect("a message").to_owned();
        let offset = usize::try_from(event.data["offset"].as_u64().expect("an offset")).expect("small");
        let so_far = self.0.entry(id).or_default();
        for (at, c) in event.data["text"].as_str().expect("text").chars().enumerate() {
            let at = offset + at;
            assert!(at <= so_far.len(), "a gap before {at} in {event:?}");
            if at == so_far.len() {
                so_far.push(c);
            } else {
                assert_eq!(so_far[at], c, "another character at {at} in {event:?}");
            }
        }
    }

    fn texts(&self) -> Vec<String> {
        self.0.values().map(|chars| chars.iter().collect()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_told_in_order_and_token_by_token() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let mut events = api.stream(&agent, "run echo printed").await;
    events.until("the end of the turn", |event| event.name == "turn_finished").await;
    let created = events.seen.iter().find(|event| event.name == "task_created").expect("a task").data.clone();
    let conversation = created["id"].as_str().expect("an id").to_owned();
    assert_eq!(created["input"]["text"], "run echo printed");
    for text in ["plan write it down", "note half way", "say one two three four five", "finish all of it"] {
        let ended = events.seen.len();
        api.say(&agent, &conversation, text, "auto").await;
        events.until(text, |event| event.name == "turn_finished" || event.name == "task_finished").await;
        assert!(events.seen.len() > ended);
    }
    if !events.names().contains(&"task_finished") {
        events.until("the end", |event| event.name == "task_finished").await;
    }
    let names = events.names();
    let at = |name: &str| {
        names.iter().position(|seen| *seen == name).unwrap_or_else(|| panic!("{name} in {names:?}"))
    };
    let order = [
        "connected",
        "task_created",
        "turn_started",
        "tool_call_request",
        "tool_call_result",
        "turn_finished",
    ];
    assert!(order.map(at).is_sorted(), "{names:?}");
    assert!(names.contains(&"plan_updated") && names.contains(&"process_update"), "{names:?}");
    assert!(names.contains(&"process_state_changed"));

    let request = events.seen.iter().find(|event| event.name == "tool_call_request").expect("an action");
    assert_eq!(request.data["payload"]["command"], "echo printed");
    let result = events.seen.iter().find(|event| event.name == "tool_call_result").expect("a result");
    assert!(result.data["result"].as_str().is_some_and(|text| text.contains("printed")), "{result:?}");
    assert_eq!(result.data["tool_call_id"], request.data["tool_call_id"]);
    let note = events.seen.iter().find(|event| event.name == "process_update").expect("a note");
    assert_eq!(note.data["text"], "half way");
    let finished = events.seen.iter().find(|event| event.name == "task_finished").expect("the end");
    assert_eq!(
        (&finished.data["status"], &finished.data["result"]),
        (&"completed".into(), &"all of it".into())
    );

    // Words came one by one, and joined they are the text.
    let mut joined = Joined::default();
    events.seen.iter().for_each(|event| joined.take(event));
    assert!(joined.texts().contains(&"one two three four five".to_owned()), "{:?}", joined.texts());
    let pieces = events.seen.iter().filter(|event| event.name == "chunk" && event.id.is_none()).count();
    assert!(pieces >= 5, "{pieces} pieces");
    // Ids are places in the record: they rise, and live text has none.
    let ids: Vec<_> = events.seen.iter().filter_map(|event| event.id).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reconnects_in_the_middle_of_a_text_misses_nothing_and_reads_nothing_twice() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let words: Vec<String> = (0..40).map(|n| format!("wörd{n}")).collect();
    let text = words.join(" ");
    let conversation = api.open(&agent, &format!("slow {text}")).await;
    let mut joined = Joined::default();
    let mut last = None;
    let mut seen = 0;
    // Leaves after every few words, and comes back with the last place it has.
    for _ in 0..5 {
        let mut events = api.follow(&agent, &conversation, last).await;
        let target = seen + 4;
        while seen < target {
            let event = events.next().await.expect("an event");
            last = event.id.or(last);
            joined.take(&event);
            seen += usize::from(event.name == "chunk");
        }
    }
    installation.model.release("slow");
    let mut events = api.follow(&agent, &conversation, last).await;
    loop {
        let event = events.next().await.expect("an event");
        joined.take(&event);
        assert_ne!(event.name, "message_reset");
        if event.name == "turn_finished" {
            break;
        }
    }
    assert_eq!(joined.texts(), [text]);
}

/// A wire to an address that can be cut: what was open is closed, and what comes next goes through again.
async fn cuttable(to: String) -> (String, tokio::sync::watch::Sender<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let (cut, cuts) = tokio::sync::watch::channel(());
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (mut cuts, to) = (cuts.clone(), to.clone());
            cuts.mark_unchanged();
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(to).await.expect("the other end");
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    _ = cuts.changed() => {}
                }
            });
        }
    });
    (url, cut)
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_go_on_over_a_lost_connection_and_print_everything_once() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Operator).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "note 0").await;
    // The command finds the conversation in the fleet's list, which follows by up to a second.
    tests::wait::eventually("a row of the fleet", Duration::from_secs(20), async || {
        let listed = api.get("/fleet/processes").await;
        if listed["items"][0]["conversation_id"] == conversation { Ok(()) } else { Err(listed) }
    })
    .await;
    let (url, cut) = cuttable(installation.url("console").trim_start_matches("http://").to_owned()).await;
    let mut logs = installation
        .command(&["logs", "-f", &conversation])
        .env("RESIDENT__CLIENT__URL", url)
        .env("RESIDENT__CLIENT__API_KEY", api.key())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("resident logs");
    let mut lines = BufReader::new(logs.stdout.take().expect("its output")).lines();
    let mut printed = Vec::new();
    for n in 0..5 {
        if n > 0 {
            cut.send_replace(());
            // Said while nobody is connected, and after.
            api.say(&agent, &conversation, &format!("note {n}"), "auto").await;
        }
        let wanted = format!("note      {n}");
        while !printed.contains(&wanted) {
            let line = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await;
            printed.push(
                line.unwrap_or_else(|_| panic!("{wanted} in {printed:#?}")).expect("a line").expect("more"),
            );
        }
    }
    let notes: Vec<_> = printed.iter().filter(|line| line.starts_with("note ")).collect();
    assert_eq!(notes, ["note      0", "note      1", "note      2", "note      3", "note      4"]);
    let said = printed.iter().filter(|line| line.starts_with("person ")).count();
    assert_eq!(said, 5, "{printed:#?}");
    logs.kill().await.expect("its end");
    let mut told = String::new();
    logs.stderr.take().expect("what it says").read_to_string(&mut told).await.expect("text");
    assert_eq!(told.matches("the connection was lost").count(), 4, "{told}");
}
