//! Hot stays of the real Claude Code, as stories: deliver, wait for what it does, park.

use std::time::Duration;

use executor::harness::claude_code::{Claude, LaunchSpec, Running, Session, SessionEnd, mcp_json, start};
use executor::harness::{Exited, HarnessEvent, PlanItem, RunState, TurnOutcome, What};
use executor::volume::LockedDir;
use scripted_model::{Reply, RequestView, Script, Step};
use serde_json::json;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::runtime::{Runtime, TOKEN};
use super::{Bench, bench_with, claude, soon};

pub(crate) const SESSION: Uuid = Uuid::from_u128(0x5e55_1001);
/// An idle session ends in about 20 ms, one with a tool in about 40.
pub(crate) const PARK_DEADLINE: Duration = Duration::from_secs(10);

pub(crate) fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(0x1000 + number)
}

pub(crate) fn shell(command: &str) -> Reply {
    Reply::default().and_tool("shell", json!({"command": command, "description": "x"}))
}

pub(crate) fn steps<const N: usize>(replies: [Reply; N]) -> Script {
    let step = |(number, reply): (usize, Reply)| Step::new(format!("step {number}"), reply);
    replies.into_iter().enumerate().map(step).fold(Script::new(), Script::step)
}

/// One hot stay of a conversation.
pub(crate) struct Stay {
    pub(crate) claude: Claude,
    pub(crate) events: mpsc::Receiver<HarnessEvent>,
    pub(crate) seen: Vec<HarnessEvent>,
}

pub(crate) struct World {
    pub(crate) bench: Bench,
    pub(crate) runtime: Runtime,
}

pub(crate) async fn world<const N: usize>(replies: [Reply; N]) -> World {
    World { bench: bench_with(claude()), runtime: Runtime::start(steps(replies)).await }
}

impl World {
    pub(crate) async fn stay(&self, session: Session) -> Stay {
        let dir = self.bench.conversation("cnv_1");
        self.stay_in(&dir, session, Vec::new()).await
    }

    pub(crate) async fn stay_in(&self, dir: &LockedDir, session: Session, plan: Vec<PlanItem>) -> Stay {
        dir.configure("You answer in one word.", &mcp_json()).unwrap();
        self.runtime.serve(dir);
        let spec = LaunchSpec { session, model: None, token: TOKEN.to_owned().into() };
        let started = start(&self.bench.spawner, &self.bench.sandbox, dir, &spec, plan).await;
        let Running { claude, events } = started.unwrap_or_else(|error| panic!("{error}"));
        Stay { claude, events, seen: Vec::new() }
    }

    pub(crate) fn last_request(&self) -> RequestView {
        let requests = self.runtime.model.requests();
        (**requests.last().expect("a request")).clone()
    }

    /// Nothing the script asked for was missing from the harness.
    pub(crate) fn assert_sound(&self) {
        assert_eq!(self.runtime.model.faults(), []);
        assert_eq!(self.runtime.model.unused_steps(), [""; 0]);
    }
}

impl Stay {
    /// Takes events until one answers; what came is kept in `seen`.
    pub(crate) async fn until<T>(&mut self, what: &str, mut wanted: impl FnMut(&What) -> Option<T>) -> T {
        loop {
            let event = soon(what, self.events.recv()).await;
            let event = event.unwrap_or_else(|| panic!("the events ended before {what}: {:#?}", self.seen));
            let found = wanted(&event.what);
            self.seen.push(event);
            if let Some(found) = found {
                return found;
            }
            if let Some(HarnessEvent { what: What::Exited(exited), .. }) = self.seen.last() {
                panic!("{exited} before {what}: {:#?}", self.seen);
            }
        }
    }

    pub(crate) async fn consumed(&mut self, uuid: Uuid) {
        let is_it = |what: &What| (*what == What::Consumed { uuid }).then_some(());
        self.until("the message consumed", is_it).await;
    }

    pub(crate) async fn tool_started(&mut self) -> String {
        let started = |what: &What| match what {
            What::ToolStarted { id, .. } => Some(id.clone()),
            _ => None,
        };
        self.until("a tool started", started).await
    }

    pub(crate) async fn turn(&mut self) -> (TurnOutcome, String) {
        let ended = |what: &What| match what {
            What::TurnEnded { outcome, text } => Some((outcome.clone(), text.clone())),
            _ => None,
        };
        self.until("the end of the turn", ended).await
    }

    pub(crate) async fn completed(&mut self) -> String {
        let (outcome, text) = self.turn().await;
        assert_eq!(outcome, TurnOutcome::Completed, "{:#?}", self.seen);
        text
    }

    pub(crate) async fn idle(&mut self) {
        let idle = |what: &What| (*what == What::State(RunState::Idle)).then_some(());
        self.until("idle", idle).await;
    }

    pub(crate) async fn exited(&mut self) -> Exited {
        let exited = |what: &What| match what {
            What::Exited(exited) => Some(exited.clone()),
            _ => None,
        };
        self.until("the exit", exited).await
    }

    pub(crate) async fn park(mut self) -> Exited {
        assert_eq!(self.claude.end_session(PARK_DEADLINE).await.unwrap(), SessionEnd::InOrder);
        self.exited().await
    }
}
