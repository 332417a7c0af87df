//! The server over real sockets: playing, gates, cuts, credentials, and what the handle reports.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "the helpers here are tests too")]

use std::time::Duration;

use scripted_model::{AnsweredBy, Fault, Progress, Reply, Scenario, Script, ScriptedModel, Step, When};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Long enough for a loaded machine; a condition that holds is met within milliseconds.
const SOON: Duration = Duration::from_secs(20);

fn body(user: &str) -> Value {
    json!({
        "model": "claude-opus-4-8", "stream": true, "messages": [{"role": "user", "content": user}],
        "tools": [{"name": "Bash"}],
    })
}

/// A connection with one request sent; what comes back is read as it comes.
struct Client {
    stream: TcpStream,
    read: String,
}

impl Client {
    async fn send(model: &ScriptedModel, head: &str, body: &str) -> Self {
        let mut stream = TcpStream::connect(model.address()).await.unwrap();
        let length = body.len();
        let request =
            format!("{head}\r\nhost: model\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        Self { stream, read: String::new() }
    }

    async fn ask(model: &ScriptedModel, user: &str) -> Self {
        Self::send(model, "POST /v1/messages?beta=true HTTP/1.1", &body(user).to_string()).await
    }

    /// Reads until this stands in what came.
    async fn until(&mut self, needle: &str) {
        while !self.read.contains(needle) {
            assert!(self.more().await, "the stream ended without {needle:?}: {}", self.read);
        }
    }

    async fn rest(mut self) -> String {
        while self.more().await {}
        self.read
    }

    async fn more(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let read =
            tokio::time::timeout(SOON, self.stream.read(&mut buffer)).await.expect("the server answers");
        let bytes = &buffer[..read.unwrap_or(0)];
        self.read.push_str(std::str::from_utf8(bytes).unwrap());
        !bytes.is_empty()
    }
}

async fn start(script: impl Into<Script>) -> ScriptedModel {
    ScriptedModel::start_local(script).await.unwrap()
}

#[tokio::test]
async fn a_scenario_answers_streamed_and_whole() {
    let scenario = Scenario::from_json(
        r#"{"steps": [
            {"id": "a", "when": {"last_user": "go"}, "reply": {"text": "one two", "chunk_ms": 1}},
            {"id": "b", "when": {"last_user": "go"}, "reply": {"text": "three"}}]}"#,
    );
    let model = start(scenario.unwrap()).await;
    let streamed = Client::ask(&model, "go").await.rest().await;
    assert!(
        streamed.contains("content-type: text/event-stream") && streamed.contains("message_stop"),
        "{streamed}"
    );
    let mut unstreamed = body("go");
    unstreamed.as_object_mut().unwrap().remove("stream");
    let whole =
        Client::send(&model, "POST /v1/messages HTTP/1.1", &unstreamed.to_string()).await.rest().await;
    assert!(whole.contains(r#""text":"three""#) && !whole.contains("event:"), "{whole}");
    let by: Vec<_> = model.requests().iter().map(|request| request.seq).collect();
    assert_eq!((by, model.unused_steps().len()), (vec![1, 2], 0));
}

#[tokio::test]
async fn probes_and_token_counts_use_up_no_step() {
    let model = start(Script::new().step(Step::new("only", Reply::text("here")))).await;
    for head in ["HEAD / HTTP/1.1", "GET / HTTP/1.1", "GET /v1/models HTTP/1.1"] {
        assert!(Client::send(&model, head, "").await.rest().await.starts_with("HTTP/1.1 200"), "{head}");
    }
    let count = "POST /v1/messages/count_tokens?beta=true HTTP/1.1";
    let counted = Client::send(&model, count, &body("foo").to_string()).await.rest().await;
    assert!(counted.contains("input_tokens"), "{counted}");
    assert_eq!(model.unused_steps(), ["only"]);
    assert!(Client::ask(&model, "go").await.rest().await.contains("here"));
    assert!(model.unused_steps().is_empty());
}

#[tokio::test]
async fn a_gate_holds_the_stream_open_until_it_is_released() {
    let model = start(Script::new().step(Step::new("hang", Reply::text("partial").held("gate")))).await;
    let mut client = Client::ask(&model, "go").await;
    client.until("partial").await;
    client.until("event: ping").await;
    assert!(!client.read.contains("content_block_stop"), "{}", client.read);
    let open = |seen: &scripted_model::Seen| seen.exchanges().next().map(|exchange| exchange.progress);
    assert_eq!(model.wait_for("the request", SOON, open).await.unwrap(), Progress::Open);
    model.release("gate");
    assert!(client.rest().await.contains("message_stop"));
}

#[tokio::test]
async fn a_gate_before_the_reply_keeps_even_the_head_back() {
    let reply = Reply::text("late").held_before("gate");
    let model = start(Script::new().step(Step::new("hang", reply))).await;
    let mut client = Client::ask(&model, "go").await;
    model.wait_for_step("hang", SOON).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), client.more()).await;
    assert!(early.is_err(), "something came before the gate was released: {}", client.read);
    model.release("gate");
    assert!(client.rest().await.contains("late"));
}

#[tokio::test]
async fn a_delay_comes_before_the_head_and_ends_with_the_server() {
    let slow = Reply::text("late").delayed(Duration::from_secs(3600));
    let model = start(Script::new().step(Step::new("slow", slow))).await;
    let mut client = Client::ask(&model, "go").await;
    model.wait_for_step("slow", SOON).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), client.more()).await;
    assert!(early.is_err(), "something came before the delay was over: {}", client.read);
    drop(model);
    assert!(!client.rest().await.contains("message_stop"));
}

#[tokio::test]
async fn a_cut_ends_the_socket_after_what_was_said() {
    let model = start(Script::new().step(Step::new("cut", Reply::text("partial").cut()))).await;
    let got = Client::ask(&model, "go").await.rest().await;
    assert!(got.contains("partial") && !got.contains("message_stop"), "{got}");
    assert!(!got.ends_with("0\r\n\r\n"), "the body looks complete: {got}");
    assert!(model.aborted().is_empty(), "it was the server that went away");
}

#[tokio::test]
async fn a_client_that_goes_away_is_recorded() {
    let held = Reply::text("partial").held("gate");
    let before = Reply::text("never").held_before("gate");
    let model = start(Script::new().step(Step::new("a", held)).step(Step::new("b", before))).await;
    let mut client = Client::ask(&model, "in the middle").await;
    client.until("partial").await;
    drop(client);
    let waiting = Client::ask(&model, "before anything").await;
    model.wait_for_step("b", SOON).await.unwrap();
    drop(waiting);
    let both = model.wait_for("two aborts", SOON, |seen| (seen.aborted().count() == 2).then_some(())).await;
    both.unwrap();
}

#[tokio::test]
async fn an_error_has_its_status_body_and_headers() {
    let reply =
        Reply::fail(402, "Execution stopped: budget exceeded.").with_header("x-should-retry", "false");
    let model = start(Script::new().step(Step::new("budget", reply))).await;
    let got = Client::ask(&model, "go").await.rest().await;
    assert!(got.starts_with("HTTP/1.1 402") && got.contains("x-should-retry: false"), "{got}");
    assert!(got.contains("billing_error") && got.contains("budget exceeded."), "{got}");
}

#[tokio::test]
async fn a_revoked_credential_is_refused_and_uses_up_no_step() {
    let model = start(Script::new().step(Step::new("only", Reply::text("here")))).await;
    model.require_bearer("t1");
    let with = "POST /v1/messages HTTP/1.1\r\nauthorization: Bearer t1";
    model.revoke_bearer("t1");
    let refused = Client::send(&model, with, &body("go").to_string()).await.rest().await;
    assert!(refused.starts_with("HTTP/1.1 401") && refused.contains("authentication_error"), "{refused}");
    assert!(
        Client::send(&model, "GET /v1/models HTTP/1.1", "").await.rest().await.starts_with("HTTP/1.1 401")
    );
    model.require_bearer("t1");
    assert!(Client::send(&model, with, &body("go").to_string()).await.rest().await.contains("here"));
    let by =
        |seen: &scripted_model::Seen| seen.exchanges().next().map(|exchange| exchange.answered_by.clone());
    assert_eq!(model.wait_for("a refusal", SOON, by).await.unwrap(), AnsweredBy::Refused);
}

#[tokio::test]
async fn a_tool_that_is_not_offered_is_a_fault_and_answered_in_words() {
    let reply = Reply::tool("mcp/finish_process", json!({"summary": "s"}));
    let model = start(Script::new().step(Step::new("finish", reply))).await;
    let got = Client::ask(&model, "go").await.rest().await;
    assert!(got.contains("does not offer") && !got.contains("tool_use"), "{got}");
    let tool = "mcp__xpander__finish_process".to_owned();
    assert_eq!(model.faults(), [Fault::ToolNotOffered { seq: 1, tool, offered: vec!["Bash".to_owned()] }]);
}

#[tokio::test]
async fn what_cannot_be_read_is_a_fault_and_a_400() {
    let model = start(Script::new()).await;
    let got = Client::send(&model, "POST /v1/messages HTTP/1.1", "{}").await.rest().await;
    assert!(got.starts_with("HTTP/1.1 400") && got.contains("invalid_request_error"), "{got}");
    assert!(matches!(&model.faults()[..], [Fault::Unreadable { reason, .. }] if reason.contains("messages")));
}

#[tokio::test]
async fn a_wait_that_fails_tells_what_came_instead() {
    let model = start(Script::new()).await;
    Client::ask(&model, "something else").await.rest().await;
    let waited = model.wait_for_step("never", Duration::from_millis(50)).await;
    let report = waited.unwrap_err().to_string();
    assert!(report.contains("step never") && report.contains("something else"), "{report}");
}

#[tokio::test]
async fn a_step_pushed_later_and_a_session_of_its_own_are_served_too() {
    let model = start(Script::new()).await;
    assert!(Client::ask(&model, "go").await.rest().await.contains("ok"));
    model.push_step(Step::new("later", Reply::text("now")).when(When::session("s2")));
    assert!(!Client::ask(&model, "go").await.rest().await.contains("now"));
    let head = "POST /v1/messages HTTP/1.1\r\nx-claude-code-session-id: s2";
    assert!(Client::send(&model, head, &body("go").to_string()).await.rest().await.contains("now"));
    assert_eq!(model.wait_for_step("later", SOON).await.unwrap().session.as_deref(), Some("s2"));
}

#[tokio::test]
async fn dropping_the_handle_ends_held_streams_and_frees_the_port() {
    let model = start(Script::new().step(Step::new("hang", Reply::text("partial").held("gate")))).await;
    let address = model.address();
    let mut client = Client::ask(&model, "go").await;
    client.until("partial").await;
    drop(model);
    assert!(!client.rest().await.contains("message_stop"));
    let freed = async {
        while tokio::net::TcpListener::bind(address).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, freed).await.expect("the port is free again");
}
