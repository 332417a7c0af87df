//! Writes: what is accepted is in the record once, and what becomes of it is answered.

use bus::Port;
use contract::buckets::Role;
use contract::messages::audit::{AuditEntry, Audited};
use contract::subjects::{AuditOf, Subject};
use contract::topology::AUDIT;
use domain::ids::RecordSeq;
use domain::policy::HELD_MAX;
use futures_util::future::join_all;
use reqwest::{Method, StatusCode, header};
use serde_json::{Value, json};
use tests::api::Api;
use tests::soon;

use crate::served::{Served, is_problem, org, path, post, seq, text, user};

// === agents ===

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_changed_by_who_made_it_and_by_admins() {
    let served = Served::start().await;
    let maker = served.member().await;
    let (other, admin) = (served.api(1, 11, Role::Operator).await, served.api(1, 12, Role::Admin).await);
    let body = json!({ "name": "Builder", "instructions": "Build.", "harness": "claude-code", "permission_mode": "full" });
    let created = maker.request(Method::POST, "/v1/agents").json(&body).send().await.expect("an answer");
    assert_eq!(created.status(), StatusCode::CREATED);
    let location = created.headers()[header::LOCATION].to_str().expect("text").to_owned();
    let agent: Value = created.json().await.expect("json");
    assert_eq!(maker.get(&location).await, agent);
    assert_eq!((&agent["created_by"], &agent["organization_id"]), (&json!(user(10)), &json!(org(1))));

    let patch = |api: &Api, body: Value| {
        let request = api.request(Method::PATCH, &location).json(&body);
        async move {
            let answer = request.send().await.expect("an answer");
            let status = answer.status();
            tests::api::Answer { status, body: answer.json().await.expect("json") }
        }
    };
    is_problem(&patch(&other, json!({ "name": "Mine" })).await, 403, "forbidden", None);
    assert_eq!(patch(&maker, json!({ "model": "big", "description": "d" })).await.status, StatusCode::OK);
    let changed = patch(&admin, json!({ "access": "private" })).await.body;
    assert_eq!((&changed["model"], &changed["name"]), (&json!("big"), &json!("Builder")));

    // From now on it does not exist for others.
    is_problem(&other.send(Method::GET, &location, None).await, 404, "not-found", None);
    is_problem(&patch(&other, json!({ "name": "Mine" })).await, 404, "not-found", None);
    is_problem(&post(&other, &format!("{location}/invoke/async"), text("x")).await, 404, "not-found", None);
    assert_eq!(other.get("/v1/agents").await["items"], json!([]));

    is_problem(&other.send(Method::DELETE, &location, None).await, 404, "not-found", None);
    assert_eq!(maker.send(Method::DELETE, &location, None).await.status, StatusCode::NO_CONTENT);
    is_problem(&maker.send(Method::DELETE, &location, None).await, 404, "not-found", None);
    is_problem(&post(&maker, &format!("{location}/invoke"), text("x")).await, 404, "not-found", None);
    assert_eq!(served.inputs().await, 0);

    let audit = Subject::Audit(org(1), AuditOf::Agent).to_string();
    let (mut lines, mut from) = (Vec::new(), 1);
    while let Some(stored) = served.operator.next(AUDIT, &audit, from).await.expect("the audit") {
        from = stored.sequence + 1;
        let line: AuditEntry = stored.decode().expect("a line");
        lines.push((line.by.expect("who"), line.what));
    }
    let id = agent["id"].as_str().and_then(|id| id.parse().ok()).expect("an id");
    assert_eq!(
        lines,
        [
            (user(10), Audited::AgentCreated { agent: id }),
            (user(10), Audited::AgentChanged { agent: id }),
            (user(12), Audited::AgentChanged { agent: id }),
            (user(10), Audited::AgentDeleted { agent: id }),
        ]
    );
}

// === once ===

#[tokio::test(flavor = "multi_thread")]
async fn fifty_copies_of_one_first_message_with_one_key_make_one_conversation() {
    for steered in [true, false] {
        let served = if steered { Served::start().await } else { Served::without_steerer().await };
        let api = served.member().await;
        let agent = api.agent().await;
        let path = format!("/v1/agents/{agent}/invoke/async");
        let body = json!({ "input": { "text": "begin" }, "idempotency_key": "k/1 ü" });
        let answers = join_all((0..50).map(|_| post(&api, &path, body.clone()))).await;
        let first = &answers[0].body["id"];
        for answer in &answers {
            assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
            assert_eq!(&answer.body["id"], first);
            assert_eq!(answer.body["status"], "executing");
        }
        assert_eq!(served.inputs().await, 1);
        // Later, with other content, in another conversation and for another agent.
        let mut other = body.clone();
        other["input"]["text"] = "something else".into();
        is_problem(&post(&api, &path, other).await, 422, "idempotency-conflict", Some("idempotency_key"));
        let mut other = body.clone();
        other["mode"] = "queue".into();
        is_problem(&post(&api, &path, other).await, 422, "idempotency-conflict", Some("idempotency_key"));
        let another = api.agent().await;
        let elsewhere = post(&api, &format!("/v1/agents/{another}/invoke/async"), body).await;
        assert_ne!(&elsewhere.body["id"], first);
        assert_eq!(served.inputs().await, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_message_is_the_same_message() {
    let served = Served::start().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    let messages = path(&agent, &conversation, "/messages");
    let said = json!({ "text": "more", "idempotency_key": "2" });
    let first = post(&api, &messages, said.clone()).await;
    let again = post(&api, &messages, said.clone()).await;
    assert_eq!((first.status, &first.body["message_id"]), (again.status, &again.body["message_id"]));
    // Once the steerer has remembered it, the broker's window no longer counts.
    api.until_receipt(&agent, &conversation, first.body["message_id"].as_str().expect("an id"), "routed")
        .await;
    let later = post(&api, &messages, said).await;
    assert_eq!((later.status, &later.body["message_id"]), (first.status, &first.body["message_id"]));
    let other =
        post(&api, &messages, json!({ "text": "more", "files": ["a"], "idempotency_key": "2" })).await;
    is_problem(&other, 422, "idempotency-conflict", Some("idempotency_key"));
    assert_eq!(served.inputs().await, 2);
}

// === what a message comes to ===

#[tokio::test(flavor = "multi_thread")]
async fn the_action_says_what_a_message_came_to() {
    let served = Served::start().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    let key = served.key(&conversation);
    let messages = path(&agent, &conversation, "/messages");
    let say = async |mode: &str| post(&api, &messages, json!({ "text": mode, "mode": mode })).await.body;
    let mut hand = served.claim(&conversation).await;
    assert_eq!(say("queue").await["action"], "steered");
    let first = served.state(key).await.expect("a state").undelivered;
    hand.take(&first).await;
    for (mode, action) in
        [("auto", "steered"), ("steer", "steered"), ("queue", "queued"), ("interrupt", "interrupted")]
    {
        let accepted = say(mode).await;
        assert_eq!(
            (&accepted["action"], &accepted["steer_target"]),
            (&json!(action), &json!("child")),
            "{accepted}"
        );
        soon("it is routed", async || {
            let state = served.state(key).await.expect("a state");
            if state.handled >= seq(key, &accepted["message_id"]) { Ok(()) } else { Err(state.handled) }
        })
        .await;
    }
    let stopped = post(&api, &path(&agent, &conversation, "/stop"), json!({ "scope": "process" })).await;
    assert_eq!(stopped.body["process"]["status"], "stopped");
    let accepted = say("auto").await;
    assert_eq!((&accepted["action"], &accepted["queue_depth"]), (&json!("started"), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_input_is_answered_and_never_blocks_what_comes_after_it() {
    let served = Served::start().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    let (messages, stop) = (path(&agent, &conversation, "/messages"), path(&agent, &conversation, "/stop"));
    assert_eq!(
        post(&api, &stop, json!({ "scope": "process", "clear_queue": true })).await.status,
        StatusCode::ACCEPTED
    );
    is_problem(&post(&api, &stop, json!({ "scope": "process" })).await, 409, "already-ended", None);
    is_problem(&post(&api, &stop, json!({})).await, 409, "already-ended", None);
    let steer = json!({ "text": "x", "mode": "steer", "idempotency_key": "s" });
    is_problem(&post(&api, &messages, steer.clone()).await, 409, "nothing-to-steer", None);
    let invoked = json!({ "input": { "text": "x" }, "mode": "steer", "id": conversation });
    for route in ["invoke", "invoke/async", "invoke/stream", "conversations/invoke"] {
        let answer = post(&api, &format!("/v1/agents/{agent}/{route}"), invoked.clone()).await;
        is_problem(&answer, 409, "nothing-to-steer", None);
    }
    // Archiving is content where nothing lives.
    assert_eq!(
        post(&api, &path(&agent, &conversation, "/archive"), json!({})).await.status,
        StatusCode::ACCEPTED
    );
    let accepted = api.say(&agent, &conversation, "go on", "auto").await;
    api.until_receipt(&agent, &conversation, &accepted, "routed").await;
    let record = api.record(&agent, &conversation).await;
    assert_eq!((&record["status"], &record["process"]["ordinal"]), (&json!("executing"), &json!(2)));
    // Repeated, it gets the same answer although a process lives now.
    is_problem(&post(&api, &messages, steer).await, 409, "nothing-to-steer", None);
    let refused = record["activity"]
        .as_array()
        .expect("lines")
        .iter()
        .filter(|line| line["receipt"] == "refused")
        .count();
    assert_eq!(refused, 7, "{record:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steer_into_a_conversation_that_does_not_exist_yet_stores_nothing() {
    let served = Served::start().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let body = json!({ "input": { "text": "x" }, "mode": "steer" });
    is_problem(
        &post(&api, &format!("/v1/agents/{agent}/invoke/async"), body).await,
        409,
        "nothing-to-steer",
        None,
    );
    assert_eq!(served.inputs().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_deleted_before_its_first_step_is_told_to_who_waits() {
    let served = Served::without_steerer().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let waiting = tokio::spawn({
        let (api, path) = (api.clone(), format!("/v1/agents/{agent}/invoke"));
        async move { post(&api, &path, text("begin")).await }
    });
    soon("it is accepted", async || if served.inputs().await == 1 { Ok(()) } else { Err("nothing") }).await;
    assert_eq!(
        api.send(Method::DELETE, &format!("/v1/agents/{agent}"), None).await.status,
        StatusCode::NO_CONTENT
    );
    served.steer().await;
    is_problem(&waiting.await.expect("it ends"), 409, "agent-deleted", None);

    // What remains can be looked at, and stopping it says that there is nothing.
    let listed = soon("the list", async || {
        let list = api.get(&format!("/v1/agents/{agent}/conversations")).await;
        list["items"][0]["id"].as_str().map(str::to_owned).ok_or(list)
    })
    .await;
    let record = api.record(&agent, &listed).await;
    assert_eq!((&record["status"], &record["process"]), (&json!("pending"), &Value::Null));
    is_problem(&post(&api, &path(&agent, &listed, "/stop"), json!({})).await, 409, "nothing-to-stop", None);
    is_problem(
        &post(&api, &path(&agent, &listed, "/messages"), json!({ "text": "x" })).await,
        404,
        "not-found",
        None,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_steerer_what_can_be_refused_is_still_accepted() {
    let served = Served::without_steerer().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    let stopped = post(&api, &path(&agent, &conversation, "/stop"), json!({ "scope": "process" })).await;
    assert_eq!((stopped.status, &stopped.body["process"]), (StatusCode::ACCEPTED, &Value::Null));
    served.steer().await;
    api.until_status(&agent, &conversation, "stopped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_a_bound_to_what_may_wait_for_the_end_of_a_turn() {
    let served = Served::start().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    let key = served.key(&conversation);
    let mut hand = served.claim(&conversation).await;
    hand.take(&served.state(key).await.expect("a state").undelivered).await;
    let messages = path(&agent, &conversation, "/messages");
    for n in 0..HELD_MAX {
        let accepted = post(&api, &messages, json!({ "text": n.to_string(), "mode": "queue" })).await;
        assert_eq!(accepted.body["action"], "queued");
    }
    soon("all are held", async || {
        let held = served.state(key).await.expect("a state").held.len();
        if held == HELD_MAX { Ok(()) } else { Err(held) }
    })
    .await;
    let before = served.inputs().await;
    let refused = post(&api, &messages, json!({ "text": "one more", "mode": "queue" })).await;
    is_problem(&refused, 429, "too-many", None);
    assert_eq!(served.inputs().await, before);
    let steered = post(&api, &messages, json!({ "text": "another way", "mode": "auto" })).await;
    assert_eq!(steered.status, StatusCode::ACCEPTED);
}

// === the bus is away ===

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_nothing_is_accepted_and_the_answer_says_so() {
    let mut served = Served::start().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    served.broker.kill();
    let answer = post(&api, &path(&agent, &conversation, "/messages"), json!({ "text": "x" })).await;
    is_problem(&answer, 503, "unavailable", None);
    is_problem(
        &api.send(Method::GET, &path(&agent, &conversation, ""), None).await,
        503,
        "unavailable",
        None,
    );
    served.broker.restart().await;
    let accepted = soon("it goes on", async || {
        let answer = post(&api, &path(&agent, &conversation, "/messages"), json!({ "text": "y" })).await;
        if answer.status == StatusCode::ACCEPTED { Ok(answer.body) } else { Err(answer) }
    })
    .await;
    assert!(seq(served.key(&conversation), &accepted["message_id"]) > RecordSeq(1));
}
