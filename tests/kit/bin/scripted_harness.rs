//! A harness for storms: it speaks Claude Code's protocol and calls no model. A frame starts a turn that goes on until
//! one says `end`; every frame is echoed at once. When it began and when each frame arrived is written into the working
//! tree, in nanoseconds of the machine's monotonic clock.

use std::fs::File;
use std::io::{BufRead, Write, stdin, stdout};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Where the arrivals are written: `begun` or a frame's id, and its time, by lines.
const ARRIVALS: &str = "arrivals.txt";

fn main() -> std::io::Result<()> {
    let mut out = stdout().lock();
    if std::env::args().any(|argument| argument == "--version") {
        return writeln!(out, "0.0.1 (scripted harness)");
    }
    let mut arrivals = File::options().create(true).append(true).open(ARRIVALS)?;
    writeln!(arrivals, "begun {}", nanos())?;
    let mut running = false;
    for line in stdin().lock().lines() {
        let line = line?;
        let arrived = nanos();
        let Ok(frame) = serde_json::from_str::<Value>(&line) else { continue };
        match frame["type"].as_str() {
            Some("user") => {
                writeln!(arrivals, "{} {arrived}", frame["uuid"].as_str().unwrap_or_default())?;
                if !running {
                    running = true;
                    say(
                        &mut out,
                        &json!({ "type": "system", "subtype": "session_state_changed", "state": "running" }),
                    )?;
                }
                let mut echo = frame.clone();
                echo["isReplay"] = true.into();
                say(&mut out, &echo)?;
                if frame["message"]["content"].to_string().contains("end") {
                    running = false;
                    end_turn(&mut out)?;
                }
            }
            Some("control_request") => {
                let answer =
                    json!({ "subtype": "success", "request_id": frame["request_id"], "response": {} });
                say(&mut out, &json!({ "type": "control_response", "response": answer }))?;
                match frame["request"]["subtype"].as_str() {
                    Some("end_session") => return Ok(()),
                    Some("interrupt") if running => {
                        running = false;
                        end_turn(&mut out)?;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn nanos() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn end_turn(out: &mut impl Write) -> std::io::Result<()> {
    say(
        out,
        &json!({ "type": "result", "subtype": "success", "is_error": false, "num_turns": 1, "result": "ok" }),
    )?;
    say(out, &json!({ "type": "system", "subtype": "session_state_changed", "state": "idle" }))
}

fn say(out: &mut impl Write, frame: &Value) -> std::io::Result<()> {
    writeln!(out, "{frame}")?;
    out.flush()
}
