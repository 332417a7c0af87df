//! Executors that end, are emptied or take a segment's slot back while the agent works: the person sees nothing of it.

use std::path::Path;
use std::time::Duration;

use contract::buckets::Role;
use domain::process::{Fact, ParkReason, Step};
use scripted_model::{ItemKind, Reply, RequestView, Script};
use serde_json::{Value, json};
use tests::api::Api;
use tests::installation::{executor_name, program};
use tests::wait::eventually;
use tests::{Installation, Options};

const STEPS: usize = 14;

/// It does one thing after the other, each in a tool of a second, and then finishes.
fn steady() -> Script {
    Script::from_responder(|request: &RequestView| {
        let is_result = |kind: &ItemKind| matches!(kind, ItemKind::ToolResult { .. });
        let done = request.items.iter().filter(|item| is_result(&item.kind)).count();
        Some(match done {
            done if done < STEPS => {
                let command = format!("echo {done} >> steps.txt; sleep 1");
                Reply::tool("shell", json!({ "command": command, "description": "a step" }))
            }
            STEPS => Reply::tool("mcp/finish_process", json!({ "summary": "all steps are done" })),
            _ => Reply::text("so it is"),
        })
    })
}

fn steps_done(tree: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(tree.join("steps.txt")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

async fn until_done(tree: &Path, count: usize) {
    eventually("its steps", Duration::from_secs(60), async || {
        let done = steps_done(tree).len();
        if done >= count { Ok(()) } else { Err(done) }
    })
    .await;
}

/// Every step was made once and in order, and the person was told of nothing else than the work.
async fn nobody_saw(installation: &Installation, api: &Api, agent: &str, conversation: &str) -> Vec<Step> {
    let record = api.until_status(agent, conversation, "completed").await;
    assert_eq!(record["result"], "all steps are done");
    let expected: Vec<_> = (0..STEPS).map(|step| step.to_string()).collect();
    assert_eq!(steps_done(&installation.tree(agent, conversation)), expected);
    let mut events = api.follow(agent, conversation, Some(0)).await;
    events.until("its end", |event| event.name == "task_finished").await;
    let shown = |event: &&tests::api::Event| event.name == "process_state_changed";
    for event in events.seen.iter().filter(shown) {
        let process: &Value = &event.data["process"];
        assert!(process["substate"] == "Working" || process["status"] == "completed", "{process:#}");
    }
    assert!(events.seen.iter().all(|event| event.name != "notice"), "{:?}", events.seen);
    installation.steps(&record).await
}

fn parks(steps: &[Step]) -> Vec<ParkReason> {
    let parked = |fact: &Fact| match fact {
        Fact::Parked { reason } => Some(reason.clone()),
        _ => None,
    };
    steps.iter().flat_map(|step| &step.facts).filter_map(parked).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_rolls_lets_its_work_go_on_where_it_was() {
    let mut installation = Installation::start(steady()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "do it").await;
    until_done(&installation.tree(&agent, &conversation), 3).await;
    installation.stop(&executor_name(0)).await;
    let before = steps_done(&installation.tree(&agent, &conversation)).len();
    assert!(before < STEPS, "it was not waited for to the end");
    installation.start_program(&executor_name(0)).await;
    let steps = nobody_saw(&installation, &api, &agent, &conversation).await;
    assert_eq!(parks(&steps), [ParkReason::Drain]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_is_emptied_by_order_claims_nothing_and_takes_work_again() {
    let mut installation = Installation::start(steady()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "do it").await;
    until_done(&installation.tree(&agent, &conversation), 2).await;
    let drained = installation.command(&["drain", "exe_0"]).output().await.expect("resident drain");
    let said = String::from_utf8_lossy(&drained.stderr).into_owned();
    assert!(drained.status.success(), "{said}");
    assert!(said.contains("exe_0 is empty"), "{said}");
    // It was not waited for to the end.
    assert!(steps_done(&installation.tree(&agent, &conversation)).len() < STEPS);
    assert_eq!(installation.sandboxes(), 0);
    let waits = api.record(&agent, &conversation).await;
    assert_eq!(waits["process"]["state"], "waking", "{waits:#}");
    // The order stands over a restart.
    installation.stop(&executor_name(0)).await;
    installation.start_program(&executor_name(0)).await;
    // What comes meanwhile waits as well.
    let other = api.open(&agent, "do it").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(api.record(&agent, &other).await["process"]["state"], "queued");
    assert_eq!(installation.sandboxes(), 0);
    let undone = installation.command(&["drain", "exe_0", "--undo"]).output().await.expect("resident drain");
    assert!(undone.status.success(), "{}", String::from_utf8_lossy(&undone.stderr));
    for conversation in [&conversation, &other] {
        nobody_saw(&installation, &api, &agent, conversation).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_has_had_its_time_lets_others_go_first_and_goes_on() {
    let options = Options {
        script: steady(),
        slots: 1,
        settings: vec![("RESIDENT__EXECUTOR__SEGMENT_CAP".into(), "6s".into())],
        ..Options::default()
    };
    let installation = Installation::with(options).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let first = api.open(&agent, "do it").await;
    until_done(&installation.tree(&agent, &first), 1).await;
    let second = api.open(&agent, "do it").await;
    // Neither is done when the other begins again.
    let steps = nobody_saw(&installation, &api, &agent, &first).await;
    let capped = parks(&steps);
    assert!(capped.len() >= 2 && capped.iter().all(|reason| *reason == ParkReason::SegmentCap), "{capped:?}");
    nobody_saw(&installation, &api, &agent, &second).await;
    let claims: Vec<_> = installation
        .log()
        .await
        .iter()
        .filter(|step| step.facts.iter().any(|fact| matches!(fact, Fact::Claimed { .. })))
        .map(|step| step.state.conversation.to_string())
        .collect();
    assert_eq!(claims[..3], [&first, &second, &first].map(String::clone), "{claims:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_work_that_reaches_no_boundary_is_cut_off_when_the_grace_is_over_and_resumed() {
    let options = Options { harness: Some(program("scripted-harness")), ..Options::default() };
    let mut installation = Installation::with(options).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    // Its turn goes on for ever.
    let conversation = api.open(&agent, "go").await;
    api.until("work", &agent, &conversation, |record| record["process"]["state"] == "hot_working").await;
    installation.stop(&executor_name(0)).await;
    let record = api.record(&agent, &conversation).await;
    assert_eq!(
        (&record["process"]["state"], &record["process"]["substate"]),
        (&json!("waking"), &json!("Working"))
    );
    installation.start_program(&executor_name(0)).await;
    // The first it is told is that it was cut off; then it ends the turn.
    let idle =
        |record: &Value| ["hot_idle"].contains(&record["process"]["state"].as_str().unwrap_or_default());
    let record = api.until("the end of its turn", &agent, &conversation, idle).await;
    let steps = installation.steps(&record).await;
    assert_eq!(parks(&steps), [ParkReason::Drain]);
    let heard = std::fs::read_to_string(installation.tree(&agent, &conversation).join("heard.txt"));
    assert!(heard.expect("what it heard").contains("[xpander]"));
}
