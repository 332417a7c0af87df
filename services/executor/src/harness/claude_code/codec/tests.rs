//! The codec on recorded streams of the real Claude Code (fields that nobody reads are left out of the recordings).

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::*;
use crate::harness::PlanStatus;

const RECORDINGS: [&str; 10] = [
    "background",
    "errors",
    "hot",
    "interrupt",
    "permission",
    "plan",
    "resumed",
    "steer",
    "subagent",
    "subagent-interrupted",
];

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/claude-code-2.1.197").join(name)
}

fn recording(name: &str) -> String {
    fs::read_to_string(testdata(&format!("{name}.jsonl"))).unwrap()
}

fn events_of(lines: &str) -> Vec<HarnessEvent> {
    let mut codec = Codec::default();
    lines.lines().flat_map(|line| codec.push(line)).collect()
}

/// One line per event, as the golden files have them.
fn shown(events: &[HarnessEvent]) -> String {
    let mut text = String::new();
    for HarnessEvent { actor, what } in events {
        let who = match actor {
            Actor::Main => "main".to_owned(),
            Actor::Sub(id) => format!("sub {id}"),
        };
        writeln!(text, "{who}: {what:?}").unwrap();
    }
    text
}

/// Only what happened in the turn, without the ids.
fn kinds(events: &[HarnessEvent]) -> Vec<String> {
    let kind = |event: &HarnessEvent| {
        let debug = format!("{:?}", event.what);
        let end = debug.find([' ', '(', '{']).unwrap_or(debug.len());
        debug[..end].to_owned()
    };
    events.iter().map(kind).collect()
}

#[test]
fn recorded_streams_read_as_they_did() {
    for name in RECORDINGS {
        let golden = fs::read_to_string(testdata(&format!("{name}.events"))).unwrap_or_default();
        let read = shown(&events_of(&recording(name)));
        assert!(read == golden, "{name}.events differs; if it should, it is now:\n{read}");
    }
}

#[test]
fn every_recording_is_read_here() {
    let mut files: Vec<String> = fs::read_dir(testdata(""))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".jsonl").map(str::to_owned))
        .collect();
    files.sort();
    assert_eq!(files, RECORDINGS);
}

#[test]
fn recorded_streams_hold_together() {
    for name in RECORDINGS {
        let events = events_of(&recording(name));
        let count = |kind: &str| kinds(&events).iter().filter(|seen| *seen == kind).count();
        assert_eq!(count("ModelCallStarted"), count("ModelCallEnded"), "{name}");
        assert_eq!(count("SubAgentStarted"), count("SubAgentEnded"), "{name}");
        assert_eq!(count("BackgroundStarted"), count("BackgroundEnded"), "{name}");
        assert!(!shown(&events).contains("not understood"), "{name}");

        let mut deltas: HashMap<&str, String> = HashMap::new();
        for event in &events {
            match &event.what {
                What::MessageStarted { message_id } => {
                    assert!(deltas.insert(message_id, String::new()).is_none(), "{name}: {message_id} twice");
                }
                What::TextDelta { message_id, text } => {
                    deltas.get_mut(message_id.as_str()).expect("started before its deltas").push_str(text);
                }
                What::Text { message_id, text } if event.actor == Actor::Main => {
                    let streamed = deltas.remove(message_id.as_str());
                    assert!(streamed.is_none_or(|streamed| streamed == *text), "{name}: {message_id}");
                }
                _ => {}
            }
        }
    }
}

#[test]
fn no_truncation_of_a_recording_harms() {
    for name in RECORDINGS {
        let whole = recording(name);
        // A step that is prime to everything, so that the cuts fall everywhere in a line over all recordings.
        for end in (0..whole.len()).step_by(97).filter(|&end| whole.is_char_boundary(end)) {
            let line_start = whole[..end].rfind('\n').map_or(0, |at| at + 1);
            let mut codec = Codec::default();
            codec.push(&whole[line_start..end]);
            codec.push(whole[end..].lines().next().unwrap_or_default());
        }
    }
}

#[test]
fn a_lost_line_anywhere_harms_no_other() {
    for name in RECORDINGS {
        let whole = recording(name);
        for lost in 0..whole.lines().count() {
            let mut codec = Codec::default();
            let events: Vec<_> = whole
                .lines()
                .enumerate()
                .filter(|(at, _)| *at != lost)
                .flat_map(|(_, line)| codec.push(line))
                .collect();
            assert!(!shown(&events).contains("not understood"), "{name} without line {lost}");
        }
    }
}

#[test]
fn what_is_not_understood_is_a_notice() {
    for (line, said) in [
        ("not json at all", "a line that is no frame: not json at all"),
        ("{\"a\":", "a line that is no frame"),
        (r#"{"type":"novelty","x":1}"#, "a frame that is not understood, novelty"),
        (r#"{"type":"system","subtype":"novelty"}"#, "a frame that is not understood, system/novelty"),
        (r#"{"type":"assistant"}"#, "a frame that is not understood, assistant: missing field"),
        (r#"{"type":"system","subtype":"session_state_changed","state":"odd"}"#, "unknown session state odd"),
    ] {
        let events = events_of(line);
        let [HarnessEvent { what: What::Notice { text }, .. }] = events.as_slice() else {
            panic!("{line}: {events:?}");
        };
        assert!(text.starts_with(said), "{text}");
    }
    assert!(events_of("\n  \n").is_empty());
    let long = events_of(&"x".repeat(100_000));
    assert!(format!("{long:?}").len() < 1_000, "a notice is short");
}

#[test]
fn a_text_after_an_unframed_block_still_joins_its_deltas() {
    let stream = |event: Value| {
        json!({"type": "stream_event", "parent_tool_use_id": null, "event": event}).to_string()
    };
    let lines = [
        stream(json!({"type": "message_start", "message": {"id": "msg_1"}})),
        // A block that gets no frame of its own.
        stream(json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}})),
        stream(json!({"type": "content_block_stop", "index": 0})),
        stream(json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text"}})),
        stream(
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "hi"}}),
        ),
        json!({"type": "assistant", "message": {"id": "msg_1", "content": [{"type": "text", "text": "hi"}]}})
            .to_string(),
    ];
    let ids: Vec<String> = events_of(&lines.join("\n"))
        .into_iter()
        .filter_map(|event| match event.what {
            What::MessageStarted { message_id }
            | What::TextDelta { message_id, .. }
            | What::Text { message_id, .. } => Some(message_id),
            _ => None,
        })
        .collect();
    assert_eq!(ids, ["msg_1.1"; 3]);
}

#[test]
fn a_handed_on_plan_is_changed_not_forgotten() {
    let old = PlanItem { id: "1".into(), text: "old".into(), status: PlanStatus::Pending };
    let mut codec = Codec::with_plan(vec![old]);
    let call = json!({"type": "assistant", "message": {"id": "m", "content": [
        {"type": "tool_use", "id": "t", "name": "TaskUpdate", "input": {"taskId": "1", "status": "completed"}}]}});
    let answer = |is_error: bool| {
        json!({"type": "user", "message": {"content": [
            {"type": "tool_result", "tool_use_id": "t", "content": "x", "is_error": is_error}]}})
        .to_string()
    };
    codec.push(&call.to_string());
    assert_eq!(kinds(&codec.push(&answer(true))), ["ToolEnded"], "a call that failed changes nothing");
    codec.push(&call.to_string());
    let events = codec.push(&answer(false));
    let item = PlanItem { id: "1".into(), text: "old".into(), status: PlanStatus::Completed };
    assert_eq!(events[1].what, What::PlanUpdated { items: vec![item] });
}

#[test]
fn a_question_of_the_harness_is_passed_on_to_be_refused() {
    let asked = r#"{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool"}}"#;
    let events = events_of(asked);
    let expected = What::ControlAsked { request_id: "q1".into(), subject: "can_use_tool".into() };
    assert_eq!(events, [HarnessEvent::main(expected)]);
}
