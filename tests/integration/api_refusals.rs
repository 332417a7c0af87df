//! What cannot be taken is refused by every write, with the field and what to do, and leaves nothing behind.

use std::time::Duration;

use api::limits::BODY_MAX;
use contract::buckets::Role;
use domain::ids::MessageId;
use domain::policy::MESSAGE_TEXT_MAX;
use reqwest::{Method, header};
use serde_json::{Value, json};
use tests::api::Api;
use tests::fresh;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::served::{Served, is_problem, path, post, text};

/// Every write with a body that it takes, and whether it refuses unknown fields.
fn writes(agent: &str, conversation: &str, process: &str) -> Vec<(Method, String, Value, bool)> {
    let said = || json!({ "input": { "text": "hello" } });
    vec![
        (Method::POST, "/v1/agents".into(), json!({ "name": "n" }), true),
        (Method::PATCH, format!("/v1/agents/{agent}"), json!({ "name": "n" }), true),
        (Method::POST, format!("/v1/agents/{agent}/invoke"), said(), false),
        (Method::POST, format!("/v1/agents/{agent}/invoke/async"), said(), false),
        (Method::POST, format!("/v1/agents/{agent}/invoke/stream"), said(), false),
        (Method::POST, format!("/v1/agents/{agent}/conversations/invoke"), said(), false),
        (Method::POST, format!("/v1/agents/{agent}/conversations/invoke/stream"), said(), false),
        (Method::POST, path(agent, conversation, "/messages"), json!({ "text": "hello" }), false),
        (Method::POST, path(agent, conversation, "/stop"), json!({ "scope": "turn" }), false),
        (Method::POST, path(agent, conversation, "/archive"), json!({}), false),
        (
            Method::POST,
            path(agent, conversation, "/answers"),
            json!({ "decision_id": MessageId::UNKNOWN, "answers": [] }),
            false,
        ),
        (Method::POST, format!("/v1/processes/{process}/retry"), json!({}), true),
        (Method::POST, format!("/v1/processes/{process}/fail"), json!({ "why": "given up" }), true),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_takes_what_cannot_be_read_and_none_leaves_anything_behind() {
    let served = Served::start().await;
    let (api, foreign) = (served.member().await, served.api(2, 20, Role::Admin).await);
    let nobody = Api::new(&served.url, &served.url, "no such key");
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    let record = api.until("a process", &agent, &conversation, |record| record["process"]["id"].is_string());
    let process = record.await["process"]["id"].as_str().expect("an id").to_owned();
    let before = served.inputs().await;
    let deep = format!(r#"{{"x": {}1{}}}"#, "[".repeat(1_000), "]".repeat(1_000));
    let long = format!(r#"{{"x": "{}"}}"#, "a".repeat(BODY_MAX));
    for (method, path, body, strict) in writes(&agent, &conversation, &process) {
        let shown = format!("{method} {path}");
        let raw = async |body: String, content_type: &str| {
            let request =
                api.request(method.clone(), &path).header(header::CONTENT_TYPE, content_type).body(body);
            let answer = request.send().await.unwrap_or_else(|error| panic!("{shown}: {error:?}"));
            let status = answer.status();
            assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/problem+json", "{shown}");
            tests::api::Answer { status, body: answer.json().await.expect("json") }
        };
        let json = "application/json";
        is_problem(&raw("{".into(), json).await, 400, "malformed", None);
        is_problem(
            &raw(r#"{"input": {"text": "a\u0000"}}"#.into(), json).await,
            400,
            "malformed",
            Some("input.text"),
        );
        is_problem(&raw(r#"{"name": "\ud800"}"#.into(), json).await, 400, "malformed", Some("name"));
        is_problem(&raw(deep.clone(), json).await, 400, "malformed", Some("x"));
        is_problem(&raw("[]".into(), json).await, 422, "invalid", Some("body"));
        is_problem(&raw(long.clone(), json).await, 413, "too-large", None);
        is_problem(&raw(body.to_string(), "text/plain").await, 415, "unsupported-media-type", None);
        is_problem(
            &raw(body.to_string(), "application/json; charset=latin1").await,
            415,
            "unsupported-media-type",
            None,
        );
        if strict {
            let mut more = body.clone();
            more["naem"] = "x".into();
            is_problem(&raw(more.to_string(), json).await, 422, "invalid", Some("naem"));
        }
        is_problem(&nobody.send(method.clone(), &path, Some(&body)).await, 401, "unauthorized", None);
        if path != "/v1/agents" {
            is_problem(&foreign.send(method.clone(), &path, Some(&body)).await, 404, "not-found", None);
        }
    }
    assert_eq!(served.inputs().await, before, "something refused was stored");
    // An unknown method and an unknown address are problems too.
    is_problem(&api.send(Method::PUT, "/v1/agents", None).await, 405, "method-not-allowed", None);
    is_problem(&api.send(Method::POST, "/v1/agentz", None).await, 404, "not-found", None);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_out_of_bounds_are_named_with_their_field() {
    let served = Served::start().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    let (invoke, messages) =
        (format!("/v1/agents/{agent}/invoke/async"), path(&agent, &conversation, "/messages"));
    let long = "a".repeat(MESSAGE_TEXT_MAX + 1);
    for (path, body, status, page, field) in [
        (&invoke, json!({}), 422, "invalid", "input"),
        (&invoke, text(""), 422, "invalid", "input.text"),
        (&invoke, json!({ "input": { "text": 5 } }), 422, "invalid", "input.text"),
        (&invoke, text(&long), 413, "too-large", "input.text"),
        (&invoke, text(&"\u{1}".repeat(MESSAGE_TEXT_MAX)), 413, "too-large", "text"),
        (&invoke, json!({ "input": { "text": "x" }, "mode": "shout" }), 422, "invalid", "mode"),
        (
            &invoke,
            json!({ "input": { "text": "x" }, "idempotency_key": "" }),
            422,
            "invalid",
            "idempotency_key",
        ),
        (&messages, json!({ "mode": "auto" }), 422, "invalid", "text"),
        (&messages, json!({ "text": long }), 413, "too-large", "text"),
        (&messages, json!({ "text": "x", "files": [1] }), 422, "invalid", "files[0]"),
        (&path(&agent, &conversation, "/stop"), json!({ "scope": "all" }), 422, "invalid", "scope"),
    ] {
        is_problem(&post(&api, path, body).await, status, page, Some(field));
    }
    for (field, value) in [
        ("harness", json!("codex")),
        ("permission_mode", json!("gated")),
        ("gated_commands", json!(["git push"])),
        ("access", json!("everyone")),
        ("name", json!("")),
    ] {
        let mut body = json!({ "name": "n" });
        body[field] = value;
        is_problem(&post(&api, "/v1/agents", body).await, 422, "invalid", Some(field));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_not_found() {
    let served = Served::start().await;
    let api = served.member().await;
    let (agent, other) = (api.agent().await, api.agent().await);
    let conversation = api.open(&agent, "begin").await;
    let unknown = format!("cnv_{}", fresh().simple());
    for (agent, conversation) in [
        (agent.as_str(), unknown.as_str()),
        (&agent, "cnv_1"),
        (&agent, "x%00y"),
        // A conversation is found under its own agent only.
        (&other, &conversation),
        (&format!("agt_{}", fresh().simple()), &conversation),
        ("agt_", &conversation),
    ] {
        for (rest, body) in
            [("/messages", json!({ "text": "x" })), ("/stop", json!({})), ("/archive", json!({}))]
        {
            is_problem(&post(&api, &path(agent, conversation, rest), body).await, 404, "not-found", None);
        }
        let invoke = format!("/v1/agents/{agent}/invoke");
        is_problem(
            &post(&api, &invoke, json!({ "input": { "text": "x" }, "id": conversation })).await,
            404,
            "not-found",
            None,
        );
    }
    assert_eq!(served.inputs().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_too_slowly_is_cut() {
    let served = Served::start().await;
    let api = served.member().await;
    let agent = api.agent().await;
    let request = api.request(Method::POST, "/").build().expect("a request");
    let secret = request.headers()["x-api-key"].to_str().expect("text");
    let mut stream = TcpStream::connect(served.url.trim_start_matches("http://")).await.expect("connected");
    let head = format!(
        "POST /v1/agents/{agent}/invoke/async HTTP/1.1\r\nhost: a\r\nx-api-key: {secret}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{\"input\""
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = vec![0; 12];
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_exact(&mut answer)).await;
    read.expect("the server kept the connection open").expect("an answer");
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 408");
    assert_eq!(served.inputs().await, 0);
}
