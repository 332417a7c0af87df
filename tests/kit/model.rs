//! What a scripted agent does, by the words of whoever it works for. Each message is a line `verb argument`, so that a
//! test says in its messages what is to happen.
//!
//! * `say TEXT` answers in words;
//! * `run COMMAND` runs a shell command and then says what it printed;
//! * `note TEXT` posts a note;
//! * `finish SUMMARY` finishes, and says what it was answered;
//! * `twice SUMMARY` finishes twice in one turn;
//! * `wait SECONDS` waits for a time and ends its turn;
//! * `watch OWNER/NAME#NUMBER` waits for a pull request;
//! * `ask QUESTION` asks, and `need QUESTION` asks and waits for the answer;
//! * `back COMMAND` runs a shell command in the background;
//! * `delegate ORDER` lets a sub-agent carry an order out in the background;
//! * `slow TEXT` streams words until the gate `slow` is opened.

use std::time::Duration;

use scripted_model::{Item, ItemKind, Reply, RequestView, Role, Script};
use serde_json::json;

/// A pause between the words of a streamed text.
const WORD_PAUSE: Duration = Duration::from_millis(20);

/// The agent that does what it is told.
pub fn obedient() -> Script {
    Script::from_responder(|request: &RequestView| Some(answer(request)))
}

fn answer(request: &RequestView) -> Reply {
    let after_tool = after_tool(request);
    let said = request.last_user().unwrap_or_default();
    // Several waiting messages come as one; each of their lines is one order, and the last one decides.
    let order = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let (verb, argument) = order.split_once(' ').unwrap_or((order, ""));
    let result = request.last_tool_result().unwrap_or_default();
    match (verb, after_tool) {
        ("run", false) => Reply::tool("shell", json!({ "command": argument, "description": "as told" })),
        ("run", true) => Reply::text(format!("it printed: {result}")),
        ("note", false) => Reply::tool("mcp/tell_user", json!({ "text": argument })),
        ("note", true) => Reply::text("noted"),
        ("finish" | "twice", false) => Reply::tool("mcp/finish_process", json!({ "summary": argument })),
        ("twice", true) if results(request) < 2 => {
            Reply::tool("mcp/finish_process", json!({ "summary": "again" }))
        }
        ("finish" | "twice", true) => Reply::text(format!("finishing was answered: {result}")),
        ("wait", false) => {
            let until = crate::now().plus(Duration::from_secs_f64(argument.parse().unwrap_or(0.0)));
            Reply::tool("mcp/wait_for", json!({ "reason": "as told", "until": until }))
        }
        ("wait", true) => Reply::text(format!("waiting was answered: {result}")),
        ("watch", false) => {
            let (repo, number) = argument.rsplit_once('#').unwrap_or((argument, "0"));
            let number: u64 = number.parse().unwrap_or(0);
            let event = json!({ "source": "github", "repo": repo, "number": number });
            Reply::tool("mcp/wait_for", json!({ "reason": "as told", "event": event }))
        }
        ("watch", true) => Reply::text(format!("waiting was answered: {result}")),
        ("ask" | "need", false) => Reply::tool(
            "mcp/tell_user",
            json!({ "text": "I need to know", "questions": [{ "text": argument }] }),
        ),
        ("need", true) if results(request) < 2 => {
            let asked =
                result.split(['.', ' ', ',']).find(|word| word.starts_with("qst_")).unwrap_or_default();
            let event = json!({ "source": "question", "id": asked });
            Reply::tool("mcp/wait_for", json!({ "reason": "the answer", "event": event }))
        }
        ("ask" | "need", true) => Reply::text(format!("asking was answered: {result}")),
        ("back", false) => Reply::tool(
            "shell",
            json!({ "command": argument, "description": "as told", "run_in_background": true }),
        ),
        ("back", true) => Reply::text("it runs"),
        ("delegate", false) => Reply::tool(
            "agent",
            json!({ "description": "the helper", "prompt": argument, "subagent_type": "general-purpose", "run_in_background": true }),
        ),
        ("delegate", true) => Reply::text("it is delegated"),
        ("slow", _) => Reply::text(argument).chunked(WORD_PAUSE).held("slow"),
        ("plan", false) => Reply::tool("TaskCreate", json!({ "subject": argument, "description": argument })),
        ("say", _) => Reply::text(argument).chunked(WORD_PAUSE),
        _ => Reply::text(format!("heard: {said}")),
    }
}

/// Whether a tool was answered last, and nobody has spoken since.
pub fn after_tool(request: &RequestView) -> bool {
    let told = |item: &&Item| !matches!(item.kind, ItemKind::Injected | ItemKind::Other);
    request.items.iter().rev().find(told).is_some_and(is_tool_result)
}

/// Results of tools since the last thing that was said.
fn results(request: &RequestView) -> usize {
    request.items.iter().rev().take_while(|item| !is_said(item)).filter(|item| is_tool_result(item)).count()
}

fn is_tool_result(item: &Item) -> bool {
    matches!(item.kind, ItemKind::ToolResult { .. })
}

fn is_said(item: &Item) -> bool {
    matches!((&item.kind, item.role), (ItemKind::Text, Role::User) | (ItemKind::Steer, _))
}
