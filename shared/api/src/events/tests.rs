//! What the events of a connection are held to: their order, and each character once.

use std::collections::{HashMap, HashSet};

use contract::messages::record::PlanStatus;
use domain::ids::{Epoch, ExecutorId, TurnNo};
use domain::process::{Exit, ExitReason, LossReason, Mode, Outcome, SegmentEvent, Stage, TurnOutcome};
use proptest::prelude::*;

use super::*;
use crate::testing::{
    apply, at, conversation, facts, hot, key, output, report, said, started, stop, text_id,
};

fn names(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(|event| event.name).collect()
}

fn everything() -> Events {
    Events::new(key(), Begin::After(0), None)
}

fn delta(message: u32, epoch: u64, offset: usize, text: &str) -> Delta {
    Delta { message_id: text_id(message), epoch: Epoch(epoch), offset, text: text.into() }
}

fn text(n: u32, text: &str) -> Output {
    Output::Text { message_id: text_id(n), text: text.into() }
}

fn turn_ended(text: &str) -> Output {
    Output::TurnEnded { turn: TurnNo(1), outcome: TurnOutcome::Completed, text: Some(text.into()) }
}

#[test]
fn a_started_turn_is_told_in_its_order() {
    let mut events = everything();
    let seq = RecordSeq(3);
    let (waking, working) = (started(3), hot(3, Stage::Working));
    let finish = SegmentEvent::Finish { summary: "all done".into() };
    let (ended, ended_facts) = apply(Some(&working), report(1, 3, vec![finish]), at(20));
    let items = vec![contract::messages::record::PlanItem { text: "p".into(), status: PlanStatus::Pending }];
    let entries = [
        said(3, "go", Mode::Auto),
        facts(4, &waking, &[Fact::Started { ordinal: 1 }, Fact::Routed { input: seq }]),
        output(5, 1, Output::InHarness { frame: uuid::Uuid::nil(), inputs: vec![seq], fired: Vec::new() }),
        output(6, 1, Output::TurnStarted { turn: TurnNo(1) }),
        facts(7, &working, &[Fact::Consumed { inputs: vec![seq], fired: Vec::new() }]),
        output(8, 1, Output::MessageStarted { message_id: text_id(1) }),
        output(9, 1, text(1, "Hello")),
        output(
            10,
            1,
            Output::ToolCall { id: "t".into(), name: "Bash".into(), input: json!({ "command": "ls" }) },
        ),
        output(11, 1, Output::ToolResult { id: "t".into(), output: json!("a.txt"), is_error: false }),
        output(12, 1, Output::Plan { items }),
        output(13, 1, Output::Note { text: "halfway".into() }),
        facts(14, &ended, &ended_facts),
        output(15, 1, turn_ended("Hello")),
        output(16, 1, Output::Notice { text: "n".into() }),
    ];
    let told: Vec<Event> = entries.iter().flat_map(|entry| events.entry(entry)).collect();
    assert_eq!(
        names(&told),
        [
            "message_receipt",
            "task_created",
            "message_receipt",
            "process_state_changed",
            "message_receipt",
            "turn_started",
            "message_receipt",
            "process_state_changed",
            "chunk",
            "tool_call_request",
            "tool_call_result",
            "plan_updated",
            "process_update",
            "process_state_changed",
            "task_finished",
            "turn_finished",
            "notice",
        ]
    );
    assert_eq!(told[1].data["id"], json!(conversation()));
    assert_eq!(told[1].data["input"]["text"], "go");
    assert_eq!(told[1].data["status"], "executing");
    assert_eq!(told[8].data["done"], true);
    assert_eq!(told[9].data["payload"]["command"], "ls");
    let finished = &told[14].data;
    assert_eq!((&finished["status"], &finished["result"]), (&json!("completed"), &json!("all done")));
    assert_eq!(told[15].data["result"], "Hello");
    assert!(!events.turn_runs());
    // Only the last event of an entry has an id.
    let ids: Vec<_> = told[1..4].iter().map(|event| event.id).collect();
    assert_eq!(ids, [None, None, Some(4)]);
}

#[test]
fn a_connection_begins_with_the_message_that_started_the_process() {
    let state = started(9);
    let mut events = Events::new(key(), Begin::Process(Box::new(state.public())), None);
    assert!(events.entry(&said(3, "earlier", Mode::Auto)).is_empty());
    assert!(events.entry(&output(5, 1, text(1, "earlier"))).is_empty());
    let told = events.entry(&said(9, "now", Mode::Auto));
    assert_eq!(names(&told), ["task_created", "message_receipt"]);
    assert_eq!((told[0].id, told[1].id), (None, Some(9)));
    assert_eq!(told[0].data["input"]["text"], "now");
    // It is told of once.
    let told = events.entry(&facts(10, &state, &[Fact::Started { ordinal: 1 }]));
    assert_eq!(names(&told), ["process_state_changed"]);
}

#[test]
fn a_message_into_a_live_process_is_applied_when_it_is_consumed() {
    let mut events = everything();
    let working = hot(3, Stage::Working);
    events.entry(&said(3, "go", Mode::Auto));
    events.entry(&said(7, "and this", Mode::Auto));
    let told = events.entry(&facts(8, &working, &[Fact::Routed { input: RecordSeq(7) }]));
    assert_eq!(names(&told), ["message_receipt", "process_state_changed"]);
    let told = events.entry(&facts(
        9,
        &working,
        &[Fact::Consumed { inputs: vec![RecordSeq(3), RecordSeq(7)], fired: Vec::new() }],
    ));
    let expected = ["message_receipt", "message_receipt", "gateway_steer_applied", "process_state_changed"];
    assert_eq!(names(&told), expected);
    assert_eq!(told[2].data["message"], "and this");
    assert_eq!(told[2].data["execution_id"], json!(working.process));
    // A stop is no message.
    events.entry(&stop(10, domain::process::StopScope::Turn));
    let told = events.entry(&facts(11, &working, &[Fact::Interrupting { input: RecordSeq(10) }]));
    assert_eq!(names(&told), ["message_receipt", "process_state_changed"]);
}

#[test]
fn receipts_are_told_in_their_order_and_once_whoever_writes_first() {
    let mut events = everything();
    let working = hot(3, Stage::Working);
    let in_harness =
        || Output::InHarness { frame: uuid::Uuid::nil(), inputs: vec![RecordSeq(7)], fired: Vec::new() };
    let entries = [
        said(7, "and this", Mode::Auto),
        output(8, 1, in_harness()),
        facts(9, &working, &[Fact::Routed { input: RecordSeq(7) }]),
        // The segment was lost, and the next one delivers again.
        output(10, 2, in_harness()),
        facts(11, &working, &[Fact::Consumed { inputs: vec![RecordSeq(7)], fired: Vec::new() }]),
    ];
    let told: Vec<Event> = entries.iter().flat_map(|entry| events.entry(entry)).collect();
    let receipts: Vec<_> = told.iter().filter(|event| event.name == "message_receipt").collect();
    let steps: Vec<_> = receipts.iter().map(|event| event.data["receipt"].as_str().unwrap()).collect();
    assert_eq!(steps, ["accepted", "routed", "in_harness", "consumed"]);
    assert_eq!(receipts.iter().map(|event| event.id).collect::<Vec<_>>(), [Some(7), None, Some(8), None]);
}

#[test]
fn a_gap_asks_for_the_text_once_and_is_closed_by_it() {
    let mut events = everything();
    events.entry(&output(8, 1, Output::MessageStarted { message_id: text_id(1) }));
    let told = |heard: Heard| {
        (heard.event.map(|event| (event.data["offset"].clone(), event.data["text"].clone())), heard.gap)
    };
    assert_eq!(told(events.delta(&delta(1, 1, 0, "añ"))), (Some((json!(0), json!("añ"))), false));
    assert_eq!(told(events.delta(&delta(1, 1, 3, "o"))), (None, true));
    assert!(events.wants_text());
    assert_eq!(told(events.delta(&delta(1, 1, 4, "!"))), (None, false));
    assert_eq!(told(events.delta(&delta(1, 1, 0, "añ"))), (None, false));
    assert_eq!(told(events.delta(&delta(1, 1, 0, "año!"))), (Some((json!(2), json!("o!"))), false));
    assert!(!events.wants_text());
    let told = events.entry(&output(9, 1, text(1, "año! 🎉")));
    assert_eq!((&told[0].data["offset"], &told[0].data["text"]), (&json!(4), &json!(" 🎉")));
    // What comes behind the end is known to be late.
    assert_eq!(events.delta(&delta(1, 1, 0, "año! 🎉")), Heard::nothing());
}

#[test]
fn a_text_whose_segment_is_over_is_taken_back() {
    let mut events = everything();
    events.entry(&output(8, 1, Output::MessageStarted { message_id: text_id(1) }));
    events.delta(&delta(1, 1, 0, "half of i"));
    let lost = Fact::Lost { executor: ExecutorId(0), epoch: Epoch(1), why: LossReason::Restarted };
    let told = events.entry(&facts(9, &started(3), &[lost]));
    assert_eq!(names(&told), ["message_reset", "process_state_changed"]);
    assert_eq!(events.delta(&delta(1, 1, 9, "t")), Heard::nothing());
    // Found in the transcript later on.
    let told = events.entry(&output(10, 1, text(1, "half of it")));
    assert_eq!((&told[0].data["offset"], &told[0].data["late"]), (&json!(0), &json!(true)));
}

#[test]
fn an_exit_without_a_summary_gives_the_last_text() {
    let mut events = everything();
    let (ended, _) = apply(
        Some(&hot(3, Stage::Working)),
        crate::testing::input(7, domain::process::Input::Stop { scope: domain::process::StopScope::Process }),
        at(7),
    );
    events.entry(&output(6, 1, text(1, "so far")));
    let exit = Exit { outcome: Outcome::Stopped, reason: ExitReason::UserStop, summary: None };
    let told = events.entry(&facts(8, &ended, &[Fact::Ended { exit }]));
    assert_eq!(told[1].data["result"], "so far");
    assert_eq!(told[1].data["status"], "stopped");
}

/// What happens to a conversation with several texts, and to the connection that watches it.
#[derive(Debug, Clone)]
enum Happens {
    /// The next entry is stored. Of its events the client gets so many before its connection breaks, or all.
    Entry(Option<usize>),
    /// A piece of a text arrives, in any order and number.
    Piece(u32, usize, usize),
    /// The executor answers a beat with the text so far.
    SoFar(u32, usize),
    Reconnect,
}

/// What the record says of a text, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Whole,
    Dropped,
    Lost,
    LostAndFound,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        3 => Just(Happens::Entry(None)),
        1 => (0_usize..4).prop_map(|events| Happens::Entry(Some(events))),
        6 => (0_u32..6, 0_usize..30, 1_usize..8).prop_map(|(text, from, length)| Happens::Piece(text, from, length)),
        2 => (0_u32..6, 0_usize..30).prop_map(|(text, length)| Happens::SoFar(text, length)),
        1 => Just(Happens::Reconnect),
    ]
}

fn texts() -> impl Strategy<Value = Vec<(String, Ends)>> {
    let ends = prop_oneof![
        3 => Just(Ends::Whole),
        1 => Just(Ends::Dropped),
        1 => Just(Ends::Lost),
        1 => Just(Ends::LostAndFound),
    ];
    prop::collection::vec(("[a-zé🎉 ]{0,30}", ends), 1..6)
}

/// The record of the texts, two of them open at a time where both are whole, and the epoch of each.
fn record(texts: &[(String, Ends)]) -> (Vec<Entry>, Vec<u64>) {
    let (mut entries, mut epochs, mut epoch, mut sequence) = (Vec::new(), Vec::new(), 1, 10);
    let mut unfinished: Option<(u32, u64)> = None;
    let mut next = || {
        sequence += 1;
        sequence
    };
    for (n, (whole, ends)) in (0_u32..).zip(texts) {
        epochs.push(epoch);
        entries.push(output(next(), epoch, Output::MessageStarted { message_id: text_id(n) }));
        if let Some((before, of)) = unfinished.take() {
            entries.push(output(next(), of, text(before, &texts[before as usize].0)));
        }
        match ends {
            Ends::Whole if n % 2 == 0 => unfinished = Some((n, epoch)),
            Ends::Whole => entries.push(output(next(), epoch, text(n, whole))),
            Ends::Dropped => {
                entries.push(output(next(), epoch, Output::MessageDropped { message_id: text_id(n) }));
            }
            Ends::Lost | Ends::LostAndFound => {
                let lost =
                    Fact::Lost { executor: ExecutorId(0), epoch: Epoch(epoch), why: LossReason::NotListed };
                let claimed = Fact::Claimed { executor: ExecutorId(0), epoch: Epoch(epoch + 1) };
                entries.push(facts(next(), &started(3), &[lost, claimed]));
                if *ends == Ends::LostAndFound {
                    entries.push(output(next(), epoch, text(n, whole)));
                }
                epoch += 1;
            }
        }
    }
    if let Some((n, of)) = unfinished {
        entries.push(output(next(), of, text(n, &texts[n as usize].0)));
    }
    (entries, epochs)
}

/// A client that joins chunks by message and offset, over all its connections.
#[derive(Default)]
struct Client {
    joined: HashMap<String, String>,
    done: HashSet<String>,
    /// Characters got on this connection.
    here: HashMap<String, usize>,
    last_id: u64,
}

impl Client {
    fn take(&mut self, event: &Event) {
        let id = || event.data["message_id"].as_str().unwrap().to_owned();
        match event.name {
            "chunk" => {
                let (id, text) = (id(), event.data["text"].as_str().unwrap());
                let offset = usize::try_from(event.data["offset"].as_u64().unwrap()).unwrap();
                let here = self.here.entry(id.clone()).or_default();
                assert_eq!(offset, *here, "a gap or a repeated character on one connection");
                *here += text.chars().count();
                let joined = self.joined.entry(id.clone()).or_default();
                let kept: String = joined.chars().take(offset).collect();
                assert_eq!(kept.chars().count(), offset, "a gap over connections");
                *joined = kept + text;
                if event.data["done"] == true {
                    assert!(event.id.is_some());
                    self.done.insert(id);
                }
            }
            "message_reset" => {
                self.here.remove(&id());
                self.joined.remove(&id());
            }
            _ => {}
        }
        self.last_id = event.id.unwrap_or(self.last_id);
    }

    fn connect(&mut self, stored: &[Entry]) -> Events {
        self.here.clear();
        let mut events = Events::new(key(), Begin::After(self.last_id), None);
        for entry in stored {
            events.entry(entry).iter().for_each(|event| self.take(event));
        }
        events.caught_up();
        events
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn joined_by_message_and_offset_the_chunks_are_the_texts(
        texts in texts(),
        story in prop::collection::vec(happens(), 0..120),
    ) {
        let (entries, epochs) = record(&texts);
        let chars: Vec<Vec<char>> = texts.iter().map(|(text, _)| text.chars().collect()).collect();
        let piece = |n: u32, from: usize, to: usize| {
            let all = chars.get(n as usize)?;
            let (from, to) = (from.min(all.len()), to.min(all.len()));
            let text: String = all[from..to].iter().collect();
            Some(delta(n, epochs[n as usize], from, &text))
        };
        let mut client = Client::default();
        let mut stored = 0;
        let mut events = client.connect(&[]);
        for happens in story {
            let heard = match happens {
                Happens::Entry(reaches) if stored < entries.len() => {
                    stored += 1;
                    let told = events.entry(&entries[stored - 1]);
                    told.iter().take(reaches.unwrap_or(usize::MAX)).for_each(|event| client.take(event));
                    if reaches.is_some() {
                        events = client.connect(&entries[..stored]);
                    }
                    None
                }
                Happens::Entry(_) => None,
                Happens::Piece(n, from, length) => piece(n, from, from + length),
                Happens::SoFar(n, length) => piece(n, 0, length),
                Happens::Reconnect => {
                    events = client.connect(&entries[..stored]);
                    None
                }
            };
            if let Some(delta) = heard {
                let heard = events.delta(&delta);
                heard.event.iter().for_each(|event| client.take(event));
            }
        }
        for entry in &entries[stored..] {
            events.entry(entry).iter().for_each(|event| client.take(event));
        }
        for (n, (whole, ends)) in (0_u32..).zip(&texts) {
            let id = text_id(n).to_string();
            let joined = client.joined.get(&id).map(String::as_str);
            if matches!(ends, Ends::Lost | Ends::Dropped) {
                prop_assert_eq!(joined, None, "what was lost was not taken back");
            } else {
                prop_assert_eq!(joined, Some(whole.as_str()));
                prop_assert!(client.done.contains(&id));
            }
        }
    }
}
