//! What the fold of a record is held to.

use contract::buckets::{Access, Agent, PermissionMode};
use domain::Refusal;
use domain::ids::{ExecutorId, TurnNo};
use domain::process::{Harness, Input, Mode, SegmentEvent, Stage, State, StopScope, TurnOutcome};
use serde_json::json;

use super::*;
use crate::record::ConversationRecord;
use crate::testing::{
    agent_id, apply, at, conversation, facts, hot, input, key, output, report, said, started, stop, text_id,
    user,
};

fn agent() -> Agent {
    Agent {
        id: agent_id(),
        org: key().org,
        name: "a".into(),
        description: String::new(),
        instructions: String::new(),
        harness: Harness::ClaudeCode,
        model: None,
        permission_mode: PermissionMode::Full,
        gated_commands: Vec::new(),
        access: Access::Org,
        created_by: user(),
        created_at: Timestamp::EPOCH,
        updated_at: Timestamp::EPOCH,
        deleted_at: None,
    }
}

fn record(last: Option<&State>, entries: &[Entry]) -> ConversationRecord {
    page(last, entries, None)
}

fn page(last: Option<&State>, entries: &[Entry], before: Option<u64>) -> ConversationRecord {
    let handled = last.map_or(RecordSeq(0), |state| state.handled);
    let mut thread = Thread::new(key(), handled, before);
    entries.iter().for_each(|entry| thread.push(entry));
    ConversationRecord::new(key(), &agent(), last.cloned(), thread)
}

fn kinds(record: &ConversationRecord) -> Vec<String> {
    let kind = |line: &Activity| json!(line)["type"].as_str().unwrap().to_owned();
    record.activity.iter().map(kind).collect()
}

fn text(n: u32, text: &str) -> Output {
    Output::Text { message_id: text_id(n), text: text.into() }
}

fn routed(seq: u64) -> Fact {
    Fact::Routed { input: RecordSeq(seq) }
}

#[test]
fn a_message_that_was_just_accepted_is_executing() {
    let record = record(None, &[said(3, "Mend the\nbuild", Mode::Auto)]);
    assert_eq!(record.status, Status::Executing);
    let process = record.process.unwrap();
    assert_eq!((process.id, process.state.as_str()), (started(3).process, "queued"));
    assert_eq!(process.substate, Some(Substate::Working));
    assert_eq!(record.input.unwrap().text, "Mend the\nbuild");
    assert_eq!(record.processes[0].title.as_deref(), Some("Mend the"));
    assert_eq!(record.created_at, Some(at(3)));
}

#[test]
fn a_message_into_an_ended_conversation_is_executing_again() {
    let (ended, _) = apply(Some(&started(3)), input(5, Input::Stop { scope: StopScope::Process }), at(5));
    let entries = [
        said(3, "one", Mode::Auto),
        facts(4, &started(3), &[Fact::Started { ordinal: 1 }, routed(3)]),
        stop(5, StopScope::Process),
        facts(6, &ended, &[Fact::Ended { exit: ended.public().exit.unwrap() }]),
    ];
    let over = record(Some(&ended), &entries);
    assert_eq!((over.status, over.finished_at), (Status::Stopped, Some(at(5))));
    assert!(
        matches!(&over.activity[2].what, Happened::Stop { fate, .. } if fate.receipt == Receipt::Consumed)
    );

    let more: Vec<Entry> = entries.into_iter().chain([said(7, "two", Mode::Auto)]).collect();
    let again = record(Some(&ended), &more);
    assert_eq!((again.status, again.finished_at), (Status::Executing, None));
    assert_eq!(again.input.unwrap().text, "two");
    let cards: Vec<_> =
        again.processes.iter().map(|card| (card.ordinal, card.status, card.title.clone())).collect();
    let expected = [(1, Status::Stopped, Some("one".into())), (2, Status::Executing, Some("two".into()))];
    assert_eq!(cards, expected);
}

#[test]
fn what_could_start_nothing_is_pending() {
    let (absent, told) = apply(None, input(3, Input::Message { mode: Mode::Steer, start: None }), at(3));
    let record = record(Some(&absent), &[said(3, "x", Mode::Steer), facts(4, &absent, &told)]);
    assert_eq!((record.status, record.process, record.processes.len()), (Status::Pending, None, 0));
    assert_eq!(record.input.unwrap().text, "x");
    match &record.activity[0].what {
        Happened::UserMessage { fate, .. } => {
            assert_eq!(fate.receipt, Receipt::Refused);
            assert_eq!(fate.reason, Some(Refusal::NothingToSteer.to_string()));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_lines_of_the_thread_are_joined_and_doubles_hidden() {
    let working = hot(3, Stage::Working);
    let record = record(
        Some(&working),
        &[
            said(3, "go", Mode::Auto),
            facts(
                4,
                &working,
                &[
                    Fact::Started { ordinal: 1 },
                    routed(3),
                    Fact::Claimed { executor: ExecutorId(0), epoch: Epoch(1) },
                ],
            ),
            output(5, 1, Output::TurnStarted { turn: TurnNo(1) }),
            output(6, 1, Output::ToolCall { id: "t".into(), name: "Bash".into(), input: json!({}) }),
            said(7, "go", Mode::Auto),
            facts(8, &working, &[Fact::Duplicate { input: RecordSeq(7), of: RecordSeq(3) }]),
            output(9, 1, Output::ToolResult { id: "t".into(), output: json!("ok"), is_error: false }),
            output(10, 1, Output::ToolResult { id: "of another".into(), output: json!("?"), is_error: true }),
            output(11, 1, text(1, "Hello")),
            output(12, 0, text(2, "from an earlier segment")),
            output(13, 1, Output::Note { text: "n".into() }),
            output(14, 1, Output::TurnEnded { turn: TurnNo(1), outcome: TurnOutcome::Completed, text: None }),
            Entry { sequence: 15, at: at(15), said: Said::Unknown { kind: "card".into() } },
        ],
    );
    assert_eq!(
        kinds(&record),
        [
            "user_message",
            "process_state",
            "turn_started",
            "tool_call",
            "tool_result",
            "agent_message",
            "agent_message",
            "note",
            "turn_finished",
            "unknown",
        ]
    );
    assert!(
        matches!(&record.activity[3].what, Happened::ToolCall { result: Some(result), .. } if result.output == "ok")
    );
    assert_eq!(record.activity.iter().filter(|line| line.late).map(|line| line.id).collect::<Vec<_>>(), [12]);
    assert_eq!(record.result.as_deref(), Some("Hello"));
    assert_eq!(record.status, Status::Executing);
}

#[test]
fn the_result_is_the_summary_once_there_is_one() {
    let finish = SegmentEvent::Finish { summary: "Built.".into() };
    let (ended, told) = apply(Some(&hot(3, Stage::Working)), report(1, 3, vec![finish]), at(9));
    let entries = [said(3, "go", Mode::Auto), output(8, 1, text(1, "Hello")), facts(9, &ended, &told)];
    let record = record(Some(&ended), &entries);
    assert_eq!((record.status, record.result.as_deref()), (Status::Completed, Some("Built.")));
    assert_eq!(record.processes[0].summary.as_deref(), Some("Built."));
}

#[test]
fn a_long_thread_is_had_in_parts() {
    let working = hot(3, Stage::Working);
    let count = ACTIVITY_MAX as u64 + 200;
    let mut entries = vec![said(3, "go", Mode::Auto)];
    entries.extend((0..count).map(|n| output(10 + n, 1, Output::Note { text: n.to_string() })));
    let latest = record(Some(&working), &entries);
    assert_eq!(latest.activity.len(), ACTIVITY_MAX);
    assert_eq!(latest.activity.last().unwrap().id, 10 + count - 1);
    let older = page(Some(&working), &entries, latest.activity_before);
    assert_eq!(older.activity.len(), 201);
    assert_eq!(older.activity.last().unwrap().id + 1, latest.activity[0].id);
    assert_eq!((older.activity[0].id, older.activity_before), (3, None));
    assert_eq!(older.status, Status::Executing);
}

#[test]
fn everything_is_told_in_json_that_reads_well() {
    let record = record(None, &[said(3, "go", Mode::Queue)]);
    let json = json!(record);
    assert_eq!(json["id"], json!(conversation()));
    assert_eq!(json["execution_kind"], "resident");
    assert_eq!(json["harness_cli"], "claude-code");
    assert_eq!(json["status"], "executing");
    assert_eq!(json["activity"][0]["type"], "user_message");
    assert_eq!(json["activity"][0]["role"], "user");
    assert_eq!(json["activity"][0]["content"], json!({ "text": "go", "files": [] }));
    assert_eq!(json["activity"][0]["receipt"], "accepted");
    assert_eq!(json["activity"][0]["mode"], "queue");
    assert!(json["activity"][0].get("late").is_none());
}
