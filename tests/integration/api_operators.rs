//! What operators see of a process and do with it.

use contract::buckets::Role;
use domain::process::ParkReason;
use reqwest::Method;
use serde_json::json;
use tests::soon;

use crate::served::{Served, is_problem, post, text};

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_how_a_process_came_to_stand_and_retries_or_ends_it() {
    let served = Served::start().await;
    let (member, operator) = (served.member().await, served.api(1, 11, Role::Operator).await);
    let agent = member.agent().await;
    let record = post(&member, &format!("/v1/agents/{agent}/invoke/async"), text("begin")).await.body;
    let conversation = record["id"].as_str().expect("an id").to_owned();
    let mut hand = served.claim(&conversation).await;
    hand.park(ParkReason::NeedsAttention { what: "the disk is full; make room".into() }).await;
    let process = format!("/v1/processes/{}", hand.process);

    let told = member.get(&format!("{process}/explain")).await;
    let sentence = told["sentence"].as_str().unwrap_or_default();
    for part in ["NeedsAttention", "the disk is full; make room", "since", "its last sign was at"] {
        assert!(sentence.contains(part), "{sentence}");
    }
    let history = member.get(&format!("{process}/history")).await;
    let causes: Vec<_> =
        history["items"].as_array().expect("steps").iter().map(|step| step["cause"].clone()).collect();
    assert_eq!(causes, ["message", "report", "report", "report"]);
    assert_eq!(history["items"][3]["facts"][0]["fact"], "parked");
    // The fleet's list follows within a moment.
    let row = soon("the row", async || {
        let listed = operator.get("/fleet/processes?park_reason=needs_attention").await;
        if listed["items"][0]["process_id"] == json!(hand.process) {
            Ok(listed["items"][0].clone())
        } else {
            Err(listed)
        }
    })
    .await;
    assert!(row["since"].is_string() && row["wake"].is_string(), "{row}");

    let (retry, fail) = (format!("{process}/retry"), format!("{process}/fail"));
    let why = json!({ "why": "nobody needs it" });
    is_problem(&member.send(Method::POST, &retry, Some(&json!({}))).await, 403, "forbidden", None);
    is_problem(&member.send(Method::POST, &fail, Some(&why)).await, 403, "forbidden", None);
    is_problem(&post(&operator, &fail, json!({ "why": " " })).await, 422, "invalid", Some("why"));
    let retried = post(&operator, &retry, json!({})).await;
    assert_eq!((retried.status.as_u16(), &retried.body["state"]), (202, &json!("waking")), "{retried:?}");
    let failed = post(&operator, &fail, why.clone()).await;
    assert_eq!((failed.status.as_u16(), &failed.body["status"]), (202, &json!("failed")), "{failed:?}");
    let exit = &failed.body["exit"];
    assert_eq!((&exit["reason"], &exit["summary"]), (&json!("operator"), &json!("nobody needs it")));
    for path in [&retry, &fail] {
        let body = if *path == fail { why.clone() } else { json!({}) };
        is_problem(&post(&operator, path, body).await, 409, "already-ended", None);
    }
}
