//! Processes that nobody looks at, and those that nobody needs any more.

use std::time::Duration;

use contract::buckets::Role;
use scripted_model::{Reply, RequestView, Script};
use serde_json::{Value, json};
use tests::wait::eventually;
use tests::{Installation, Options, api::Api, model};

/// A viewer who has left counts as gone after 75 s.
const GONE_WITHIN: Duration = Duration::from_secs(100);

async fn idle(api: &Api, agent: &str, conversation: &str) -> Value {
    api.until("the end of a turn", agent, conversation, |record| record["process"]["substate"] == "Idle")
        .await
}

fn happened<'a>(record: &'a Value, what: &str) -> Vec<&'a Value> {
    record["activity"].as_array().into_iter().flatten().filter(|line| line["type"] == what).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_stays_hot_for_a_viewer_and_parks_without_one() {
    let options =
        Options { script: model::obedient(), park_after: Duration::from_secs(10), ..Options::default() };
    let installation = Installation::with(options).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let unseen = api.open(&agent, "say nobody looks").await;
    let left = api.open(&agent, "say somebody looks and leaves").await;
    let watched = api.open(&agent, "say somebody looks").await;
    for conversation in [&left, &watched] {
        idle(&api, &agent, conversation).await;
    }
    let _open = api.follow(&agent, &watched, None).await;
    drop(api.follow(&agent, &left, None).await);
    let parked = api.until("a park", &agent, &unseen, |record| record["process"]["state"] == "parked").await;
    assert_eq!(parked["process"]["park_reason"]["park_reason"], "absent");
    // Only beats that go on make the difference between the two.
    let record = eventually("a park of the one that was left", GONE_WITHIN, async || {
        let record = api.record(&agent, &left).await;
        if record["process"]["state"] == "parked" { Ok(record) } else { Err(record["process"].clone()) }
    })
    .await;
    assert_eq!(record["process"]["park_reason"]["park_reason"], "absent");
    let record = api.record(&agent, &watched).await;
    assert_eq!(record["process"]["state"], "hot_idle");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_nobody_needs_asks_once_and_then_finishes_itself() {
    // It asks a question and ends its turn; woken for the last time, it sums up.
    let script = Script::from_responder(|request: &RequestView| {
        let said = request.last_user().unwrap_or_default();
        let reply = match (model::after_tool(request), said.contains("call finish_process now")) {
            (true, _) => Reply::text("so be it"),
            (false, true) => Reply::tool("mcp/finish_process", json!({ "summary": "it was half done" })),
            (false, false) => Reply::tool(
                "mcp/tell_user",
                json!({ "text": "I need to know", "questions": [{ "text": "Which colour?" }] }),
            ),
        };
        Some(reply)
    });
    let seconds = |key: &str, value: &str| (format!("RESIDENT__SCHEDULER__{key}"), value.to_owned());
    let options = Options {
        script,
        park_after: Duration::from_secs(1),
        settings: vec![seconds("NUDGE_AFTER", "2s"), seconds("SELF_FINISH_AFTER", "8s")],
        ..Options::default()
    };
    let installation = Installation::with(options).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    let record = api.until_status(&agent, &conversation, "completed").await;
    assert_eq!(record["result"], "it was half done");
    // The thread follows the log by some milliseconds.
    let record = api
        .until("an expired card", &agent, &conversation, |record| {
            happened(record, "ask_user_questions").iter().any(|card| card["status"] == "expired")
        })
        .await;
    assert_eq!(happened(&record, "notice").len(), 1, "{record:#}");
    // The stream tells it as well.
    let mut events = api.follow(&agent, &conversation, Some(0)).await;
    let notice = events.until("a notice", |event| event.name == "notice").await;
    assert!(notice.data["text"].as_str().is_some_and(|text| text.contains("still needed")), "{notice:?}");

    let process = record["process"]["id"].as_str().expect("an id");
    let history = api.get(&format!("/v1/processes/{process}/history")).await;
    let causes: Vec<_> = history["items"]
        .as_array()
        .expect("steps")
        .iter()
        .filter_map(|step| step["cause"].as_str().map(str::to_owned))
        .filter(|cause| ["nudge", "self_finish"].contains(&cause.as_str()))
        .collect();
    assert_eq!(causes, ["nudge", "self_finish"]);
}
