//! Reads: what is there is shown as it is, also before the other roles have caught up, and only to whom it belongs.

use contract::buckets::Role;
use domain::process::ParkReason;
use reqwest::{Method, StatusCode, header};
use serde_json::{Value, json};
use tests::api::Api;
use tests::{fresh, soon};

use crate::served::{Served, is_problem, org, path, post, seq};

/// Every read of a conversation and of what is around it.
fn reads(agent: &str, conversation: &str, message: &str, process: &str) -> Vec<String> {
    vec![
        format!("/v1/agents/{agent}"),
        format!("/v1/agents/{agent}/conversations"),
        path(agent, conversation, ""),
        path(agent, conversation, "/run-state"),
        path(agent, conversation, &format!("/messages/{message}")),
        path(agent, conversation, "/stream"),
        format!("/v1/processes/{process}"),
        format!("/v1/processes/{process}/history"),
        format!("/v1/processes/{process}/explain"),
    ]
}

/// An agent with a conversation in it, as their ids: agent, conversation, message, process.
async fn opened(served: &Served, api: &Api) -> [String; 4] {
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    let message = api.say(&agent, &conversation, "more", "auto").await;
    let key = served.key(&conversation);
    let state = soon("both are routed", async || match served.state(key).await {
        Some(state) if state.undelivered.len() == 2 => Ok(state),
        other => Err(other.map(|state| state.public())),
    })
    .await;
    [agent, conversation, message, state.process.to_string()]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_belongs_to_others_does_not_exist() {
    let served = Served::start().await;
    let api = served.member().await;
    let [agent, conversation, message, process] = opened(&served, &api).await;
    let foreign = served.api(2, 20, Role::Admin).await;
    let nobody = Api::new(&served.url, &served.url, "no such key");
    for path in reads(&agent, &conversation, &message, &process) {
        is_problem(&nobody.send(Method::GET, &path, None).await, 401, "unauthorized", None);
        is_problem(&foreign.send(Method::GET, &path, None).await, 404, "not-found", None);
    }
    // Its own lists are empty and name nobody else.
    for path in ["/v1/agents", "/fleet/processes"] {
        is_problem(&nobody.send(Method::GET, path, None).await, 401, "unauthorized", None);
        assert_eq!(foreign.get(path).await, json!({ "items": [] }));
    }
    // An agent that was made private after the fact.
    let private = json!({ "access": "private" });
    let patched = api.send(Method::PATCH, &format!("/v1/agents/{agent}"), Some(&private)).await;
    assert_eq!(patched.status, StatusCode::OK);
    let (colleague, admin) = (served.api(1, 11, Role::Operator).await, served.api(1, 12, Role::Admin).await);
    for path in reads(&agent, &conversation, &message, &process) {
        is_problem(&colleague.send(Method::GET, &path, None).await, 404, "not-found", None);
        if !path.ends_with("/stream") {
            assert_eq!(admin.get(&path).await, api.get(&path).await, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_and_malformed_ids_are_not_found() {
    let served = Served::start().await;
    let api = served.member().await;
    let [agent, conversation, message, process] = opened(&served, &api).await;
    let foreign_message = api.say(&agent, &api.open(&agent, "elsewhere").await, "x", "auto").await;
    let ids = |n: usize| [&agent, &conversation, &message, &process].map(String::clone)[n].clone();
    for (n, wrong) in [
        (0, format!("agt_{}", fresh().simple())),
        (0, conversation.clone()),
        (1, format!("cnv_{}", fresh().simple())),
        (1, "cnv_1".into()),
        (1, "%ff".into()),
        (2, format!("msg_{}", fresh().simple())),
        (2, foreign_message),
        (2, "1".into()),
        (3, format!("prc_{}", fresh().simple())),
        (3, "prc_".into()),
    ] {
        let mut four = [0, 1, 2, 3].map(ids);
        four[n] = wrong;
        let right = reads(&agent, &conversation, &message, &process);
        let [agent, conversation, message, process] = &four;
        for (path, right) in reads(agent, conversation, message, process).iter().zip(right) {
            if *path != right {
                is_problem(&api.send(Method::GET, path, None).await, 404, "not-found", None);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn right_after_its_acceptance_a_message_is_executing() {
    let served = Served::without_steerer().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "Mend the build").await;
    let queued = api.say(&agent, &conversation, "and the tests", "auto").await;
    let record = api.record(&agent, &conversation).await;
    assert_eq!(
        (&record["status"], &record["input"]["text"]),
        (&json!("executing"), &json!("Mend the build"))
    );
    assert_eq!(record["process"]["state"], "queued");
    assert_eq!(record["activity"].as_array().map(Vec::len), Some(2));
    let state = api.get(&path(&agent, &conversation, "/run-state")).await;
    assert_eq!(
        (&state["is_running"], &state["is_steerable"], &state["queue_depth"]),
        (&json!(true), &json!(true), &json!(2))
    );
    assert_eq!(
        (&state["queued_messages"][1]["id"], &state["queued_messages"][1]["text"]),
        (&json!(queued), &json!("and the tests"))
    );
    assert_eq!(api.receipt(&agent, &conversation, &queued).await["receipt"], "accepted");
    // What was foreseen is what comes.
    served.steer().await;
    api.until_receipt(&agent, &conversation, &queued, "routed").await;
    let decided = api.record(&agent, &conversation).await;
    assert_eq!(decided["process"]["id"], record["process"]["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_the_run_state_and_the_receipts_follow_the_process() {
    let served = Served::start().await;
    let api = served.member().await;
    let [agent, conversation, message, process] = opened(&served, &api).await;
    let key = served.key(&conversation);
    let mut hand = served.claim(&conversation).await;
    let waiting = served.state(key).await.expect("a state").undelivered;
    hand.take(&waiting).await;
    let state = api.get(&path(&agent, &conversation, "/run-state")).await;
    assert_eq!((&state["process_state"], &state["substate"]), (&json!("hot_working"), &json!("Working")));
    assert_eq!((&state["active_child_id"], &state["steer_target"]), (&json!(process), &json!("child")));
    assert_eq!((&state["queue_depth"], &state["conversation_state"]), (&json!(0), &json!("regular")));
    let receipt = api.until_receipt(&agent, &conversation, &message, "consumed").await;
    assert_eq!(receipt["process_id"], json!(process));
    for step in ["accepted", "routed", "in_harness", "consumed"] {
        assert!(receipt["at"][step].is_string(), "{receipt:#}");
    }
    hand.answer("Hello.").await;
    let record =
        api.until("idle", &agent, &conversation, |record| record["process"]["state"] == "hot_idle").await;
    assert_eq!((&record["result"], &record["status"]), (&json!("Hello."), &json!("executing")));
    let state = api.get(&path(&agent, &conversation, "/run-state")).await;
    assert_eq!((&state["is_running"], &state["is_steerable"]), (&json!(false), &json!(true)));

    hand.park(ParkReason::Absent).await;
    let public = api.get(&format!("/v1/processes/{process}")).await;
    assert_eq!((&public["substate"], &public["state"]), (&json!("Waiting"), &json!("parked")));

    // Stopped while it is parked; the stop is an input like any other.
    let stop = post(&api, &path(&agent, &conversation, "/stop"), json!({ "scope": "process" })).await.body;
    let stopped = stop["message_id"].as_str().expect("an id");
    let receipt = api.until_receipt(&agent, &conversation, stopped, "consumed").await;
    assert!(seq(key, &receipt["message_id"]) > waiting[1]);
    let record = api.until_status(&agent, &conversation, "stopped").await;
    assert!(record["finished_at"].is_string());
    assert_eq!(
        record["activity"]
            .as_array()
            .expect("lines")
            .iter()
            .filter(|line| line["type"] == "user_message")
            .count(),
        2
    );
    let state = api.get(&path(&agent, &conversation, "/run-state")).await;
    assert_eq!((&state["is_steerable"], &state["execution_status"]), (&json!(false), &json!("stopped")));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_page_by_cursor_and_name_what_is_wrong_with_one() {
    let served = Served::start().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let mut made = Vec::new();
    for n in 0..5 {
        made.insert(0, api.open(&agent, &format!("number {n}")).await);
    }
    let list = format!("/v1/agents/{agent}/conversations");
    soon("all are listed", async || {
        let list = api.get(&list).await;
        if list["items"].as_array().map(Vec::len) == Some(5) { Ok(()) } else { Err(list) }
    })
    .await;
    let mut seen = Vec::new();
    let mut next = format!("{list}?limit=2&unknown=ignored");
    loop {
        let page = api.get(&next).await;
        seen.extend(
            page["items"]
                .as_array()
                .expect("items")
                .iter()
                .map(|item| item["id"].as_str().expect("an id").to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(cursor) => next = format!("{list}?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    // Two of one millisecond may stand in either order.
    assert_eq!(seen.len(), 5);
    seen.sort();
    made.sort();
    assert_eq!(seen, made);
    for (query, status, page, field) in [
        ("limit=0", 422, "invalid", "limit"),
        ("limit=many", 422, "invalid", "limit"),
        ("cursor=x", 422, "invalid", "cursor"),
    ] {
        for list in [list.as_str(), "/v1/agents"] {
            is_problem(
                &api.send(Method::GET, &format!("{list}?{query}"), None).await,
                status,
                page,
                Some(field),
            );
        }
    }
    let misspelt = api.send(Method::GET, "/v1/agents?limitt=1", None).await;
    is_problem(&misspelt, 400, "malformed", Some("limitt"));
    let before = api.send(Method::GET, &path(&agent, &made[0], "?before=x"), None).await;
    assert_eq!(before.status, StatusCode::BAD_REQUEST, "{before:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_is_for_operators_and_filters_what_it_lists() {
    let served = Served::start().await;
    let api = served.member().await;
    let [_, conversation, _, process] = opened(&served, &api).await;
    is_problem(&api.send(Method::GET, "/fleet/processes", None).await, 403, "forbidden", None);
    let operator = served.api(1, 11, Role::Operator).await;
    let row = soon("a row", async || {
        let list = operator.get("/fleet/processes?state=queued").await;
        list["items"].as_array().and_then(|rows| rows.first()).cloned().ok_or(list)
    })
    .await;
    for field in [
        "process_id",
        "conversation_id",
        "agent_id",
        "state",
        "substate",
        "park_reason",
        "wake",
        "volume",
        "executor",
        "harness",
        "harness_version",
        "segment",
        "attempt",
        "created_at",
        "last_update_at",
        "last_update",
        "cost",
    ] {
        assert!(row.get(field).is_some(), "{field} in {row}");
    }
    assert_eq!((&row["process_id"], &row["conversation_id"]), (&json!(process), &json!(conversation)));
    served.claim(&conversation).await;
    soon("the row says who runs it", async || {
        let list = operator.get("/fleet/processes?executor=exe_0").await;
        if list["items"][0]["process_id"] == process { Ok(()) } else { Err(list) }
    })
    .await;
    assert_eq!(operator.get("/fleet/processes?state=queued").await["items"], json!([]));
    for (query, status, page, field) in [
        ("state=asleep", 422, "invalid", "state"),
        ("executor=0", 422, "invalid", "executor"),
        ("stat=queued", 400, "malformed", "stat"),
    ] {
        is_problem(
            &operator.send(Method::GET, &format!("/fleet/processes?{query}"), None).await,
            status,
            page,
            Some(field),
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_is_a_get_without_a_body_and_every_answer_is_private() {
    let served = Served::start().await;
    let api = served.member().await;
    let [agent, conversation, message, process] = opened(&served, &api).await;
    for path in reads(&agent, &conversation, &message, &process) {
        let answer = api.request(Method::HEAD, &path).send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        assert_eq!(answer.headers()[header::CACHE_CONTROL], "no-store");
        assert!(answer.bytes().await.expect("no body").is_empty());
    }
    let record = api.get(&path(&agent, &conversation, "")).await;
    assert_eq!(record["organization_id"], json!(org(1)));
    assert_eq!(record["execution_kind"], Value::from("resident"));
}
