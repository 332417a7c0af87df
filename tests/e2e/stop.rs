//! Stopping: a turn ends and the process goes on; a process ends; and only one harness ever works in a tree.

use std::time::Duration;

use contract::buckets::Role;
use reqwest::Method;
use serde_json::json;
use tests::wait::eventually;
use tests::{Installation, model};

use crate::steer::tree;

async fn stop(api: &tests::api::Api, agent: &str, conversation: &str, scope: &str) -> u16 {
    let path = format!("/v1/agents/{agent}/conversations/{conversation}/stop");
    api.send(Method::POST, &path, Some(&json!({ "scope": scope }))).await.status.as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_a_turn_keeps_the_process_and_runs_what_was_queued_next() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "run touch began; sleep 300; touch never").await;
    let began = tree(&installation, &agent, &conversation).join("began");
    eventually("the command", Duration::from_secs(60), async || {
        began.exists().then_some(()).ok_or("not yet")
    })
    .await;
    // Three wait: the first in the harness, the others behind it.
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(api.say(&agent, &conversation, &format!("say after {n}"), "auto").await);
    }
    api.until_receipt(&agent, &conversation, &ids[0], "in_harness").await;
    assert_eq!(stop(&api, &agent, &conversation, "turn").await, 202);
    for id in &ids {
        api.until_receipt(&agent, &conversation, id, "consumed").await;
    }
    let record =
        api.until("the next turn", &agent, &conversation, |record| record["result"] == "after 2").await;
    assert_eq!(record["status"], "executing");
    assert_eq!(record["processes"].as_array().map(Vec::len), Some(1));
    let requests = installation.model.requests();
    let last = requests.last().expect("a request");
    for n in 0..3 {
        let text = format!("say after {n}");
        let times =
            last.user_texts().iter().flat_map(|said| said.lines()).filter(|line| *line == text).count();
        assert_eq!(times, 1, "{text} is in the conversation once");
    }
    assert!(!tree(&installation, &agent, &conversation).join("never").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupting_message_ends_the_turn_and_is_read_next() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "run touch began; sleep 300").await;
    let began = tree(&installation, &agent, &conversation).join("began");
    eventually("the command", Duration::from_secs(60), async || {
        began.exists().then_some(()).ok_or("not yet")
    })
    .await;
    api.say(&agent, &conversation, "say instead", "interrupt").await;
    let record =
        api.until("the other thing", &agent, &conversation, |record| record["result"] == "instead").await;
    assert_eq!(record["status"], "executing");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_a_process_frees_its_slot_and_returns_what_was_not_read() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "run touch began; sleep 300").await;
    let began = tree(&installation, &agent, &conversation).join("began");
    eventually("the command", Duration::from_secs(60), async || {
        began.exists().then_some(()).ok_or("not yet")
    })
    .await;
    let unread = api.say(&agent, &conversation, "say too late", "queue").await;
    assert_eq!(stop(&api, &agent, &conversation, "process").await, 202);
    let record = api.until_status(&agent, &conversation, "stopped").await;
    assert_eq!(record["process"]["exit"]["reason"], "user_stop");
    let returned = api.until_receipt(&agent, &conversation, &unread, "returned").await;
    assert!(returned["reason"].is_string(), "{returned:#}");
    assert_eq!(stop(&api, &agent, &conversation, "process").await, 409);
    assert_eq!(stop(&api, &agent, &conversation, "turn").await, 409);
    // The sandbox goes with the process.
    eventually("no sandbox", Duration::from_secs(15), async || match installation.sandboxes() {
        0 => Ok(()),
        n => Err(n),
    })
    .await;

    // Archiving is a stop too, and a message afterwards starts the next process.
    api.say(&agent, &conversation, "run touch again; sleep 300", "auto").await;
    let again = tree(&installation, &agent, &conversation).join("again");
    eventually("the command", Duration::from_secs(60), async || {
        again.exists().then_some(()).ok_or("not yet")
    })
    .await;
    api.post(&format!("/v1/agents/{agent}/conversations/{conversation}/archive"), json!({})).await;
    let archived = api.until_status(&agent, &conversation, "stopped").await;
    assert_eq!(archived["process"]["exit"]["reason"], "archived");
    api.say(&agent, &conversation, "finish after all", "auto").await;
    let done = api.until_status(&agent, &conversation, "completed").await;
    assert_eq!(done["processes"].as_array().map(Vec::len), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_a_stream_stops_nothing() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let mut events = api.stream(&agent, "slow one two three").await;
    events.until("the first words", |event| event.name == "chunk").await;
    let created = events.seen.iter().find(|event| event.name == "task_created").expect("a task").data.clone();
    let conversation = created["id"].as_str().expect("an id").to_owned();
    drop(events);
    installation.model.release("slow");
    api.until("the whole text", &agent, &conversation, |record| record["result"] == "one two three").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn between_two_processes_of_a_chain_only_one_harness_works_in_the_tree() {
    let installation = Installation::start(slow_goodbye()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    api.until_status(&agent, &conversation, "completed").await;
    // The old process still says goodbye; the new one waits for the directory.
    let next = api.say(&agent, &conversation, "next", "auto").await;
    let mut most = 0;
    let consumed = async {
        api.until_receipt(&agent, &conversation, &next, "consumed").await;
    };
    tokio::pin!(consumed);
    let mut overlapped = false;
    loop {
        tokio::select! {
            () = &mut consumed => break,
            () = tokio::time::sleep(Duration::from_millis(5)) => {
                most = most.max(installation.sandboxes());
                let record = installation.model.requests();
                overlapped |= record.iter().any(|request| request.contains("goodbye is near"));
                if overlapped {
                    installation.model.release("goodbye");
                }
            }
        }
    }
    assert!(overlapped, "the old turn was still going on when the message came");
    assert_eq!(most, 1, "never two sandboxes of one conversation");
    let record = api.record(&agent, &conversation).await;
    assert_eq!(record["processes"].as_array().map(Vec::len), Some(2));
}

/// Finishes, and then takes its time to end the turn.
fn slow_goodbye() -> scripted_model::Script {
    use scripted_model::{Reply, RequestView, Script};
    Script::from_responder(|request: &RequestView| {
        let said = request.last_user().unwrap_or_default();
        let result = request.last_tool_result().unwrap_or_default();
        Some(match said {
            "begin" if result.is_empty() => {
                Reply::tool("mcp/finish_process", json!({ "summary": "goodbye is near" }))
            }
            "begin" => Reply::text("goodbye").held("goodbye"),
            _ => Reply::text("heard"),
        })
    })
}
