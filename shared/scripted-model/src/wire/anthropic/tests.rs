//! Reading requests as Claude Code 2.1.197 sends them (shortened), and the exact bytes of the answers.

use super::*;

const REMINDER: &str = "<system-reminder>\nToday's date is 2026-11-30.\n</system-reminder>\n\n";
const STEER: &str = "The user sent a new message while you were working:\nalso do X\n\nIMPORTANT: After completing \
                     your current task, you MUST address the user's message above. Do not ignore it.";

fn read_as(headers: &[(&'static str, &str)], body: &Value) -> RequestView {
    let headers =
        headers.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect();
    read(7, headers, body.to_string().into()).unwrap()
}

/// A turn in which a message arrived while a command ran.
fn steered() -> Value {
    json!({
        "model": "claude-opus-4-8", "stream": true, "max_tokens": 64000, "thinking": {"type": "adaptive"},
        "system": [
            {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "# Environment\n - Primary working directory: /agent/data/workdirs/c1\n - Shell: sh"},
        ],
        "tools": [{"name": "Bash", "input_schema": {}}, {"name": "mcp__xpander__tell_user", "input_schema": {}}],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": REMINDER}, {"type": "text", "text": "build the thing"},
            ]},
            {"role": "system", "content": "Available agent types for the Agent tool: …"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "text", "text": "run"},
                {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "sh hello.sh"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "hi", "is_error": false},
            ]},
            {"role": "system", "content": STEER},
        ],
    })
}

#[test]
fn a_request_is_flattened_to_who_said_what() {
    let view = read_as(&[("x-claude-code-session-id", "s1"), ("authorization", "Bearer t1")], &steered());
    assert_eq!((view.session.as_deref(), view.agent, view.stream), (Some("s1"), AgentKind::Main, true));
    assert_eq!(view.authorization(), Some("Bearer t1"));
    assert_eq!(view.user_texts(), ["build the thing", "also do X"]);
    assert_eq!(view.last_user(), Some("also do X"));
    assert_eq!(view.last_tool_result(), Some("hi"));
    assert_eq!(view.working_directory(), Some("/agent/data/workdirs/c1"));
    assert!(view.offers("shell") && view.offers("mcp/tell_user") && !view.offers("Write"));
    let kinds: Vec<_> = view.items.iter().map(|item| (item.role, &item.kind)).collect();
    let call = ItemKind::ToolCall {
        id: "toolu_1".into(),
        name: "Bash".into(),
        input: json!({"command": "sh hello.sh"}),
    };
    assert_eq!(
        kinds,
        [
            (Role::User, &ItemKind::Injected),
            (Role::User, &ItemKind::Text),
            (Role::System, &ItemKind::Injected),
            (Role::Assistant, &ItemKind::Other),
            (Role::Assistant, &ItemKind::Text),
            (Role::Assistant, &call),
            (Role::User, &ItemKind::ToolResult { call: "toolu_1".into(), is_error: false }),
            (Role::System, &ItemKind::Steer),
        ]
    );
}

#[test]
fn on_a_model_without_system_items_the_steer_stands_in_the_tools_result() {
    let mut body = steered();
    let result = format!("hi\n\n<system-reminder>\n{STEER}\n</system-reminder>");
    body["messages"][3]["content"][0]["content"] = json!([{"type": "text", "text": result}]);
    body["messages"].as_array_mut().unwrap().truncate(4);
    let view = read_as(&[], &body);
    assert_eq!((view.last_tool_result(), view.last_user()), (Some("hi"), Some("also do X")));
}

#[test]
fn sub_agents_and_compactions_are_told_from_the_main_agent() {
    let sub = read_as(&[("x-claude-code-agent-id", "a3e9")], &steered());
    assert_eq!(sub.agent, AgentKind::Sub);
    let body = json!({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "fourth\n"},
        {"type": "text", "text": "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."},
    ]}]});
    assert_eq!(read_as(&[], &body).agent, AgentKind::Compaction);
}

#[test]
fn what_is_no_messages_request_is_refused() {
    let refused = read(1, HeaderMap::new(), Bytes::from_static(b"{\"model\": \"m\"}"));
    assert!(refused.unwrap_err().to_string().contains("messages"));
}

/// The stream as text, pauses and gates between angle brackets.
fn played(view: &RequestView, reply: &Reply) -> String {
    let pieces = stream(view, reply).into_iter().map(|piece| match piece {
        Piece::Data(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => format!("<{other:?}>\n"),
    });
    pieces.collect()
}

#[test]
fn a_stream_has_exactly_these_events_in_this_order() {
    let view = read_as(&[("x-claude-code-session-id", "s1")], &steered());
    let reply = Reply::text("two words")
        .chunked(Duration::from_millis(30))
        .and_tool("shell", json!({"command": "ls", "background": true}))
        .and_tool("mcp/tell_user", json!({"text": "hi"}))
        .with_usage(Usage { input: 100, output: 20, cache_read: 3, cache_write: 4 });
    let id = view.answer_id().simple();
    let (first, second) = (tool_id(&view, 0), tool_id(&view, 1));
    let expected = format!(
        r#"event: message_start
data: {{"message":{{"content":[],"id":"msg_{id}","model":"claude-opus-4-8","role":"assistant","stop_reason":null,"stop_sequence":null,"type":"message","usage":{{"cache_creation_input_tokens":4,"cache_read_input_tokens":3,"input_tokens":100,"output_tokens":1}}}},"type":"message_start"}}

event: content_block_start
data: {{"content_block":{{"text":"","type":"text"}},"index":0,"type":"content_block_start"}}

event: content_block_delta
data: {{"delta":{{"text":"two ","type":"text_delta"}},"index":0,"type":"content_block_delta"}}

<Pause(30ms)>
event: content_block_delta
data: {{"delta":{{"text":"words","type":"text_delta"}},"index":0,"type":"content_block_delta"}}

<Pause(30ms)>
event: content_block_stop
data: {{"index":0,"type":"content_block_stop"}}

event: content_block_start
data: {{"content_block":{{"id":"{first}","input":{{}},"name":"Bash","type":"tool_use"}},"index":1,"type":"content_block_start"}}

event: content_block_delta
data: {{"delta":{{"partial_json":"{{\"command\":\"ls\",\"description\":\"Run a command\",\"run_in_background\":true}}","type":"input_json_delta"}},"index":1,"type":"content_block_delta"}}

event: content_block_stop
data: {{"index":1,"type":"content_block_stop"}}

event: content_block_start
data: {{"content_block":{{"id":"{second}","input":{{}},"name":"mcp__xpander__tell_user","type":"tool_use"}},"index":2,"type":"content_block_start"}}

event: content_block_delta
data: {{"delta":{{"partial_json":"{{\"text\":\"hi\"}}","type":"input_json_delta"}},"index":2,"type":"content_block_delta"}}

event: content_block_stop
data: {{"index":2,"type":"content_block_stop"}}

event: message_delta
data: {{"delta":{{"stop_reason":"tool_use","stop_sequence":null}},"type":"message_delta","usage":{{"output_tokens":20}}}}

event: message_stop
data: {{"type":"message_stop"}}

"#
    );
    assert_eq!(played(&view, &reply), expected);
}

#[test]
fn a_gate_and_a_cut_come_after_the_text_and_before_its_end() {
    let view = read_as(&[], &steered());
    let held = played(&view, &Reply::text("partial").held("g"));
    let (before, after) = held.split_once("<Hold(\"g\")>\n").unwrap();
    assert!(before.contains("partial") && after.starts_with("event: content_block_stop"), "{held}");
    let cut = played(&view, &Reply::text("partial").and_tool("shell", json!({"command": "ls"})).cut());
    assert!(
        cut.ends_with("<Cut>\n") && !cut.contains("content_block_stop") && !cut.contains("tool_use"),
        "{cut}"
    );
}

#[test]
fn without_a_stream_the_same_message_comes_whole() {
    let view = read_as(&[], &steered());
    let message = whole(&view, &Reply::text("hi").and_tool("agent", json!({"prompt": "p"})));
    assert_eq!(
        message,
        json!({
            "id": format!("msg_{}", view.answer_id().simple()),
            "type": "message", "role": "assistant", "model": "claude-opus-4-8",
            "content": [
                {"type": "text", "text": "hi"},
                {"type": "tool_use", "id": tool_id(&view, 0), "name": "Agent", "input": {"prompt": "p"}},
            ],
            "stop_reason": "tool_use", "stop_sequence": null,
            "usage": {"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
                      "output_tokens": 5},
        })
    );
    assert_eq!(whole(&view, &Reply::text("hi"))["stop_reason"], "end_turn");
}

#[test]
fn ids_differ_between_requests_and_are_the_same_for_the_same_one() {
    let view = read_as(&[], &steered());
    assert_eq!(view.answer_id(), read_as(&[], &steered()).answer_id());
    let mut longer = steered();
    longer["messages"].as_array_mut().unwrap().push(json!({"role": "user", "content": "more"}));
    assert_ne!(view.answer_id(), read_as(&[], &longer).answer_id());
    assert_ne!(tool_id(&view, 0), tool_id(&view, 1));
}

#[test]
fn an_error_names_its_kind_as_the_provider_does() {
    let error = failure(402, "Execution stopped: budget exceeded.");
    assert_eq!(error["error"]["type"], "billing_error");
    assert_eq!(error["error"]["message"], "Execution stopped: budget exceeded.");
}
