//! A message to a process that works: in order, once, and its sender sees how far it has come.

use contract::buckets::Role;
use scripted_model::{Reply, RequestView, Script};
use serde_json::{Value, json};
use tests::{Installation, model};

/// The times of a receipt, in the order they must have.
fn times(receipt: &Value) -> Vec<String> {
    ["accepted", "routed", "in_harness", "consumed"]
        .map(|step| {
            receipt["at"][step].as_str().unwrap_or_else(|| panic!("{step} in {receipt:#}")).to_owned()
        })
        .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn steers_during_a_tool_come_in_order_and_once() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    // The command ends when the test makes a file in the tree.
    let conversation = api.open(&agent, "run until [ -e go ]; do sleep 0.05; done; echo gone").await;
    let mut events = api.follow(&agent, &conversation, None).await;
    events.until("the tool", |event| event.name == "tool_call_request").await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(api.say(&agent, &conversation, &format!("say steer {n}"), "auto").await);
    }
    // What is behind the first waits for its echo; the first is in the harness.
    api.until_receipt(&agent, &conversation, &ids[0], "in_harness").await;
    api.until_receipt(&agent, &conversation, &ids[4], "routed").await;
    std::fs::write(tree(&installation, &agent, &conversation).join("go"), "").expect("a file");
    for id in &ids {
        let receipt = api.until_receipt(&agent, &conversation, id, "consumed").await;
        assert!(times(&receipt).is_sorted(), "{receipt:#}");
        assert!(receipt["process_id"].is_string());
    }
    let record =
        api.until("idle", &agent, &conversation, |record| record["process"]["substate"] == "Idle").await;
    assert_eq!(record["processes"].as_array().map(Vec::len), Some(1));
    let heard = heard(&installation);
    assert_eq!(heard, ["say steer 0", "say steer 1", "say steer 2", "say steer 3", "say steer 4"]);

    // The stream told every receipt, in its order.
    events
        .until("the last steer applied", |event| {
            event.name == "gateway_steer_applied" && event.data["message_id"] == ids[4]
        })
        .await;
    for id in &ids {
        assert_eq!(steps_of(&events.seen, id), ["accepted", "routed", "in_harness", "consumed"]);
    }
    let applied = events.seen.iter().filter(|event| event.name == "gateway_steer_applied").count();
    assert_eq!(applied, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steer_during_a_model_stream_starts_the_next_turn() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "slow one two three").await;
    let mut events = api.follow(&agent, &conversation, None).await;
    events.until("the first words", |event| event.name == "chunk").await;
    let first = api.say(&agent, &conversation, "say later", "auto").await;
    let second = api.say(&agent, &conversation, "say last", "auto").await;
    // Claude Code echoes a message when the model has answered it, so these wait behind the one being answered.
    api.until_receipt(&agent, &conversation, &first, "routed").await;
    installation.model.release("slow");
    api.until_receipt(&agent, &conversation, &second, "consumed").await;
    api.until("the answer", &agent, &conversation, |record| record["result"] == "last").await;
    assert_eq!(heard(&installation), ["say later", "say last"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_message_waits_for_the_turn_and_a_finish_is_held_for_it() {
    let installation = Installation::start(held_finish()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    let mut events = api.follow(&agent, &conversation, None).await;
    events.until("the tool", |event| event.name == "tool_call_request").await;
    let queued = api.say(&agent, &conversation, "and now finish", "queue").await;
    api.until_receipt(&agent, &conversation, &queued, "routed").await;
    std::fs::write(tree(&installation, &agent, &conversation).join("go"), "").expect("a file");
    let done = api.until_status(&agent, &conversation, "completed").await;
    assert_eq!(done["result"], "with everything read");
    api.until_receipt(&agent, &conversation, &queued, "consumed").await;
    let held = installation.model.requests().iter().any(|request| {
        request
            .last_tool_result()
            .is_some_and(|text| text.starts_with("held:") && text.contains("a message arrived"))
    });
    assert!(held, "the first finish was held for the message");
}

/// Waits for a file, tries to finish too early, and finishes when it is told to.
fn held_finish() -> Script {
    Script::from_responder(|request: &RequestView| {
        let result = request.last_tool_result().unwrap_or_default();
        let told = request.last_user().unwrap_or_default().contains("now finish");
        Some(match result {
            _ if told && !result.contains("Completed") => {
                Reply::tool("mcp/finish_process", json!({ "summary": "with everything read" }))
            }
            _ if told => Reply::text("done"),
            "" => Reply::tool(
                "shell",
                json!({ "command": "until [ -e go ]; do sleep 0.05; done", "description": "wait" }),
            ),
            _ if result.starts_with("held") => Reply::text("I wait"),
            _ => Reply::tool("mcp/finish_process", json!({ "summary": "too early" })),
        })
    })
}

/// What the model heard after the first message, in order.
fn heard(installation: &Installation) -> Vec<String> {
    let requests = installation.model.requests();
    let longest = requests.iter().max_by_key(|request| request.user_texts().len()).expect("a request");
    let texts = longest.user_texts();
    texts
        .iter()
        .skip(1)
        .flat_map(|text| text.lines())
        .filter(|line| !line.trim().is_empty())
        .map(str::to_owned)
        .collect()
}

fn steps_of(seen: &[tests::api::Event], id: &str) -> Vec<String> {
    let of = seen.iter().filter(|event| event.name == "message_receipt" && event.data["message_id"] == id);
    of.filter_map(|event| event.data["receipt"].as_str().map(str::to_owned)).collect()
}

/// The conversation's working tree on the volume.
pub(crate) fn tree(installation: &Installation, agent: &str, conversation: &str) -> std::path::PathBuf {
    installation.volume(0).join("agents").join(agent).join("conversations").join(conversation).join("tree")
}
