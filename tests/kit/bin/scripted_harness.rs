//! A harness for storms: it speaks Claude Code's protocol and calls no model. A frame starts a turn that goes on until a
//! frame's last line has one of the words `end`, `wait` (it books a wait of a second first) or `finish` (it finishes its
//! process first), or until the runtime tells it something. Every frame is echoed at once. What it was told, and when it
//! began and each frame arrived, is written into the working tree.

use std::fs::File;
use std::io::{BufRead, Read, Result, Write, stdin, stdout};
use std::net::TcpStream;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// `begun` or a frame's id, and when, in nanoseconds of the machine's monotonic clock; by lines.
const ARRIVALS: &str = "arrivals.txt";

/// Every line of every frame.
const HEARD: &str = "heard.txt";

/// Where the executor answers calls, from inside.
const EXECUTOR: &str = "127.0.0.1:18080";

/// How what the runtime tells begins.
const RUNTIME: &str = "[xpander]";

const WAITS_FOR: Duration = Duration::from_millis(1_100);

struct Harness<W> {
    out: W,
    arrivals: File,
    heard: File,
    running: bool,
}

fn main() -> Result<()> {
    let mut out = stdout().lock();
    if std::env::args().any(|argument| argument == "--version") {
        return writeln!(out, "0.0.1 (scripted harness)");
    }
    let open = |name| File::options().create(true).append(true).open(name);
    let mut arrivals = open(ARRIVALS)?;
    writeln!(arrivals, "begun {}", nanos())?;
    let mut harness = Harness { out, arrivals, heard: open(HEARD)?, running: false };
    for line in stdin().lock().lines() {
        let line = line?;
        let arrived = nanos();
        let Ok(frame) = serde_json::from_str::<Value>(&line) else { continue };
        match frame["type"].as_str() {
            Some("user") => harness.on_frame(frame, arrived)?,
            Some("control_request") if harness.on_control(&frame)? => return Ok(()),
            _ => {}
        }
    }
    Ok(())
}

impl<W: Write> Harness<W> {
    fn on_frame(&mut self, mut frame: Value, arrived: i64) -> Result<()> {
        writeln!(self.arrivals, "{} {arrived}", frame["uuid"].as_str().unwrap_or_default())?;
        let text = text_of(&frame["message"]["content"]);
        // In one piece: it may be killed at any time.
        self.heard.write_all(format!("{}\n", text.trim_end()).as_bytes())?;
        if !self.running {
            self.running = true;
            self.say(&json!({ "type": "system", "subtype": "session_state_changed", "state": "running" }))?;
        }
        frame["isReplay"] = true.into();
        self.say(&frame)?;
        let order = |word| text.lines().last().is_some_and(|line| line.split(' ').any(|said| said == word));
        if order("finish") {
            call("finish_process", &json!({ "summary": "all done" }))?;
        } else if order("wait") {
            let until = jiff::Timestamp::UNIX_EPOCH + real_time() + WAITS_FOR;
            call("wait_for", &json!({ "reason": "as told", "until": until.to_string() }))?;
        } else if !order("end") && !text.starts_with(RUNTIME) {
            return Ok(());
        }
        self.end_turn()
    }

    /// Whether the session is over.
    fn on_control(&mut self, frame: &Value) -> Result<bool> {
        let answer = json!({ "subtype": "success", "request_id": frame["request_id"], "response": {} });
        self.say(&json!({ "type": "control_response", "response": answer }))?;
        match frame["request"]["subtype"].as_str() {
            Some("end_session") => return Ok(true),
            Some("interrupt") if self.running => self.end_turn()?,
            _ => {}
        }
        Ok(false)
    }

    fn end_turn(&mut self) -> Result<()> {
        self.running = false;
        let result = json!({ "type": "result", "subtype": "success", "is_error": false, "num_turns": 1, "result": "ok" });
        self.say(&result)?;
        self.say(&json!({ "type": "system", "subtype": "session_state_changed", "state": "idle" }))
    }

    fn say(&mut self, frame: &Value) -> Result<()> {
        writeln!(self.out, "{frame}")?;
        self.out.flush()
    }
}

/// Calls one of the agent's tools and reads the answer to its end.
#[expect(clippy::disallowed_methods, reason = "the token comes to a harness in its environment")]
fn call(tool: &str, arguments: &Value) -> Result<()> {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": tool, "arguments": arguments } })
    .to_string();
    let token = std::env::var("RESIDENT_TOKEN").unwrap_or_default();
    let mut executor = TcpStream::connect(EXECUTOR)?;
    write!(
        executor,
        "POST /mcp HTTP/1.1\r\nhost: {EXECUTOR}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    executor.read_to_end(&mut Vec::new())?;
    Ok(())
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        _ => String::new(),
    }
}

fn nanos() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn real_time() -> Duration {
    let now = clock_gettime(ClockId::Realtime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}
