//! `wait_for`: what a process waits for, and what became of it. One wait is booked at a time; what has happened stands
//! in the state until the harness has taken the note that tells it.

use serde::{Deserialize, Serialize};

use super::{Change, Fact, Phase, State, WakeClass, WakeTrigger, crash, shown};
use crate::Refusal;
use crate::ids::{Epoch, EventSeq, QuestionId, WaitId};
use crate::policy;
use crate::time::Timestamp;

/// The one booked wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    pub id: WaitId,
    /// In the agent's words.
    pub reason: String,
    pub on: WaitOn,
    pub booked_at: Timestamp,
    /// The segment that booked it.
    pub epoch: Epoch,
    /// Where the search for events that came before the booking begins, fixed when it was booked.
    #[serde(default, skip_serializing_if = "LookBack::is_unset")]
    pub look_back: LookBack,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum WaitOn {
    Time {
        until: Timestamp,
    },
    Event {
        event: EventKey,
        /// Which events wake it; none named means those that the source wakes on by itself.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        kinds: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout: Option<Timestamp>,
    },
    Answer {
        question: QuestionId,
    },
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum EventKey {
    /// A pull request.
    Github { repo: String, number: u64 },
}

/// What was there when the process last parked or started, and which events it was given since.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookBack {
    pub after: EventSeq,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<EventSeq>,
}

/// A wait that is over and that the agent is not told of yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fired {
    pub wait: WaitId,
    pub at: Timestamp,
    pub reason: String,
    pub outcome: WaitOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum WaitOutcome {
    /// The time has come.
    Time {
        until: Timestamp,
    },
    Event(Box<EventDigest>),
    /// The event did not come in time.
    TimedOut {
        event: EventKey,
        timeout: Timestamp,
    },
}

/// What a process is told of an event. Everything in it but the sequence comes from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventDigest {
    pub seq: EventSeq,
    pub key: EventKey,
    /// As the source names it, with its action: `issue_comment.created`.
    pub kind: String,
    /// What happened, in a sentence.
    pub summary: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// What the source says the author is to the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub association: Option<String>,
    /// What the author wrote, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What `wait_for` asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitRequest {
    pub reason: String,
    pub on: WaitOn,
}

/// Why a wait is no longer booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitClosed {
    Fired,
    TimedOut,
    /// Another was booked instead.
    Replaced,
    /// The agent took it back.
    Cancelled,
    /// The question it waited for was answered or is closed.
    Answered,
    /// The process has ended.
    Ended,
}

// === the agent's side ===

/// Books a wait in place of the one before it.
pub(super) fn book(state: &mut State, request: &WaitRequest, id: WaitId, now: Timestamp) -> Vec<Fact> {
    if let Err(why) = check(state, &request.on, now) {
        return vec![Fact::Refused { input: None, why }];
    }
    let mut facts = state.close_wait(WaitClosed::Replaced);
    let wait = Wait {
        id,
        reason: shown(&request.reason, policy::WAIT_REASON_SHOWN_MAX),
        on: request.on.clone(),
        booked_at: now,
        epoch: state.epoch,
        look_back: state.look_back.clone(),
    };
    facts.push(Fact::WaitBooked { wait: wait.id });
    state.wait = Some(wait);
    facts
}

pub(super) fn cancel(state: &mut State) -> Vec<Fact> {
    let facts = state.close_wait(WaitClosed::Cancelled);
    if facts.is_empty() {
        return vec![Fact::Refused { input: None, why: Refusal::NothingBooked }];
    }
    facts
}

fn check(state: &State, on: &WaitOn, now: Timestamp) -> Result<(), Refusal> {
    let ends = match on {
        WaitOn::Time { until } => Some(*until),
        WaitOn::Event { timeout, .. } => *timeout,
        WaitOn::Answer { question } => {
            let open = state.cards.iter().any(|card| card.asks(*question));
            return if open { Ok(()) } else { Err(Refusal::NoSuchQuestion { questions: vec![*question] }) };
        }
    };
    if state.fired.len() >= policy::FIRED_MAX {
        return Err(Refusal::UnreadNotes);
    }
    match ends {
        Some(until) if until.since(now) < policy::WAIT_LEAD_MIN => Err(Refusal::WaitTooSoon { until, now }),
        _ => Ok(()),
    }
}

// === what happens outside ===

/// An event that the booked wait waits for has come.
pub(super) fn happened(
    last: Option<&State>,
    wait: WaitId,
    event: &EventDigest,
    now: Timestamp,
) -> Result<Change, Refusal> {
    let (mut state, booked) = booked(last, wait)?;
    let given = &mut state.look_back.given;
    if given.contains(&event.seq) {
        return Err(Refusal::NotBooked { wait });
    }
    // The oldest is below where the next search begins long before there are so many.
    if given.len() >= policy::EVENTS_GIVEN_MAX {
        given.remove(0);
    }
    given.push(event.seq);
    let outcome = WaitOutcome::Event(Box::new(event.clone()));
    Ok(fire(state, &booked, outcome, WaitClosed::Fired, now))
}

/// The time of the booked wait has come, or that of the rest after a crash.
pub(super) fn due(last: Option<&State>, wait: WaitId, now: Timestamp) -> Result<Change, Refusal> {
    if let Some(rested) = last.and_then(|state| crash::rested(state, wait, now)) {
        return rested;
    }
    let (state, booked) = booked(last, wait)?;
    let (until, outcome, closed) = match &booked.on {
        WaitOn::Time { until } => (*until, WaitOutcome::Time { until: *until }, WaitClosed::Fired),
        WaitOn::Event { event, timeout: Some(timeout), .. } => {
            let outcome = WaitOutcome::TimedOut { event: event.clone(), timeout: *timeout };
            (*timeout, outcome, WaitClosed::TimedOut)
        }
        WaitOn::Event { timeout: None, .. } | WaitOn::Answer { .. } => {
            return Err(Refusal::NotBooked { wait });
        }
    };
    if now < until {
        return Err(Refusal::NotYetDue { wait, until });
    }
    Ok(fire(state, &booked, outcome, closed, now))
}

fn booked(last: Option<&State>, wait: WaitId) -> Result<(State, Wait), Refusal> {
    let live = last.filter(|state| state.is_live());
    let booked = live.and_then(|state| Some((state, state.wait.as_ref().filter(|known| known.id == wait)?)));
    booked.map(|(state, wait)| (state.clone(), wait.clone())).ok_or(Refusal::NotBooked { wait })
}

/// Hot, it becomes a note; parked, the process wakes.
fn fire(mut state: State, wait: &Wait, outcome: WaitOutcome, closed: WaitClosed, now: Timestamp) -> Change {
    let mut facts = state.close_wait(closed);
    state.finishing = None;
    state.fired.push(Fired { wait: wait.id, at: now, reason: wait.reason.clone(), outcome });
    let barred = matches!(&state.phase, Phase::Parked { reason, .. } if reason.bars());
    if matches!(state.phase, Phase::Parked { .. }) && !barred {
        facts.push(state.wake(WakeTrigger::Wait, WakeClass::Event, now));
    }
    Change { facts, state }
}

// === impl State ===

impl State {
    pub(super) fn close_wait(&mut self, closed: WaitClosed) -> Vec<Fact> {
        let wait = self.wait.take();
        wait.map(|wait| Fact::WaitClosed { wait: wait.id, closed }).into_iter().collect()
    }

    /// From here on an event counts as new.
    pub(super) fn looks_back_to(&mut self, events: Option<EventSeq>) {
        if let Some(after) = events.filter(|after| *after >= self.look_back.after) {
            self.look_back = LookBack { after, given: Vec::new() };
        }
    }
}

// === impl LookBack ===

impl LookBack {
    /// Nothing was there and nothing was given.
    pub fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

// === impl Wait ===

impl Wait {
    /// When it is over at the latest.
    pub const fn due_at(&self) -> Option<Timestamp> {
        match &self.on {
            WaitOn::Time { until } => Some(*until),
            WaitOn::Event { timeout, .. } => *timeout,
            WaitOn::Answer { .. } => None,
        }
    }
}

// === events ===

/// The events of a pull request that a wait can name, and which of their actions wake one that names none. What the
/// agent's own push brings about (`synchronize`, `requested`) is not among them.
pub const GITHUB_KINDS: [(&str, &[&str]); 7] = [
    ("pull_request", &["closed"]),
    ("pull_request_review", &["submitted"]),
    ("pull_request_review_comment", &[]),
    ("issue_comment", &["created"]),
    ("check_suite", &["completed"]),
    ("check_run", &[]),
    ("workflow_run", &["completed"]),
];

/// Whether an event of this kind (`issue_comment.created`) is one that a wait with these kinds waits for.
pub fn wakes(kinds: &[String], kind: &str) -> bool {
    let (event, action) = kind.split_once('.').unwrap_or((kind, ""));
    if kinds.is_empty() {
        return GITHUB_KINDS.iter().any(|(name, actions)| *name == event && actions.contains(&action));
    }
    kinds.iter().any(|wanted| wanted == kind || wanted == event)
}

impl std::fmt::Display for EventKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Github { repo, number } => write!(f, "pull request {repo}#{number}"),
        }
    }
}

impl std::fmt::Display for WaitOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Time { until } => write!(f, "until {until}"),
            Self::Event { event, timeout: None, .. } => write!(f, "for {event}"),
            Self::Event { event, timeout: Some(timeout), .. } => {
                write!(f, "for {event}, at most until {timeout}")
            }
            Self::Answer { question } => write!(f, "for the answer to {question}"),
        }
    }
}
