//! The real Claude Code in the real sandbox, in front of a scripted model behind the unix socket.

mod kit;

use std::fs;
use std::path::Path;
use std::time::Duration;

use executor::harness::claude_code::{ClaudeError, Session, SessionEnd};
use executor::harness::{HarnessEvent, PlanItem, PlanStatus, TaskEnd, TurnOutcome, What};
use scripted_model::{ItemKind, Reply};
use serde_json::json;

use kit::stay::{SESSION, Stay, shell, uuid, world};
use kit::{processes_with, read};

const CLAUDE_MD: &str = "/agent/data/workdirs/CLAUDE.md";

#[tokio::test]
async fn it_answers_one_message() {
    let world = world([Reply::text("hello there").chunked(Duration::from_millis(5))]).await;
    let mut stay = world.stay(Session::New(SESSION)).await;
    stay.claude.deliver(uuid(1), "say hello").await.unwrap();
    stay.consumed(uuid(1)).await;
    assert_eq!(stay.completed().await, "hello there");
    stay.idle().await;

    let session = stay.seen.iter().find_map(|event| match &event.what {
        What::SessionReady(session) => Some(session.clone()),
        _ => None,
    });
    let session = session.expect("a session");
    assert_eq!(session.id, SESSION.to_string());
    assert_eq!(session.version, "2.1.197", "the version whose frames the codec knows");
    assert_eq!(session.mcp, [("xpander".to_owned(), "connected".to_owned())]);

    let (mut started, mut streamed, mut whole) = (Vec::new(), String::new(), Vec::new());
    for event in &stay.seen {
        match &event.what {
            What::MessageStarted { message_id } => started.push(message_id.clone()),
            What::TextDelta { text, .. } => streamed.push_str(text),
            What::Text { message_id, text } => whole.push((message_id.clone(), text.clone())),
            _ => {}
        }
    }
    assert_eq!(streamed, "hello there");
    assert_eq!(whole, [(started.remove(0), "hello there".to_owned())], "joined by the message's id");

    let request = world.last_request();
    assert_eq!(request.last_user(), Some("say hello"));
    assert!(request.system.contains("You answer in one word."), "our prompt is in the system prompt");
    assert!(request.offers("mcp/tell_user"));
    for gone in ["CronCreate", "ScheduleWakeup", "AskUserQuestion", "EnterWorktree"] {
        assert!(!request.tools().contains(&gone.to_owned()), "{gone}");
    }
    let exited = stay.park().await;
    assert_eq!((exited.code, exited.signal, exited.stderr_tail), (Some(0), None, vec![]));
    world.assert_sound();
}

#[tokio::test]
async fn tools_work_inside_and_out() {
    let edit = json!({"file_path": CLAUDE_MD, "old_string": "seed", "new_string": "edited"});
    let write = json!({"file_path": "/agent/data/workdirs/AGENTS.md", "content": "written whole"});
    let world = world([
        Reply::default().and_tool("Read", json!({"file_path": CLAUDE_MD})),
        Reply::default().and_tool("Edit", edit),
        Reply::default().and_tool("Write", write),
        shell("echo appended >> ../CLAUDE.md; echo made > made.txt; id -u"),
        Reply::default().and_tool("mcp/tell_user", json!({"text": "a note"})),
        Reply::text("done"),
    ])
    .await;
    let dir = world.bench.conversation("cnv_1");
    let instructions: Vec<_> = dir.dir().instruction_files().map(|(_, path)| path).collect();
    fs::write(&instructions[0], "seed\n").unwrap();
    fs::write(&instructions[1], "old").unwrap();
    let mut stay = world.stay_in(&dir, Session::New(SESSION), Vec::new()).await;
    stay.claude.deliver(uuid(1), "work").await.unwrap();
    assert_eq!(stay.completed().await, "done");

    let failed: Vec<_> = stay
        .seen
        .iter()
        .filter_map(|event| match &event.what {
            What::ToolEnded { is_error, output, .. } if *is_error => Some(output),
            _ => None,
        })
        .collect();
    assert!(matches!(failed.as_slice(), [one] if one.contains("has not been read yet")), "{failed:?}");
    assert_eq!(read(&instructions[0]), "edited\nappended\n", "through the mounted file");
    assert_eq!(read(&dir.dir().tree().join("made.txt")), "made\n");
    assert_eq!(world.runtime.segment.told(), ["a note"]);
    stay.park().await;
    world.assert_sound();
}

#[tokio::test]
async fn a_resumed_session_goes_on_where_it_was() {
    let world = world([
        shell("echo kept > kept.txt"),
        Reply::text("first done"),
        shell("cat kept.txt"),
        Reply::text("second done"),
    ])
    .await;
    let mut stay = world.stay(Session::New(SESSION)).await;
    stay.claude.deliver(uuid(1), "the first task").await.unwrap();
    assert_eq!(stay.completed().await, "first done");
    stay.park().await;

    let mut stay = world.stay(Session::Resume(SESSION)).await;
    stay.claude.deliver(uuid(2), "the second task").await.unwrap();
    assert_eq!(stay.completed().await, "second done");
    let request = world.last_request();
    assert_eq!(request.user_texts(), ["the first task", "the second task"]);
    assert_eq!(request.last_tool_result(), Some("kept"));

    // A message is never a command of the harness, which this one would have ended the session with.
    stay.claude.deliver(uuid(3), "/clear").await.unwrap();
    assert_eq!(stay.completed().await, "ok");
    assert_eq!(world.last_request().last_user(), Some("/clear"));
    assert_eq!(world.last_request().user_texts().len(), 3);

    // What was run before is acknowledged and not run again.
    stay.claude.deliver(uuid(1), "the first task").await.unwrap();
    stay.consumed(uuid(1)).await;
    stay.park().await;
    assert_eq!(world.last_request().seq, request.seq + 1);
    world.assert_sound();
}

#[tokio::test]
async fn a_session_that_is_not_there_says_so() {
    let world = world([]).await;
    let mut stay = world.stay(Session::Resume(SESSION)).await;
    // It may be gone before the message is written; then there is nobody to deliver to.
    let _gone = stay.claude.deliver(uuid(1), "anyone?").await;
    let exited = stay.exited().await;
    assert_eq!(exited.code, Some(1));
    assert!(exited.to_string().contains("No conversation found with session ID"), "{exited}");
    let refused = stay.claude.deliver(uuid(2), "anyone?").await.unwrap_err();
    assert!(matches!(refused, ClaudeError::Ended { .. }), "{refused}");
}

#[tokio::test]
async fn a_steer_during_a_tool_reaches_the_same_turn() {
    let world = world([shell("while [ ! -e go ]; do sleep 0.05; done"), Reply::text("steered")]).await;
    let dir = world.bench.conversation("cnv_1");
    let mut stay = world.stay_in(&dir, Session::New(SESSION), Vec::new()).await;
    stay.claude.deliver(uuid(1), "start").await.unwrap();
    stay.tool_started().await;
    stay.claude.deliver(uuid(2), "and mind this").await.unwrap();
    // Queued, since it can still be taken back; then it is there again under a fresh id.
    assert!(stay.claude.withdraw(uuid(2)).await.unwrap());
    stay.claude.deliver(uuid(3), "and mind that").await.unwrap();
    fs::write(dir.dir().tree().join("go"), "").unwrap();
    stay.consumed(uuid(3)).await;
    assert_eq!(stay.completed().await, "steered");
    stay.idle().await;

    let request = world.last_request();
    assert_eq!(request.user_texts(), ["start", "and mind that"]);
    assert!(request.items.iter().any(|item| item.kind == ItemKind::Steer));
    stay.park().await;
    world.assert_sound();
}

#[tokio::test]
async fn a_withdrawn_message_is_spent_here_and_good_in_the_next_segment() {
    let world = world([shell("sleep 1000"), Reply::text("fresh"), Reply::text("again")]).await;
    let mut stay = world.stay(Session::New(SESSION)).await;
    stay.claude.deliver(uuid(1), "start").await.unwrap();
    let tool = stay.tool_started().await;
    stay.claude.deliver(uuid(2), "later").await.unwrap();
    assert!(stay.claude.withdraw(uuid(2)).await.unwrap());
    assert!(!stay.claude.withdraw(uuid(9)).await.unwrap(), "never delivered");
    stay.claude.interrupt().await.unwrap();
    assert_eq!(stay.turn().await.0, TurnOutcome::Interrupted);
    stay.idle().await;
    let cut = |event: &HarnessEvent| matches!(&event.what, What::ToolEnded { id, is_error: true, .. } if *id == tool);
    assert!(stay.seen.iter().any(cut), "the tool was ended by the interrupt");
    assert_eq!(world.runtime.model.requests().len(), 1, "nothing queued ran");

    let refused = stay.claude.deliver(uuid(2), "later").await.unwrap_err();
    assert!(matches!(refused, ClaudeError::Withdrawn { .. }), "{refused}");
    stay.claude.deliver(uuid(3), "later").await.unwrap();
    assert_eq!(stay.completed().await, "fresh");
    assert!(!stay.claude.withdraw(uuid(3)).await.unwrap(), "consumed");
    stay.park().await;

    let mut stay = world.stay(Session::Resume(SESSION)).await;
    stay.claude.deliver(uuid(2), "later, once more").await.unwrap();
    assert_eq!(stay.completed().await, "again");
    assert_eq!(world.last_request().last_user(), Some("later, once more"));
    stay.park().await;
    world.assert_sound();
}

#[tokio::test]
async fn a_queued_message_runs_after_an_interrupt() {
    let world = world([shell("sleep 1000"), Reply::text("ran")]).await;
    let mut stay = world.stay(Session::New(SESSION)).await;
    stay.claude.deliver(uuid(1), "start").await.unwrap();
    stay.tool_started().await;
    stay.claude.deliver(uuid(2), "queued").await.unwrap();
    stay.claude.interrupt().await.unwrap();
    assert_eq!(stay.turn().await.0, TurnOutcome::Interrupted);
    assert_eq!(stay.completed().await, "ran");
    stay.park().await;
    world.assert_sound();
}

#[tokio::test]
async fn the_session_ends_in_order_in_the_middle_of_a_tool() {
    let mark = "86420.1";
    let world = world([shell(&format!("sleep {mark}"))]).await;
    let mut stay = world.stay(Session::New(SESSION)).await;
    stay.claude.deliver(uuid(1), "start").await.unwrap();
    stay.tool_started().await;
    kit::until("the command", || !processes_with(mark).is_empty()).await;
    stay.park().await;
    assert!(processes_with(mark).is_empty());
    assert!(world.bench.is_free("cnv_1"));
    world.assert_sound();
}

#[tokio::test]
async fn a_harness_that_does_not_end_is_killed() {
    let world = world([Reply::text("hello")]).await;
    let mut stay = world.stay(Session::New(SESSION)).await;
    stay.claude.deliver(uuid(1), "start").await.unwrap();
    stay.completed().await;
    stay.claude.freeze().await.unwrap();
    let end = stay.claude.end_session(Duration::from_millis(300)).await.unwrap();
    assert_eq!(end, SessionEnd::Killed);
    assert_eq!(stay.exited().await.signal, Some(9));
    assert!(world.bench.is_free("cnv_1"));
}

#[tokio::test]
async fn a_killed_session_is_resumed() {
    let world = world([shell("echo half > half.txt; sleep 1000"), Reply::text("went on")]).await;
    let dir = world.bench.conversation("cnv_1");
    let half = dir.dir().tree().join("half.txt");
    let mut stay = world.stay_in(&dir, Session::New(SESSION), Vec::new()).await;
    stay.claude.deliver(uuid(1), "start").await.unwrap();
    stay.tool_started().await;
    kit::until("the command", || half.exists()).await;
    // Claude Code writes its transcript a little later than it acts.
    let transcript = find(&dir.dir().home(), &format!("{SESSION}.jsonl"));
    kit::until("the transcript", || transcript().is_some_and(|text| text.contains("half.txt"))).await;
    stay.claude.kill().await.unwrap();
    drop(dir);

    let mut stay = world.stay(Session::Resume(SESSION)).await;
    stay.claude.deliver(uuid(2), "you are awake again").await.unwrap();
    stay.consumed(uuid(2)).await;
    assert_eq!(stay.completed().await, "went on");
    let request = world.last_request();
    assert_eq!((request.user_texts()[0], request.last_user()), ("start", Some("you are awake again")));
    assert_eq!(request.last_tool_result(), None, "the harness drops the call that was killed");
    stay.park().await;
    world.assert_sound();
}

/// The text of the file with this name under Claude Code's projects, once it is there.
fn find(home: &Path, name: &str) -> impl Fn() -> Option<String> + use<> {
    let (projects, name) = (home.join(".claude/projects"), name.to_owned());
    move || {
        let folders = fs::read_dir(&projects).ok()?.flatten();
        folders.map(|folder| folder.path().join(&name)).find_map(|path| fs::read_to_string(path).ok())
    }
}

#[tokio::test]
async fn a_frozen_harness_says_nothing_until_thawed() {
    let world = world([Reply::text("one"), Reply::text("two")]).await;
    let mut stay = world.stay(Session::New(SESSION)).await;
    stay.claude.deliver(uuid(1), "first").await.unwrap();
    stay.completed().await;
    stay.idle().await;
    stay.claude.freeze().await.unwrap();
    stay.until("frozen", |what| (*what == What::Frozen).then_some(())).await;
    stay.claude.deliver(uuid(2), "second").await.unwrap();
    let silence = tokio::time::timeout(Duration::from_millis(500), stay.events.recv()).await;
    assert!(silence.is_err(), "{silence:?}");
    stay.claude.thaw().await.unwrap();
    assert_eq!(stay.completed().await, "two");
    stay.park().await;
    world.assert_sound();
}

#[tokio::test]
async fn the_plan_follows_the_agents_own_list() {
    let world = world([
        Reply::default().and_tool("TaskCreate", json!({"subject": "first", "description": "d"})),
        Reply::default().and_tool("TaskUpdate", json!({"taskId": "1", "status": "in_progress"})),
        Reply::text("parked with a plan"),
        Reply::default().and_tool("TaskUpdate", json!({"taskId": "1", "status": "completed"})),
        Reply::text("done"),
    ])
    .await;
    let plan_of = |stay: &Stay| {
        let mut plans = stay.seen.iter().filter_map(|event| match &event.what {
            What::PlanUpdated { items } => Some(items.clone()),
            _ => None,
        });
        plans.next_back().expect("a plan")
    };
    let item = |status| PlanItem { id: "1".into(), text: "first".into(), status };
    let mut stay = world.stay(Session::New(SESSION)).await;
    stay.claude.deliver(uuid(1), "plan it").await.unwrap();
    stay.completed().await;
    let plan = plan_of(&stay);
    assert_eq!(plan, [item(PlanStatus::InProgress)]);
    stay.park().await;

    let dir = world.bench.conversation("cnv_1");
    let mut stay = world.stay_in(&dir, Session::Resume(SESSION), plan).await;
    stay.claude.deliver(uuid(2), "go on").await.unwrap();
    stay.completed().await;
    assert_eq!(plan_of(&stay), [item(PlanStatus::Completed)]);
    stay.park().await;
    world.assert_sound();
}

#[tokio::test]
async fn a_background_command_outlives_its_turn_and_wakes_the_model() {
    let background =
        json!({"command": "while [ ! -e go ]; do sleep 0.05; done", "description": "x", "background": true});
    let world =
        world([Reply::default().and_tool("shell", background), Reply::text("waiting"), Reply::text("told")])
            .await;
    let dir = world.bench.conversation("cnv_1");
    let mut stay = world.stay_in(&dir, Session::New(SESSION), Vec::new()).await;
    stay.claude.deliver(uuid(1), "start").await.unwrap();
    assert_eq!(stay.completed().await, "waiting");
    let started = stay.seen.iter().find_map(|event| match &event.what {
        What::BackgroundStarted { task, command, .. } => Some((task.clone(), command.clone())),
        _ => None,
    });
    let (task, command) = started.expect("a background command before the turn's end");
    assert!(command.contains("-e go"), "{command}");
    fs::write(dir.dir().tree().join("go"), "").unwrap();
    let expected = What::BackgroundEnded { task, end: TaskEnd::Completed };
    stay.until("the end of the command", |what| (*what == expected).then_some(())).await;
    assert_eq!(stay.completed().await, "told");
    stay.park().await;
    world.assert_sound();
}

#[tokio::test]
async fn a_refused_model_call_fails_the_turn_and_not_the_session() {
    let refusal =
        Reply::fail(402, "Execution stopped: budget exceeded.").with_header("x-should-retry", "false");
    let world = world([refusal, Reply::text("went on")]).await;
    let mut stay = world.stay(Session::New(SESSION)).await;
    stay.claude.deliver(uuid(1), "start").await.unwrap();
    let TurnOutcome::Failed { status, message } = stay.turn().await.0 else { panic!("{:#?}", stay.seen) };
    assert_eq!(status, Some(402));
    assert!(message.contains("Execution stopped: budget exceeded."), "{message}");
    stay.claude.deliver(uuid(2), "again").await.unwrap();
    assert_eq!(stay.completed().await, "went on");
    stay.park().await;
    world.assert_sound();
}

#[tokio::test]
async fn nobody_listening_ends_the_harness() {
    let world = world([]).await;
    let stay = world.stay(Session::New(SESSION)).await;
    drop(stay);
    kit::until("the conversation's lock", || world.bench.is_free("cnv_1")).await;
}
