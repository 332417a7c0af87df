//! The events of a conversation, as lines for a terminal. What an agent wrote cannot move the cursor or colour anything.

use serde_json::Value;

/// A tool's input and output are shown up to this many characters.
const VALUE_SHOWN_MAX: usize = 160;

/// What is shown of the events so far; chunks of text are joined into lines.
#[derive(Debug, Default)]
pub(super) struct Screen {
    line: String,
    substate: Option<String>,
}

impl Screen {
    /// The lines that an event adds.
    pub(super) fn show(&mut self, name: &str, data: &Value) -> Vec<String> {
        let text = |field: &str| plain(data[field].as_str().unwrap_or_default());
        match name {
            "chunk" => self.chunk(&plain(data["text"].as_str().unwrap_or_default()), data["done"] == true),
            "message_reset" => {
                self.line.clear();
                vec!["(the text above was cut off and begins again)".into()]
            }
            "process_state_changed" => self.state(&data["process"]),
            "message_receipt" if data["receipt"] == "accepted" && data["kind"] == "message" => {
                text("text").lines().map(|line| format!("person    {line}")).collect()
            }
            "turn_started" => vec![format!("turn      {}", data["turn"])],
            "tool_call_request" => {
                vec![format!("action    {} {}", text("tool_name"), shown(&data["payload"]))]
            }
            "tool_call_result" if data["is_error"] == true => {
                vec![format!("failed    {}", shown(&data["result"]))]
            }
            "tool_call_result" => vec![format!("result    {}", shown(&data["result"]))],
            "process_update" => vec![format!("note      {}", text("text"))],
            "ask_user_questions" if data["status"] == "open" => questions(&data["questions"]),
            "ask_user_questions" => vec![format!("question  {}", text("status"))],
            "notice" => vec![format!("notice    {}", text("text"))],
            "plan_updated" => vec![format!("plan      {}", shown(&data["items"]))],
            "task_finished" => vec![format!(
                "finished  {}: {}",
                text("status"),
                plain(data["result"].as_str().unwrap_or_default())
            )],
            _ => Vec::new(),
        }
    }

    fn chunk(&mut self, text: &str, done: bool) -> Vec<String> {
        self.line.push_str(text);
        let mut lines: Vec<String> = Vec::new();
        while let Some(end) = self.line.find('\n') {
            let line: String = self.line.drain(..=end).collect();
            lines.push(format!("agent     {}", line.trim_end()));
        }
        if done && !self.line.is_empty() {
            lines.push(format!("agent     {}", std::mem::take(&mut self.line)));
        }
        lines
    }

    fn state(&mut self, process: &Value) -> Vec<String> {
        let shown = match process["substate"].as_str() {
            Some(substate) => format!("{substate} ({})", process["state"].as_str().unwrap_or_default()),
            None => plain(process["status"].as_str().unwrap_or_default()),
        };
        if self.substate.replace(shown.clone()).as_ref() == Some(&shown) {
            return Vec::new();
        }
        let mut lines = vec![format!("state     {shown}")];
        let parked = process["state"] == "parked";
        if parked || process["substate"] == "Needs attention" {
            lines.push(format!("          {}", plain(process["next"].as_str().unwrap_or_default())));
        }
        lines
    }
}

fn questions(questions: &Value) -> Vec<String> {
    let asked = questions.as_array().into_iter().flatten();
    asked
        .map(|question| {
            let options: Vec<_> =
                question["options"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let options =
                if options.is_empty() { String::new() } else { format!(" [{}]", options.join(" | ")) };
            plain(&format!("question  {}{options}", question["text"].as_str().unwrap_or_default()))
        })
        .collect()
}

fn shown(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let text = plain(&text).replace('\n', " ⏎ ");
    match text.char_indices().nth(VALUE_SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Without what a terminal would obey: control characters, and marks that turn the direction of text.
pub(super) fn plain(text: &str) -> String {
    let obeyed = |c: &char| {
        (c.is_control() && *c != '\n' && *c != '\t')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().filter(|c| !obeyed(c)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_shown_by_lines_as_it_comes() {
        let mut screen = Screen::default();
        assert!(screen.show("chunk", &json!({ "text": "one " })).is_empty());
        assert_eq!(screen.show("chunk", &json!({ "text": "two\nth" })), ["agent     one two"]);
        assert_eq!(screen.show("chunk", &json!({ "text": "ree", "done": true })), ["agent     three"]);
    }

    #[test]
    fn a_state_is_shown_when_it_changes() {
        let mut screen = Screen::default();
        let working = json!({ "process": { "substate": "Working", "state": "hot_working" } });
        assert_eq!(screen.show("process_state_changed", &working), ["state     Working (hot_working)"]);
        assert!(screen.show("process_state_changed", &working).is_empty());
    }

    #[test]
    fn a_terminal_obeys_nothing_of_what_an_agent_wrote() {
        let evil = "\u{1b}]52;c;aGk=\u{7}red\u{1b}[31m\u{202e}x";
        assert_eq!(plain(evil), "]52;c;aGk=red[31mx");
    }
}
