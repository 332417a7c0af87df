//! Waiting for the answer: an invoke returns with the turn that has its message, or when nothing more comes by itself.

use domain::process::{ExitReason, Outcome, ParkReason};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::soon;

use crate::served::{INVOKE_TIMEOUT, Served, exit, post, text};

#[tokio::test(flavor = "multi_thread")]
async fn invoke_returns_with_the_end_of_the_turn_that_has_the_message() {
    let served = Served::start().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    let key = served.key(&conversation);
    let mut hand = served.claim(&conversation).await;
    hand.take(&served.state(key).await.expect("a state").undelivered).await;
    let waiting = tokio::spawn({
        let (api, path) = (api.clone(), format!("/v1/agents/{agent}/conversations/invoke"));
        let body = json!({ "input": { "text": "and this" }, "id": conversation, "mode": "queue" });
        async move { post(&api, &path, body).await }
    });
    let routed = soon("it is routed", async || {
        served.state(key).await.expect("a state").undelivered.first().copied().ok_or("nothing waits")
    })
    .await;
    // This turn does not have it, the next one does.
    hand.answer("about the first").await;
    hand.take(&[routed]).await;
    hand.answer("about the second").await;
    let answer = waiting.await.expect("it ends");
    assert_eq!((answer.status, &answer.body["result"]), (StatusCode::OK, &json!("about the second")));
    assert_eq!((&answer.body["id"], &answer.body["status"]), (&json!(conversation), &json!("executing")));
}

#[tokio::test(flavor = "multi_thread")]
async fn invoke_returns_with_the_end_of_the_process_and_with_a_park_that_lasts() {
    let served = Served::start().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let path = format!("/v1/agents/{agent}/invoke");
    let invoke = |body: Value| {
        let (api, path) = (api.clone(), path.clone());
        tokio::spawn(async move { post(&api, &path, body).await })
    };
    let opened = async || {
        soon("a conversation", async || {
            let list = api.get(&format!("/v1/agents/{agent}/conversations")).await;
            let items = list["items"].as_array().cloned().unwrap_or_default();
            items.first().and_then(|item| item["id"].as_str()).map(str::to_owned).ok_or(list)
        })
        .await
    };
    let waiting = invoke(text("begin"));
    let conversation = opened().await;
    let key = served.key(&conversation);
    let mut hand = served.claim(&conversation).await;
    hand.take(&served.state(key).await.expect("a state").undelivered).await;
    hand.finish("all of it").await;
    let answer = waiting.await.expect("it ends");
    assert_eq!((&answer.body["status"], &answer.body["result"]), (&json!("completed"), &json!("all of it")));
    let exit = exit(&answer.body).expect("an exit");
    assert_eq!((exit.outcome, exit.reason), (Outcome::Completed, ExitReason::FinishProcess));

    let waiting = invoke(json!({ "input": { "text": "next" }, "id": conversation }));
    let mut hand = served.claim(&conversation).await;
    hand.park(ParkReason::NeedsAttention { what: "install bubblewrap".into() }).await;
    let answer = waiting.await.expect("it ends");
    assert_eq!((answer.status, &answer.body["status"]), (StatusCode::OK, &json!("executing")));
    assert_eq!(answer.body["process"]["substate"], "Needs attention");
    assert_eq!(answer.body["processes"].as_array().map(Vec::len), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn invoke_returns_the_conversation_as_it_stands_when_the_client_has_waited_long_enough() {
    let served = Served::start().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let path = format!("/v1/agents/{agent}/invoke");
    let answer =
        tokio::time::timeout(4 * INVOKE_TIMEOUT, post(&api, &path, text("begin"))).await.expect("it ends");
    assert_eq!((answer.status, &answer.body["status"]), (StatusCode::OK, &json!("executing")));
    assert_eq!((&answer.body["result"], &answer.body["input"]["text"]), (&Value::Null, &json!("begin")));
    // A drain does not let anybody wait in vain either.
    let waiting = tokio::spawn({
        let (api, id) = (api.clone(), answer.body["id"].clone());
        async move { post(&api, &path, json!({ "input": { "text": "more" }, "id": id })).await }
    });
    soon("it is accepted", async || if served.inputs().await == 2 { Ok(()) } else { Err("one") }).await;
    served.shutdown.begin();
    let answer = tokio::time::timeout(INVOKE_TIMEOUT, waiting)
        .await
        .expect("it ends with the drain")
        .expect("an answer");
    assert_eq!(answer.status, StatusCode::OK);
}
