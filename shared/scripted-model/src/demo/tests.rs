//! The demo model over whole conversations: a little harness that runs nothing, only answers the calls.

use axum::http::HeaderMap;
use serde_json::Value;

use super::*;
use crate::wire::Wire;

const TOOLS: [&str; 4] = ["Write", "Bash", "mcp__xpander__tell_user", "mcp__xpander__finish_process"];

/// What the harness would send, and what it would do with the answer.
struct Conversation {
    tools: Vec<&'static str>,
    messages: Vec<Value>,
}

impl Conversation {
    fn with(tools: &[&'static str], first: &str) -> Self {
        let mut conversation = Self { tools: tools.to_vec(), messages: Vec::new() };
        conversation.says(first);
        conversation
    }

    fn says(&mut self, text: &str) {
        self.messages.push(json!({"role": "user", "content": text}));
    }

    fn steers(&mut self, text: &str) {
        let item = format!(
            "The user sent a new message while you were working:\n{text}\n\nIMPORTANT: After completing your current \
             task, you MUST address the user's message above. Do not ignore it."
        );
        self.messages.push(json!({"role": "system", "content": item}));
    }

    fn reply(&mut self) -> Reply {
        let tools: Vec<Value> = self.tools.iter().map(|name| json!({"name": name})).collect();
        let system = "# Environment\n - Primary working directory: /work/tree\n";
        let body = json!({"model": "m", "system": system, "messages": self.messages, "tools": tools});
        let request = Wire::AnthropicMessages.read(1, HeaderMap::new(), body.to_string().into()).unwrap();
        let reply = DemoModel.respond(&request).unwrap();
        let mut blocks = Vec::new();
        blocks.extend(reply.text.iter().map(|text| json!({"type": "text", "text": text})));
        for (at, call) in reply.tools.iter().enumerate() {
            assert!(request.offers(&call.alias), "{} is not on offer", call.alias);
            let id = format!("{}-{at}", self.messages.len());
            let name = Wire::AnthropicMessages.tool_name(&call.alias);
            blocks.push(json!({"type": "tool_use", "id": id, "name": name, "input": call.input}));
        }
        self.messages.push(json!({"role": "assistant", "content": blocks}));
        reply
    }

    /// Answers every call of the last reply alike.
    fn results(&mut self, text: &str, is_error: bool) {
        let last = self.messages.len() - 1;
        let calls = self.messages[last]["content"].as_array().unwrap().iter();
        let results: Vec<Value> = calls
            .filter(|block| block["type"] == "tool_use")
            .map(|call| {
                json!({"type": "tool_result", "tool_use_id": call["id"], "content": text, "is_error": is_error})
            })
            .collect();
        self.messages.push(json!({"role": "user", "content": results}));
    }

    /// One reply and the success of its calls; gives its text and the aliases called.
    fn round(&mut self, result: &str) -> (String, Vec<String>) {
        let reply = self.reply();
        self.results(result, false);
        (words(&reply), aliases(&reply))
    }
}

fn words(reply: &Reply) -> String {
    reply.text.clone().unwrap_or_default()
}

fn aliases(reply: &Reply) -> Vec<String> {
    reply.tools.iter().map(|call| call.alias.clone()).collect()
}

#[test]
fn the_first_message_gets_the_whole_job() {
    let mut talk = Conversation::with(&TOOLS, "make me a site");
    let (text, calls) = talk.round("told");
    assert!(text.contains("make me a site"), "{text}");
    assert_eq!(calls, ["mcp/tell_user"]);
    let reply = talk.reply();
    assert_eq!(aliases(&reply), ["Write", "Write"]);
    assert_eq!(reply.tools[0].input["file_path"], "/work/tree/hello.sh");
    talk.results("written", false);
    assert_eq!(talk.round("2 checks passed").1, ["shell"]);
    let finish = talk.reply();
    assert_eq!(aliases(&finish), ["mcp/finish_process"]);
    assert!(finish.tools[0].input["summary"].as_str().unwrap().contains("“2 checks passed”"));
    talk.results("Finished.", false);
    let closing = talk.reply();
    assert!(closing.tools.is_empty() && words(&closing).starts_with("Done"), "{closing:?}");
    assert_eq!(closing.chunk_ms, Some(40));
}

fn after_the_first_job() -> Conversation {
    let mut talk = Conversation::with(&TOOLS, "first");
    for _ in 0..4 {
        talk.round("fine");
    }
    assert!(talk.reply().tools.is_empty());
    talk
}

#[test]
fn a_later_message_is_noted_and_finished() {
    let mut talk = after_the_first_job();
    talk.says("it's Tuesday\nagain");
    let reply = talk.reply();
    assert!(words(&reply).contains("it's Tuesday again"), "{reply:?}");
    let command = reply.tools[0].input["command"].as_str().unwrap();
    assert_eq!(command, r"printf '%s\n' '- it'\''s Tuesday again' >> NOTES.md");
    talk.results("", false);
    assert_eq!(talk.round("Finished.").1, ["mcp/finish_process"]);
    assert!(talk.reply().tools.is_empty());
}

#[test]
fn a_steer_in_the_middle_is_mentioned_once_and_stands_in_the_summary() {
    let mut talk = Conversation::with(&TOOLS, "first");
    talk.round("told");
    talk.steers("in blue please");
    let (text, calls) = talk.round("written");
    assert!(text.contains("in blue please") && calls == ["Write", "Write"], "{text}");
    assert!(!talk.round("2 checks passed").0.contains("in blue please"));
    let finish = talk.reply();
    assert!(finish.tools[0].input["summary"].as_str().unwrap().contains("in blue please"));
}

#[test]
fn an_error_is_told_tried_once_more_and_then_finished_with() {
    let mut talk = Conversation::with(&TOOLS, "first");
    talk.round("told");
    talk.reply();
    talk.results("disk full", true);
    let again = talk.reply();
    assert!(words(&again).contains("disk full"), "{again:?}");
    assert_eq!(aliases(&again), ["shell", "shell"], "the second try takes the other way");
    talk.results("disk still full", true);
    let finish = talk.reply();
    assert_eq!(aliases(&finish), ["mcp/finish_process"]);
    assert!(finish.tools[0].input["summary"].as_str().unwrap().contains("disk still full"));
}

#[test]
fn a_held_finish_ends_the_turn_and_is_called_again_when_somebody_speaks() {
    let mut talk = Conversation::with(&TOOLS, "first");
    for _ in 0..3 {
        talk.round("fine");
    }
    talk.round("held: still open: question qst_1, answer or withdraw it");
    let told = talk.reply();
    assert!(told.tools.is_empty() && words(&told).contains("question qst_1"), "{told:?}");
    talk.says("the answer is 42");
    let (text, calls) = talk.round("Finished.");
    assert!(text.contains("the answer is 42") && calls == ["mcp/finish_process"], "{text}");
    assert!(words(&talk.reply()).starts_with("Done"));
}

#[test]
fn a_finish_held_for_a_message_is_called_again_when_the_message_comes_with_it() {
    let mut talk = Conversation::with(&TOOLS, "first");
    for _ in 0..3 {
        talk.round("fine");
    }
    talk.round("held: still open: a message arrived");
    talk.steers("one more thing");
    let (text, calls) = talk.round("Finished.");
    assert!(text.contains("one more thing") && calls == ["mcp/finish_process"], "{text}");
}

#[test]
fn a_finish_that_fails_is_tried_twice_and_no_more() {
    let mut talk = Conversation::with(&TOOLS, "first");
    for _ in 0..3 {
        talk.round("fine");
    }
    for _ in 0..2 {
        assert_eq!(aliases(&talk.reply()), ["mcp/finish_process"]);
        talk.results("the registry does not answer", true);
    }
    let told = talk.reply();
    assert!(told.tools.is_empty() && words(&told).contains("the registry does not answer"), "{told:?}");
}

#[test]
fn a_job_that_was_interrupted_goes_on_where_it_was() {
    let mut talk = Conversation::with(&TOOLS, "first");
    talk.round("told");
    talk.round("written");
    talk.says("[Request interrupted by user]\n");
    talk.says("go on");
    let (text, calls) = talk.round("2 checks passed");
    assert!(text.contains("go on") && calls == ["shell"], "{text}");
}

#[test]
fn without_the_calls_of_a_process_the_work_is_done_and_told_in_words() {
    let mut talk = Conversation::with(&["Write", "Bash"], "first");
    assert_eq!(talk.round("written").1, ["Write", "Write"]);
    assert_eq!(talk.round("2 checks passed").1, ["shell"]);
    let closing = talk.reply();
    assert!(closing.tools.is_empty() && words(&closing).contains("2 checks passed"), "{closing:?}");
    talk.says("second");
    assert!(talk.reply().tools[0].input["command"].as_str().unwrap().contains("second"));
}

#[test]
fn without_any_tool_there_are_only_words() {
    let mut talk = Conversation::with(&[], "first");
    let reply = talk.reply();
    assert!(reply.tools.is_empty() && words(&reply).contains("first"), "{reply:?}");
    talk.says("second");
    let reply = talk.reply();
    assert!(words(&reply).contains("second") && !words(&reply).contains("first"), "{reply:?}");
}

#[test]
fn the_script_and_its_check_fit_each_other() {
    let folder = std::env::temp_dir().join(format!("scripted-model-demo-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for deed in [Deed::Program, Deed::Check] {
        let (name, content) = file(deed);
        std::fs::write(folder.join(name), content).unwrap();
    }
    let output =
        std::process::Command::new("sh").args(["-c", job::RUN_CHECK]).current_dir(&folder).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"2 checks passed"), "{output:?}");
}

#[test]
fn a_long_text_is_quoted_in_part() {
    let quote = quoted(&"ä ".repeat(200));
    assert!(quote.ends_with('…') && quote.chars().count() == QUOTED_CHARS + 1, "{quote}");
}
