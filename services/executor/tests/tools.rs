//! The calls an agent has, as JSON written by hand in both generations of the protocol.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the helpers here are tests too")]

mod kit;

use executor::tools::Asked;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use kit::door::{Door, patience, url};
use kit::runtime::TOKEN;
use kit::soon;

/// The last protocol with a handshake, and the first without.
const PROTOCOLS: [&str; 2] = ["2025-11-25", "2026-07-28"];
const SUMMARY_MAX: usize = domain::policy::SUMMARY_MAX;

fn door() -> Door {
    Door::open("http://127.0.0.1:9", patience())
}

/// One request, as a client of this protocol sends it.
struct Rpc {
    protocol: &'static str,
    method: &'static str,
    params: Value,
    headers: HeaderMap,
}

fn rpc(protocol: &'static str, method: &'static str, params: Value) -> Rpc {
    Rpc { protocol, method, params, headers: HeaderMap::new() }
}

fn tool(protocol: &'static str, name: &str, arguments: impl Into<Value>) -> Rpc {
    rpc(protocol, "tools/call", json!({"name": name, "arguments": arguments.into()}))
}

impl Rpc {
    fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::try_from(value).unwrap());
        self
    }

    fn meta(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.params["_meta"][name] = value.into();
        self
    }

    async fn send(self, door: &Door) -> reqwest::Response {
        let Rpc { protocol, method, .. } = self;
        let mut rpc = self.header("mcp-protocol-version", protocol);
        if protocol == PROTOCOLS[1] {
            if let Some(name) = rpc.params["name"].as_str().map(str::to_owned) {
                rpc = rpc.header("mcp-name", &name);
            }
            rpc = rpc
                .header("mcp-method", method)
                .meta("io.modelcontextprotocol/protocolVersion", protocol)
                .meta("io.modelcontextprotocol/clientInfo", json!({"name": "test", "version": "1"}))
                .meta("io.modelcontextprotocol/clientCapabilities", json!({}));
        }
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": rpc.params});
        let request = door
            .client()
            .post(url("/mcp"))
            .header("accept", "application/json, text/event-stream")
            .headers(rpc.headers)
            .json(&body);
        soon("the beginning of an answer", request.send()).await.unwrap()
    }

    /// The answer's result. Comments and notifications before it are passed over.
    async fn result(self, door: &Door) -> Value {
        let answer = self.send(door).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let text = soon("the answer", answer.text()).await.unwrap();
        let answer = messages(&text).pop().expect("an answer");
        assert_eq!(answer["id"], 7, "{text}");
        answer["result"].clone()
    }

    /// What the model reads, and whether it is an error.
    async fn said(self, door: &Door) -> (String, bool) {
        let result = self.result(door).await;
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
        (text.to_owned(), result["isError"].as_bool().unwrap())
    }
}

/// The JSON-RPC messages of an answer, streamed or not.
fn messages(text: &str) -> Vec<Value> {
    match text.starts_with('{') {
        true => vec![serde_json::from_str(text).unwrap()],
        false => {
            let data = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
            data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).unwrap()).collect()
        }
    }
}

#[tokio::test]
async fn a_client_with_a_handshake_shakes_hands() {
    let door = door();
    let client = json!({
        "protocolVersion": PROTOCOLS[0], "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    });
    let answer = rpc(PROTOCOLS[0], "initialize", client).send(&door).await;
    assert!(!answer.headers().contains_key("mcp-session-id"));
    let hello = messages(&answer.text().await.unwrap())[0]["result"].clone();
    assert_eq!(
        (&hello["protocolVersion"], &hello["serverInfo"]["name"]),
        (&json!(PROTOCOLS[0]), &json!("xpander"))
    );

    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let post = door.client().post(url("/mcp")).header("accept", "application/json, text/event-stream");
    assert_eq!(post.json(&initialized).send().await.unwrap().status(), StatusCode::ACCEPTED);
    let stream = door.client().get(url("/mcp")).header("accept", "text/event-stream").send().await.unwrap();
    assert_eq!(stream.status(), StatusCode::METHOD_NOT_ALLOWED, "nothing is said unasked");
}

#[tokio::test]
async fn a_client_without_a_handshake_asks_what_there_is() {
    let found = rpc(PROTOCOLS[1], "server/discover", json!({})).result(&door()).await;
    let versions = found["supportedVersions"].as_array().unwrap_or_else(|| panic!("{found}"));
    for protocol in PROTOCOLS {
        assert!(versions.contains(&json!(protocol)), "{found}");
    }
}

#[tokio::test]
async fn there_are_three_tools_that_say_what_they_take() {
    let door = door();
    for protocol in PROTOCOLS {
        let listed = rpc(protocol, "tools/list", json!({})).result(&door).await;
        let tools = listed["tools"].as_array().unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["finish_process", "tell_user", "wait_for"]);
        for (tool, argument, bound) in [(&tools[0], "summary", SUMMARY_MAX), (&tools[1], "text", 16 * 1024)] {
            let schema = &tool["inputSchema"];
            assert_eq!(
                (&schema["required"], &schema["additionalProperties"]),
                (&json!([argument]), &json!(false)),
                "{schema}"
            );
            let described = schema["properties"][argument]["description"].as_str().unwrap();
            assert!(described.contains(&bound.to_string()), "{described}");
        }
    }
}

#[tokio::test]
async fn a_note_reaches_the_segment_with_the_id_of_its_call() {
    let door = door();
    for protocol in PROTOCOLS {
        let note = tool(protocol, "tell_user", json!({"text": protocol}));
        let (said, is_error) = note.meta("claudecode/toolUseId", "toolu_1").said(&door).await;
        assert!(said.starts_with("Told.") && !is_error, "{said}");
    }
    tool(PROTOCOLS[0], "tell_user", json!({"text": "no id"})).said(&door).await;
    let told = door.segment.told.lock().unwrap().clone();
    let with_id = |text: &str| (text.to_owned(), Some("toolu_1".to_owned()));
    assert_eq!(told, [with_id(PROTOCOLS[0]), with_id(PROTOCOLS[1]), ("no id".to_owned(), None)]);
}

#[tokio::test]
async fn finishing_says_what_became_of_it() {
    let door = door();
    door.segment.answer([
        Asked::Refused {
            why: "a message arrived that you have not read; end your turn to receive it".to_owned(),
        },
        Asked::Unavailable("the bus cannot be reached".to_owned()),
        done(),
        Asked::AlreadyEnded { outcome: "Completed".to_owned() },
    ]);
    for (begins, has, error) in [
        ("held: a message arrived", "call finish_process again", false),
        ("Nothing was recorded: the bus cannot be reached", "Call it again", true),
        ("Recorded: the process is Completed", "End your turn now", false),
        ("The process is Completed already", "End your turn now", false),
    ] {
        let call = tool(PROTOCOLS[0], "finish_process", json!({"summary": "all done"}));
        let (said, is_error) = call.said(&door).await;
        assert!(said.starts_with(begins) && said.contains(has) && is_error == error, "{said}");
    }
    assert_eq!(door.segment.summaries(), ["all done"; 4]);
}

#[tokio::test]
async fn a_note_that_cannot_be_taken_is_to_be_told_again() {
    let door = door();
    *door.segment.closed.lock().unwrap() = Some("the bus cannot be reached".to_owned());
    let (said, is_error) = tool(PROTOCOLS[0], "tell_user", json!({"text": "a note"})).said(&door).await;
    assert!(
        said.contains("the bus cannot be reached") && said.contains("Call it again") && is_error,
        "{said}"
    );
}

#[tokio::test]
async fn what_a_tool_does_not_take_is_declined_with_what_it_takes() {
    let door = door();
    let question = json!({"text": "which?", "colour": "red"});
    for (name, arguments, has) in [
        ("tell_user", question, ["colour", "takes text"]),
        ("tell_user", json!({}), ["text", "takes text"]),
        ("tell_user", json!({"text": " \n"}), ["empty", "takes text"]),
        ("tell_user", json!({"text": "x".repeat(16 * 1024 + 1)}), ["16385 bytes", "16384"]),
        ("finish_process", json!({"summary": 7}), ["expected a string", "one argument, summary"]),
        ("finish_process", json!({"summary": ""}), ["empty", "one argument, summary"]),
        ("finish_process", json!({"summary": "x".repeat(SUMMARY_MAX + 1)}), ["8193 bytes", "8192"]),
        ("finish_process", json!({"summary": "é".repeat(SUMMARY_MAX / 2 + 1)}), ["8194 bytes", "8192"]),
    ] {
        let (said, is_error) = tool(PROTOCOLS[0], name, arguments).said(&door).await;
        assert!(
            is_error && has.iter().all(|has| said.contains(has)) && said.contains("all it again"),
            "{said}"
        );
    }
    assert!(door.segment.told().is_empty() && door.segment.summaries().is_empty());
    for (name, arguments) in [
        ("finish_process", json!({"summary": "x".repeat(SUMMARY_MAX)})),
        ("tell_user", json!({"text": "x".repeat(16 * 1024)})),
    ] {
        let (said, is_error) = tool(PROTOCOLS[0], name, arguments).said(&door).await;
        assert!(!is_error, "{said}");
    }
    for protocol in PROTOCOLS {
        let text = tool(protocol, "ask_user", json!({})).send(&door).await.text().await.unwrap();
        assert!(text.contains("no such tool"), "{text}");
    }
}

#[tokio::test]
async fn only_our_own_host_and_origin_may_call() {
    let door = door();
    for (name, value, status) in [
        ("host", "127.0.0.1:18080", 200),
        ("host", "localhost:18080", 200),
        ("host", "127.0.0.1", 403),
        ("host", "127.0.0.1:80", 403),
        ("host", "elsewhere.example:18080", 403),
        ("origin", "http://127.0.0.1:18080", 200),
        ("origin", "https://127.0.0.1:18080", 403),
        ("origin", "http://elsewhere.example", 403),
        ("origin", "null", 403),
    ] {
        let answer = rpc(PROTOCOLS[0], "tools/list", json!({})).header(name, value).send(&door).await;
        assert_eq!(answer.status().as_u16(), status, "{name}: {value}");
    }
}

#[tokio::test]
async fn the_token_is_needed_and_its_refusal_is_no_answer() {
    let door = door();
    let headers =
        HeaderMap::from_iter([(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer wrong"))]);
    for client in [door.client_with(headers), door.client_with(HeaderMap::new())] {
        let answer =
            client.post(url("/mcp")).json(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})).send();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(answer.text().await.unwrap(), "");
    }
}

#[tokio::test]
async fn a_call_that_takes_long_is_kept_alive() {
    let door = door();
    let comments: fn(&str) -> usize = |read| read.lines().filter(|line| line.starts_with(':')).count();
    let notifications: fn(&str) -> usize = |read| read.matches("\"notifications/progress\"").count();
    for (protocol, signs) in PROTOCOLS.into_iter().zip([comments, notifications]) {
        door.segment.held.send_replace(true);
        let call = tool(protocol, "tell_user", json!({"text": "slow"})).meta("progressToken", "p1");
        let mut answer = call.send(&door).await;
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let mut read = String::new();
        let two_signs = async {
            while signs(&read) < 2 {
                let chunk = answer.chunk().await.unwrap().expect("more of the answer");
                read.push_str(std::str::from_utf8(&chunk).unwrap());
            }
        };
        soon(format!("signs of life in {protocol}"), two_signs).await;
        door.segment.held.send_replace(false);
        read.push_str(&soon("the answer", answer.text()).await.unwrap());
        let result = messages(&read).pop().unwrap()["result"].clone();
        assert!(result["content"][0]["text"].as_str().unwrap().starts_with("Told."), "{read}");
    }
}

#[tokio::test]
async fn a_call_goes_on_to_its_end_without_its_client() {
    let door = door();
    door.segment.held.send_replace(true);
    let body = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "finish_process", "arguments": {"summary": "done"}},
    });
    let body = body.to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost:18080\r\nx-api-key: {TOKEN}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = door.connect().await;
    client.write_all(request.as_bytes()).await.unwrap();
    let mut begun = [0; 15];
    soon("the answer's beginning", client.read_exact(&mut begun)).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200 OK");
    client.shutdown().await.unwrap();
    soon("the server's end", client.read_to_end(&mut Vec::new())).await.unwrap();
    door.segment.held.send_replace(false);
    kit::until("the finish recorded", || door.segment.summaries() == ["done"]).await;
}

fn done() -> Asked {
    Asked::Done { running: Vec::new(), questions: Vec::new() }
}

#[tokio::test]
async fn a_wait_is_refused_with_what_to_write_instead() {
    let door = door();
    for (arguments, says) in [
        (json!({}), "the reason is missing"),
        (json!({"reason": " ", "until": "2030-01-01T00:00:00Z"}), "the reason is missing"),
        (json!({"reason": "r"}), "neither until nor event"),
        (json!({"reason": "r", "until": "2030-01-01T00:00:00"}), "RFC 3339 with a zone"),
        (json!({"reason": "r", "until": "tomorrow"}), "RFC 3339 with a zone"),
        (json!({"reason": "r", "until": "12030-01-01T00:00:00Z"}), "RFC 3339 with a zone"),
        (
            json!({"reason": "r", "until": "2030-01-01T00:00:00Z", "event": {"source": "question", "id": "x"}}),
            "both until and event",
        ),
        (json!({"reason": "r", "event": {"source": "fax", "number": 1}}), "unknown variant"),
        (json!({"reason": "r", "event": {"source": "question", "id": "7"}}), "qst_"),
        (json!({"cancel": true, "until": "2030-01-01T00:00:00Z"}), "cancel stands alone"),
    ] {
        let (said, is_error) = tool(PROTOCOLS[0], "wait_for", arguments).said(&door).await;
        assert!(said.contains(says) && said.contains("Call it again") && is_error, "{said}");
    }
    assert!(door.segment.asked.lock().unwrap().is_empty(), "nothing reached the log");
}

#[tokio::test]
async fn a_wait_is_booked_and_says_what_still_runs() {
    let door = door();
    let running = Asked::Done { running: vec!["cargo build".to_owned()], questions: Vec::new() };
    door.segment.answer([done(), running]);
    let until = json!({"reason": "the build", "until": "2030-01-01T01:00:00+01:00"});
    let (said, is_error) = tool(PROTOCOLS[0], "wait_for", until.clone()).said(&door).await;
    assert!(
        said.contains("until 2030-01-01T00:00:00.000Z") && said.contains("End your turn now") && !is_error,
        "{said}"
    );
    let (said, _) = tool(PROTOCOLS[0], "wait_for", until).said(&door).await;
    assert!(said.contains("cargo build"), "{said}");
    let (said, is_error) = tool(PROTOCOLS[0], "wait_for", json!({"cancel": true})).said(&door).await;
    assert!(said.contains("dropped") && !is_error, "{said}");
}

#[tokio::test]
async fn questions_are_checked_and_their_ids_are_told() {
    let door = door();
    for (question, says) in [
        (json!({"text": " "}), "question 1"),
        (json!({"text": "q", "options": ["a", "a"]}), "an option twice"),
        (json!({"text": "q", "free_text": false}), "nobody could answer"),
        (json!({"text": "q", "options": [""]}), "1 to 500 bytes"),
    ] {
        let call = tool(PROTOCOLS[0], "tell_user", json!({"text": "t", "questions": [question]}));
        let (said, is_error) = call.said(&door).await;
        assert!(said.contains(says) && is_error, "{said}");
    }
    assert!(door.segment.told().is_empty(), "nothing was told");
    let questions = json!([{"text": "Which?", "options": ["a", "b"]}, {"text": "Why?"}]);
    let call = tool(PROTOCOLS[0], "tell_user", json!({"text": "t", "questions": questions}));
    let (said, is_error) = call.said(&door).await;
    assert!(said.starts_with("Asked: qst_") && said.contains("wait_for") && !is_error, "{said}");
    assert_eq!(
        (door.segment.told(), door.segment.questions.lock().unwrap().len()),
        (vec!["t".to_owned()], 2)
    );
}
