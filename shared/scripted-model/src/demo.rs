//! The demo model: what answers when there is no provider key. It does a small real job for a conversation's first
//! message, notes down the later ones, and keeps nothing: all it knows is the request in front of it, so any number
//! of conversations work, over restarts too. It does not understand what is said to it, and says so.

mod job;

use std::time::Duration;

use serde_json::json;

use crate::reply::{Reply, ToolCall, Usage};
use crate::request::{AgentKind, RequestView};
use crate::script::Responder;
use job::{Deed, Job};

/// Slow enough to be seen word by word, fast enough that the whole job takes seconds.
const PAUSE_PER_WORD: Duration = Duration::from_millis(40);
/// Characters of somebody else's text that are quoted.
const QUOTED_CHARS: usize = 160;
/// A token is about so many bytes; the demo's usage is meant to look alive, not to be exact.
const BYTES_PER_TOKEN: u64 = 4;

const PROGRAM: &str = r#"#!/bin/sh
# Greets whoever is named, or the world.
name=${1:-world}
printf 'Hello, %s!\n' "$name"
"#;

const CHECK: &str = r#"#!/bin/sh
# Runs hello.sh and compares what it prints.
expect() {
    if [ "$1" != "$2" ]; then
        echo "failed: expected '$1', got '$2'"
        exit 1
    fi
}
expect 'Hello, world!' "$(sh hello.sh)"
expect 'Hello, Resident!' "$(sh hello.sh Resident)"
echo '2 checks passed: it greets the world, and it greets by name'
"#;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct DemoModel;

impl Responder for DemoModel {
    fn respond(&self, request: &RequestView) -> Option<Reply> {
        let reply = match request.agent {
            AgentKind::Main => in_conversation(request),
            AgentKind::Sub => {
                Reply::text("I am the demo model; as a sub-agent I only report that I was asked.")
            }
            AgentKind::Compaction => Reply::text("<summary>The demo model did its small job here.</summary>"),
        };
        let usage = usage(request, &reply);
        Some(reply.chunked(PAUSE_PER_WORD).with_usage(usage))
    }
}

fn in_conversation(request: &RequestView) -> Reply {
    let job = Job::read(request);
    let deeds = if job.held.is_some() { Vec::new() } else { job.next(request) };
    let words = match deeds.first() {
        Some(deed) => step_words(&job, *deed),
        None => Some(closing(&job)),
    };
    let text = [greeting(&job), words].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let tools = deeds.into_iter().map(|deed| call(request, &job, deed)).collect();
    Reply { text: (!text.is_empty()).then_some(text), tools, ..Reply::default() }
}

/// What is said to messages that this reply is the first to see.
fn greeting(job: &Job<'_>) -> Option<String> {
    let said = job.fresh.iter().map(|text| format!("“{}”", quoted(text))).collect::<Vec<_>>().join(" and ");
    match (job.fresh.is_empty(), job.is_opening, job.number) {
        (true, _, _) => None,
        (_, true, 0) => Some(format!(
            "You said {said}. I am the demo model and do the same small job for everyone: a shell script and a check \
             of it, written and run here."
        )),
        (_, true, _) => Some(format!("You said {said}. I am only the demo model, so I write it down.")),
        (_, false, _) => Some(format!("Meanwhile I got {said}; it goes into the summary.")),
    }
}

fn step_words(job: &Job<'_>, deed: Deed) -> Option<String> {
    if let Some(error) = job.error_of(deed) {
        return Some(format!("That did not work: {}. I try once more.", quoted(error)));
    }
    let words = match deed {
        Deed::Tell => return None,
        Deed::Program | Deed::Check => {
            "First the script, hello.sh, and its check, hello_check.sh.".to_owned()
        }
        Deed::Run => "Both files are written. Now I run the check.".to_owned(),
        Deed::Note => "NOTES.md gets a line.".to_owned(),
        Deed::Finish => "That is all that I can do, so I finish with a summary.".to_owned(),
    };
    Some(words)
}

/// The last words of a turn: nothing is left to do, or nothing can be done now.
fn closing(job: &Job<'_>) -> String {
    if let Some(held) = job.held {
        format!(
            "I am kept from going on: “{}”. I end my turn here and continue when that is settled.",
            quoted(held)
        )
    } else if let Some(error) = job.error_of(Deed::Finish) {
        format!("Finishing did not work: {}. I stop here; say anything and I try again.", quoted(error))
    } else if job.messages.is_empty() {
        "Done. Whatever you say next starts a new process, and I will note it in NOTES.md.".to_owned()
    } else {
        outcome(job)
    }
}

/// What the job has come to, with what the command printed.
fn outcome(job: &Job<'_>) -> String {
    let result = match (job.output_of(Deed::Run), job.output_of(Deed::Note)) {
        (Some(printed), _) => {
            format!(
                "I wrote hello.sh and hello_check.sh and ran the check; it printed “{}”.",
                quoted(printed)
            )
        }
        (_, Some(_)) => "I wrote your message down in NOTES.md.".to_owned(),
        _ => match [Deed::Program, Deed::Check, Deed::Run, Deed::Note]
            .iter()
            .find_map(|deed| job.error_of(*deed))
        {
            Some(error) => format!("I tried twice and it did not work: {}.", quoted(error)),
            None => "There was no tool that I could do anything with.".to_owned(),
        },
    };
    let meanwhile: Vec<String> =
        job.messages.iter().skip(1).map(|text| format!("“{}”", quoted(text))).collect();
    match meanwhile.is_empty() {
        true => result,
        false => format!("{result} Meanwhile I got {}.", meanwhile.join(" and ")),
    }
}

fn call(request: &RequestView, job: &Job<'_>, deed: Deed) -> ToolCall {
    let shell = |description: &str, command: String| ToolCall {
        alias: "shell".to_owned(),
        input: json!({"command": command, "description": description}),
    };
    match deed {
        Deed::Tell => ToolCall {
            alias: "mcp/tell_user".to_owned(),
            input: json!({"text": "Writing a small script and a check for it; this takes a few seconds."}),
        },
        Deed::Program | Deed::Check => {
            let (name, content) = file(deed);
            // The second try takes the other way: the editor's refusals (a file that it has not read) do not bind it.
            match request.working_directory() {
                Some(directory) if request.offers("Write") && job.error_of(deed).is_none() => ToolCall {
                    alias: "Write".to_owned(),
                    input: json!({"file_path": format!("{directory}/{name}"), "content": content}),
                },
                _ => shell("Write a file", format!("cat > {name} <<'END'\n{content}END")),
            }
        }
        Deed::Run => shell("Run the check of hello.sh", job::RUN_CHECK.to_owned()),
        Deed::Note => {
            let line = quoted(job.messages.first().copied().unwrap_or_default()).replace('\'', r"'\''");
            shell("Note the message", format!("printf '%s\\n' '- {line}' >> {}", job::NOTES))
        }
        Deed::Finish => {
            ToolCall { alias: "mcp/finish_process".to_owned(), input: json!({"summary": outcome(job)}) }
        }
    }
}

fn file(deed: Deed) -> (&'static str, &'static str) {
    if deed == Deed::Program { (job::PROGRAM_FILE, PROGRAM) } else { (job::CHECK_FILE, CHECK) }
}

/// A text of somebody else's on one line, cut where it gets long, without the stop that a sentence of ours adds.
fn quoted(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.trim_end_matches('.');
    match line.char_indices().nth(QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

fn usage(request: &RequestView, reply: &Reply) -> Usage {
    let read: usize = request.items.iter().map(|item| item.text.len()).sum::<usize>() + request.system.len();
    let inputs: usize = reply.tools.iter().map(|call| call.input.to_string().len()).sum();
    let written = reply.text.as_ref().map_or(0, String::len) + inputs;
    let tokens = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX) / BYTES_PER_TOKEN + 1;
    Usage { input: tokens(read), output: tokens(written), ..Usage::default() }
}

#[cfg(test)]
mod tests;
