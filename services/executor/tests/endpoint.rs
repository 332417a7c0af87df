//! What the model proxy passes on and what it keeps back, over real sockets.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "the helpers here are tests too")]

mod kit;

use std::sync::atomic::Ordering;
use std::time::Duration;

use executor::model_proxy::{ModelCall, Patience, Usage};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use scripted_model::{Reply, ScriptedModel, Usage as Tokens};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use kit::door::{ByHand, Door, KEEP_ALIVE, patience, url};
use kit::runtime::{PROVIDER_KEY, TOKEN};
use kit::soon;
use kit::stay::steps;

const MESSAGES: &str = "/v1/messages?beta=true";
const FIRST_EVENT: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":\
    {\"input_tokens\":3,\"output_tokens\":1}}}\n\n";
const COMMENT: &str = ": keep-alive\n\n";

fn body(stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "go"}]})
}

async fn model<const N: usize>(replies: [Reply; N]) -> ScriptedModel {
    let model = ScriptedModel::start_local(steps(replies)).await.unwrap();
    model.require_bearer(PROVIDER_KEY);
    model
}

fn ended(status: u16, usage: Option<Usage>) -> ModelCall {
    ModelCall::Ended { status: Some(status), usage }
}

async fn text(answer: reqwest::Response) -> String {
    soon("the answer", answer.text()).await.unwrap()
}

/// Reads until the answer has this at its end.
async fn until_said(answer: &mut reqwest::Response, end: &str) -> String {
    let mut read = String::new();
    let reading = async {
        while !read.ends_with(end) {
            let chunk = answer.chunk().await.unwrap().expect("more of the answer");
            read.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    };
    soon(format!("{end:?}"), reading).await;
    read
}

#[tokio::test]
async fn streamed_and_whole_answers_pass_and_are_counted() {
    let tokens = Tokens { input: 100, output: 20, cache_read: 3000, cache_write: 40 };
    let usage = Usage { input: 100, output: 20, cache_read: 3000, cache_write: 40 };
    let reply = || Reply::text("one two three").with_usage(tokens).chunked(Duration::from_millis(1));
    let model = model([reply(), reply()]).await;
    let mut door = Door::open(&model.url(), patience());
    for stream in [true, false] {
        let answer = door.client().post(url(MESSAGES)).json(&body(stream)).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(door.call().await, ModelCall::Started);
        let said = text(answer).await;
        assert_eq!(said.contains("message_stop"), stream, "{said}");
        assert_eq!(door.call().await, ended(200, Some(usage)));
    }
    assert_eq!(model.requests()[0].body(), body(true), "the body is what was sent");
}

#[tokio::test]
async fn the_bytes_of_a_stream_come_as_they_are_and_when_they_are() {
    let provider = ByHand::start().await;
    let door = Door::open(&provider.url(), Patience::default());
    let asking = tokio::spawn(door.client().post(url(MESSAGES)).json(&body(true)).send());
    let mut asked = provider.asked().await;
    asked.begin_events().await;
    let mut answer = soon("the head", asking).await.unwrap().unwrap();
    for piece in ["event: a\nda", "ta: 1\r\n\r", "\n: a comment\n\n", "\u{e9}no event at all"] {
        asked.chunk(piece).await;
        assert_eq!(until_said(&mut answer, piece).await, piece);
    }
    asked.end_events().await;
    assert_eq!(soon("the end", answer.chunk()).await.unwrap(), None);
}

#[tokio::test]
async fn refusals_of_the_provider_pass_with_what_the_harness_decides_by() {
    let replies = [(402, "x-should-retry", "false"), (429, "retry-after", "7"), (529, "request-id", "req_9")];
    let fail = |(status, name, value)| Reply::fail(status, "no").with_header(name, value);
    let model = model(replies.map(fail)).await;
    let mut door = Door::open(&model.url(), patience());
    for (status, name, value) in replies {
        let answer = door.client().post(url(MESSAGES)).json(&body(true)).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.headers()[name].to_str().unwrap()), (status, value));
        let said: Value = serde_json::from_str(&text(answer).await).unwrap();
        assert_eq!(said["error"]["message"], "no");
        assert_eq!((door.call().await, door.call().await), (ModelCall::Started, ended(status, None)));
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_breaks_off_for_the_harness() {
    let model = model([Reply::text("partial").cut()]).await;
    let mut door = Door::open(&model.url(), patience());
    let answer = door.client().post(url(MESSAGES)).json(&body(true)).send().await.unwrap();
    soon("the end", answer.text()).await.unwrap_err();
    assert_eq!(door.call().await, ModelCall::Started);
    let ModelCall::Ended { status: Some(200), usage: Some(usage) } = door.call().await else {
        panic!("it had begun, and said what its beginning cost");
    };
    assert_eq!(usage.input, Tokens::default().input);
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive_between_events_only() {
    let provider = ByHand::start().await;
    let door = Door::open(&provider.url(), patience());
    let asking = tokio::spawn(door.client().post(url(MESSAGES)).json(&body(true)).send());
    let mut asked = provider.asked().await;
    asked.begin_events().await;
    let mut answer = soon("the head", asking).await.unwrap().unwrap();
    assert_eq!(until_said(&mut answer, COMMENT).await, COMMENT, "before the first event");
    let (half, rest) = FIRST_EVENT.split_at(30);
    asked.chunk(half).await;
    until_said(&mut answer, half).await;
    let silence = timeout(4 * KEEP_ALIVE, answer.chunk()).await;
    assert!(silence.is_err(), "nothing may stand in an event: {silence:?}");
    asked.chunk(rest).await;
    until_said(&mut answer, &format!("{rest}{COMMENT}{COMMENT}")).await;
    asked.end_events().await;
}

#[tokio::test]
async fn a_provider_that_stands_still_is_given_up() {
    let provider = ByHand::start().await;
    let mut door = Door::open(&provider.url(), Patience { silence: 5 * KEEP_ALIVE, ..patience() });
    let asking = tokio::spawn(door.client().post(url(MESSAGES)).json(&body(true)).send());
    let mut asked = provider.asked().await;
    asked.begin_events().await;
    asked.chunk(FIRST_EVENT).await;
    let answer = soon("the head", asking).await.unwrap().unwrap();
    soon("the end", answer.text()).await.unwrap_err();
    asked.gone().await;
    let usage = Usage { input: 3, output: 1, ..Usage::default() };
    assert_eq!((door.call().await, door.call().await), (ModelCall::Started, ended(200, Some(usage))));

    let mut door = Door::open(&provider.url(), Patience { answer: 10 * KEEP_ALIVE, ..patience() });
    let asking = tokio::spawn(door.client().post(url(MESSAGES)).json(&body(true)).send());
    provider.asked().await.gone().await;
    let answer = soon("the refusal", asking).await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!((door.call().await, door.call().await), (ModelCall::Started, ended(504, None)));
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_call_with_it() {
    let provider = ByHand::start().await;
    // No comment is written that could fail: that the client is gone must be seen by itself.
    let mut door = Door::open(&provider.url(), Patience::default());
    let asking = tokio::spawn(door.client().post(url(MESSAGES)).json(&body(true)).send());
    let asked = provider.asked().await;
    asking.abort();
    asked.gone().await;
    let nothing = ModelCall::Ended { status: None, usage: None };
    assert_eq!((door.call().await, door.call().await), (ModelCall::Started, nothing));

    let asking = tokio::spawn(door.client().post(url(MESSAGES)).json(&body(true)).send());
    let mut asked = provider.asked().await;
    asked.begin_events().await;
    asked.chunk(FIRST_EVENT).await;
    let mut answer = soon("the head", asking).await.unwrap().unwrap();
    until_said(&mut answer, FIRST_EVENT).await;
    drop(answer);
    asked.gone().await;
    let usage = Usage { input: 3, output: 1, ..Usage::default() };
    assert_eq!((door.call().await, door.call().await), (ModelCall::Started, ended(200, Some(usage))));
}

#[tokio::test]
async fn only_the_token_of_a_living_segment_is_admitted() {
    let model = model([]).await;
    let door = Door::open(&model.url(), patience());
    let shown = |name: &'static str, value: &str| {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::try_from(value).unwrap())])
    };
    let bearer = format!("Bearer {TOKEN}");
    let matrix = [
        (shown("authorization", &bearer), true),
        (shown("x-api-key", TOKEN), true),
        (HeaderMap::new(), false),
        (shown("authorization", "Bearer wrong"), false),
        (shown("x-api-key", "wrong"), false),
        (shown("x-api-key", PROVIDER_KEY), false),
    ];
    let count = "/v1/messages/count_tokens?beta=true";
    for alive in [true, false] {
        door.alive.store(alive, Ordering::Release);
        for (headers, good) in &matrix {
            let client = door.client_with(headers.clone());
            for path in [MESSAGES, count] {
                let answer = client.post(url(path)).json(&body(true)).send().await.unwrap();
                let admitted = alive && *good;
                assert_eq!(answer.status().is_success(), admitted, "{path} {headers:?} {alive}");
                if !admitted {
                    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
                    let said: Value = serde_json::from_str(&text(answer).await).unwrap();
                    assert_eq!(said["error"]["type"], "authentication_error");
                }
            }
            let answer = client.post(url("/mcp")).json(&json!({})).send().await.unwrap();
            assert_eq!(answer.status() == StatusCode::UNAUTHORIZED, !(alive && *good));
        }
    }
    assert_eq!(model.requests().len(), 2, "only the admitted reached the provider");
}

#[tokio::test]
async fn the_provider_gets_its_key_and_no_credential_of_the_sandbox() {
    let provider = ByHand::start().await;
    let door = Door::open(&format!("{}/gateway/", provider.url()), patience());
    let length = 2;
    let request = format!(
        "POST {MESSAGES} HTTP/1.1\r\nhost: 127.0.0.1:18080\r\nauthorization: Bearer {TOKEN}\r\n\
         x-api-key: {TOKEN}\r\ncookie: c={TOKEN}\r\nproxy-authorization: Basic {TOKEN}\r\n\
         x-forwarded-for: 1.2.3.4\r\nforwarded: for=1.2.3.4\r\ntraceparent: 00-{TOKEN}\r\nx-other: {TOKEN}\r\n\
         anthropic-beta: b1,b2\r\nanthropic-version: 2023-06-01\r\nx-claude-code-session-id: s\r\n\
         content-type: application/json\r\nuser-agent: cli/1\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{{}}"
    );
    let mut client = door.connect().await;
    client.write_all(request.as_bytes()).await.unwrap();
    let mut asked = provider.asked().await;
    let host = provider.url().replace("http://", "");
    let mut lines: Vec<&str> = asked.head.lines().collect();
    assert_eq!(lines.remove(0), "post /gateway/v1/messages?beta=true http/1.1");
    lines.sort_unstable();
    let expected = [
        "accept-encoding: identity",
        "accept: */*",
        "anthropic-beta: b1,b2",
        "anthropic-version: 2023-06-01",
        "content-length: 2",
        "content-type: application/json",
        &format!("host: {host}"),
        "user-agent: cli/1",
        "x-api-key: the-provider-key",
        "x-claude-code-session-id: s",
    ];
    assert_eq!((lines, asked.body.as_str()), (expected.to_vec(), "{}"));
    asked.say("HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 2\r\n\r\n[]").await;
    let mut answer = String::new();
    soon("the answer", client.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.contains("[]") && !answer.contains("set-cookie"), "{answer}");
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_the_operators_to_mend() {
    let gone = ByHand::start().await.url();
    let mut door = Door::open(&gone, patience());
    let answer = door.client().post(url(MESSAGES)).json(&body(true)).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    let said = text(answer).await;
    assert!(said.contains("api_error") && said.contains("provider's base URL"), "{said}");
    assert!(!said.contains(PROVIDER_KEY) && !said.contains(&gone), "{said}");
    assert_eq!((door.call().await, door.call().await), (ModelCall::Started, ended(502, None)));
}

#[tokio::test]
async fn a_request_beyond_the_bound_is_refused_also_when_it_does_not_say_so() {
    let provider = ByHand::start().await;
    let mut door = Door::open(&provider.url(), patience());
    let too_long = (32 << 20) + 1;
    let head = format!("POST {MESSAGES} HTTP/1.1\r\nhost: a\r\nx-api-key: {TOKEN}\r\nconnection: close\r\n");
    let answer = door.raw(&format!("{head}content-length: {too_long}\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("request_too_large"), "{answer}");

    let drained = tokio::spawn(async move { provider.asked().await.gone_after_anything().await });
    let chunks = futures_util::stream::iter((0..33).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1 << 20])));
    let body = reqwest::Body::wrap_stream(chunks);
    let answer = soon("the refusal", door.client().post(url(MESSAGES)).body(body).send()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!((door.call().await, door.call().await), (ModelCall::Started, ended(413, None)));
    soon("the provider's connection closed", drained).await.unwrap();
}

#[tokio::test]
async fn counting_tokens_is_no_model_call() {
    let model = model([Reply::text("after")]).await;
    let mut door = Door::open(&model.url(), patience());
    let count = url("/v1/messages/count_tokens?beta=true");
    let answer = door.client().post(count).json(&body(false)).send().await.unwrap();
    assert!(text(answer).await.contains("input_tokens"));
    text(door.client().post(url(MESSAGES)).json(&body(false)).send().await.unwrap()).await;
    assert_eq!(door.call().await, ModelCall::Started);
    assert!(matches!(door.call().await, ModelCall::Ended { usage: Some(_), .. }));
    door.calls.try_recv().unwrap_err();
}

#[tokio::test]
async fn anything_else_is_not_there() {
    let door = Door::open("http://127.0.0.1:9", patience());
    let close = "host: 127.0.0.1:18080\r\nconnection: close\r\n\r\n";
    for probe in ["HEAD / HTTP/1.1", "GET / HTTP/1.1"] {
        let answer = door.raw(&format!("{probe}\r\n{close}")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    for line in ["GET /v1/models", "GET /v1/messages", "DELETE /v1/messages/batches", "POST /v1"] {
        let answer = door.raw(&format!("{line} HTTP/1.1\r\n{close}")).await;
        assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("not_found_error"), "{line}: {answer}");
    }
    for line in ["GET /healthz", "POST /", "OPTIONS *", "GET /.well-known/oauth-authorization-server"] {
        let answer = door.raw(&format!("{line} HTTP/1.1\r\n{close}")).await;
        assert!(answer.starts_with("HTTP/1.1 404") && answer.ends_with("\r\n\r\n"), "{line}: {answer}");
    }
    for line in
        ["GET http://elsewhere.example/", "POST http://127.0.0.1:18080/v1/messages", "CONNECT a.example:443"]
    {
        let answer = door.raw(&format!("{line} HTTP/1.1\r\nx-api-key: {TOKEN}\r\n{close}")).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("origin form"), "{line}: {answer}");
    }
}

#[tokio::test]
async fn the_end_of_the_segment_cuts_what_is_open() {
    let provider = ByHand::start().await;
    let door = Door::open(&provider.url(), patience());
    let asking = tokio::spawn(door.client().post(url(MESSAGES)).json(&body(true)).send());
    let mut asked = provider.asked().await;
    asked.begin_events().await;
    let answer = soon("the head", asking).await.unwrap().unwrap();
    let mut idle = door.connect().await;
    door.ended.cancel();
    soon("the end of serving", door.served).await.unwrap().unwrap();
    asked.gone().await;
    soon("the cut", answer.text()).await.unwrap_err();
    assert_eq!(idle.read(&mut [0; 8]).await.unwrap_or(0), 0);
}
