//! `wait_for`: the process parks until a time has come or something has happened.

use std::time::Duration;

use domain::Timestamp;
use domain::process::{EventKey, GITHUB_KINDS, WaitOn, WaitRequest};
use domain::segment::Ask;
use rmcp::handler::server::tool::schema_for_type;
use rmcp::model::{CallToolResult, JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Asked, Calls, already_ended, declined, read, said, unavailable};

pub(super) const NAME: &str = "wait_for";

/// A sentence. What is longer belongs into the notes.
const REASON_BYTES_MAX: usize = 2_000;

/// The name of an owner, a repository or a kind.
const NAME_BYTES_MAX: usize = 100;

/// Kinds of events in one wait; a source has about a dozen.
const KINDS_MAX: usize = 16;

const DESCRIPTION: &str = "Waits without doing anything, for minutes or for weeks: your process parks and costs nothing, \
    and goes on with the same files and this conversation when the time has come (until) or something has happened \
    (event). One of the two, and a reason that the person reads. After the call end your turn; a message of the person \
    reaches you in between, and the wait stays booked. One wait is booked at a time: another one replaces it, and \
    {\"cancel\": true} drops it. Never wait in a loop or with sleep.";

const TAKES: &str = "wait_for takes reason and one of until (a time with its zone, as 2026-12-01T09:00:00Z) and event, or \
    cancel: true alone";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Why you wait, for the person: one sentence.
    reason: Option<String>,
    /// The time to wait for, as RFC 3339 with its zone: 2026-12-01T09:00:00+01:00.
    until: Option<String>,
    /// The event to wait for.
    event: Option<Event>,
    /// Drops the booked wait.
    #[serde(default)]
    cancel: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, tag = "source", rename_all = "lowercase")]
enum Event {
    /// Something that happens to a pull request on GitHub.
    Github {
        /// owner/name
        repo: String,
        /// The number of the pull request.
        number: u64,
        /// Which events wake you, as pull_request.closed or check_suite. None named: closed or merged, a review, a
        /// comment, a check suite or workflow run that completed.
        #[serde(default)]
        kinds: Vec<String>,
        /// When to stop waiting: a time with its zone, or a number of seconds from now. You are woken with the outcome
        /// timed_out.
        timeout: Option<Timeout>,
    },
    /// The answer to a question that you asked with tell_user.
    Question {
        /// The question's id.
        id: String,
    },
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Timeout {
    Seconds(u32),
    Time(String),
}

pub(super) fn tool() -> Tool {
    Tool::new(NAME, DESCRIPTION, schema_for_type::<Arguments>())
}

pub(super) async fn call(calls: &dyn Calls, arguments: JsonObject, now: Timestamp) -> CallToolResult {
    let arguments: Arguments = match read(arguments, TAKES) {
        Ok(arguments) => arguments,
        Err(answer) => return answer,
    };
    let ask = match asked(arguments, now) {
        Ok(ask) => ask,
        Err(why) => return declined(format!("Nothing was booked: {why}. {TAKES}. Call it again.")),
    };
    let cancels = ask == Ask::CancelWait;
    let on = match &ask {
        Ask::Wait(request) => request.on.to_string(),
        _ => String::new(),
    };
    match calls.ask(ask).await {
        Asked::Done { .. } if cancels => said("The wait is dropped. Go on with the work."),
        Asked::Done { running, .. } => said(booked(&on, &running)),
        Asked::AlreadyEnded { outcome } => already_ended(&outcome),
        Asked::Refused { why } => declined(format!("Nothing was booked: {why}.")),
        Asked::Unavailable(why) => unavailable(&why),
    }
}

fn booked(on: &str, running: &[String]) -> String {
    if running.is_empty() {
        return format!("Booked: you wait {on}. End your turn now; you are woken with what has happened.");
    }
    format!(
        "Booked: you wait {on}. Still running: {}. Your process parks when they have ended. End your turn now; you are \
         woken with what has happened.",
        running.join("; ")
    )
}

fn asked(arguments: Arguments, now: Timestamp) -> Result<Ask, String> {
    let Arguments { reason, until, event, cancel } = arguments;
    if cancel {
        return match (until, event) {
            (None, None) => Ok(Ask::CancelWait),
            _ => Err("cancel stands alone".into()),
        };
    }
    let reason = reason.filter(|reason| !reason.trim().is_empty()).ok_or("the reason is missing")?;
    if reason.len() > REASON_BYTES_MAX {
        return Err(format!("the reason has {} bytes, and may have {REASON_BYTES_MAX}", reason.len()));
    }
    let on = match (until, event) {
        (Some(_), Some(_)) => return Err("it names both until and event".into()),
        (None, None) => return Err("it names neither until nor event".into()),
        (Some(until), None) => WaitOn::Time { until: time(&until)? },
        (None, Some(Event::Github { repo, number, kinds, timeout })) => WaitOn::Event {
            event: pull_request(repo, number)?,
            kinds: known(kinds)?,
            timeout: ends(timeout, now)?,
        },
        (None, Some(Event::Question { id })) => {
            WaitOn::Answer { question: id.parse().map_err(|error| format!("{error}"))? }
        }
    };
    Ok(Ask::Wait(WaitRequest { reason, on }))
}

fn pull_request(repo: String, number: u64) -> Result<EventKey, String> {
    let named =
        |part: &str| !part.is_empty() && part.len() <= NAME_BYTES_MAX && !part.contains(char::is_whitespace);
    match repo.split_once('/') {
        Some((owner, name)) if named(owner) && named(name) && !name.contains('/') && number > 0 => {
            Ok(EventKey::Github { repo, number })
        }
        _ => Err(format!("{repo:?} and {number} name no pull request; write repo as owner/name")),
    }
}

fn known(kinds: Vec<String>) -> Result<Vec<String>, String> {
    let is_known = |kind: &String| {
        let event = kind.split_once('.').map_or(kind.as_str(), |(event, _)| event);
        kind.len() <= NAME_BYTES_MAX && GITHUB_KINDS.iter().any(|(name, _)| *name == event)
    };
    match kinds.iter().find(|kind| !is_known(kind)) {
        None if kinds.len() <= KINDS_MAX => Ok(kinds),
        None => Err(format!("{} kinds are named, and {KINDS_MAX} may be", kinds.len())),
        Some(kind) => {
            let names: Vec<_> = GITHUB_KINDS.iter().map(|(name, _)| *name).collect();
            Err(format!(
                "{kind:?} is no kind of event; {} are, alone or with an action behind a dot",
                names.join(", ")
            ))
        }
    }
}

fn ends(timeout: Option<Timeout>, now: Timestamp) -> Result<Option<Timestamp>, String> {
    Ok(match timeout {
        None => None,
        Some(Timeout::Seconds(seconds)) => Some(now.plus(Duration::from_secs(seconds.into()))),
        Some(Timeout::Time(text)) => Some(time(&text)?),
    })
}

fn time(text: &str) -> Result<Timestamp, String> {
    text.trim().parse().map_err(|error| format!("{error}"))
}
