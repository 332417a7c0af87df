//! Parked processes by the thousand, written into the log as the registry would have: each is what the steps of a small
//! life come to.

use bus::{Nats, Outgoing, Port};
use contract::Subject;
use domain::Timestamp;
use domain::ids::{AgentId, ConversationId, OrgId, RecordSeq};
use domain::process::{
    Cause, ConversationKey, Decision, EventKey, Harness, Input, Mode, ParkReason, SegmentEvent, Session,
    StartWith, State, Step, TurnOutcome, WaitOn, WaitRequest, step,
};
use futures_util::StreamExt;
use uuid::Uuid;

use crate::builders::{Life, user};

/// Publishes that are under way at once.
const IN_FLIGHT: usize = 1_000;

/// Their conversations are none of those that other builders name: ids are unique over all organizations.
const FIRST: u128 = 1 << 64;

const REASON: &str = "the review";

/// One that is to be parked.
#[derive(Debug, Clone)]
pub struct Parked {
    pub org: OrgId,
    pub agent: AgentId,
    pub n: u128,
    /// `None` where it has nothing to wait for.
    pub wait: Option<WaitOn>,
}

impl Parked {
    pub fn key(&self) -> ConversationKey {
        ConversationKey {
            org: self.org,
            conversation: ConversationId::from_uuid(Uuid::from_u128(FIRST + self.n)),
        }
    }

    /// The step that parked it.
    pub fn step(&self, now: Timestamp) -> Step {
        let start = Some(StartWith { harness: Harness::ClaudeCode, events: None });
        let input = Input::Message { mode: Mode::Auto, start };
        let first = RecordSeq(1);
        let life = Life::new(0, 1);
        let reason = match &self.wait {
            None => ParkReason::Absent,
            Some(WaitOn::Time { .. }) => ParkReason::WaitTime,
            Some(WaitOn::Event { .. }) => ParkReason::WaitEvent,
            Some(WaitOn::Answer { .. }) => ParkReason::Question,
        };
        let session = Session { id: Uuid::from_u128(self.n).to_string(), version: "0.0.1".into() };
        let mut lived = vec![
            SegmentEvent::Ready { session },
            SegmentEvent::TurnStarted,
            SegmentEvent::Consumed { inputs: vec![first], fired: Vec::new() },
            SegmentEvent::Noted { text: "The first half is done, and the tests pass.".into() },
        ];
        let request = |on: &WaitOn| SegmentEvent::Wait(WaitRequest { reason: REASON.into(), on: on.clone() });
        lived.extend(self.wait.as_ref().map(request));
        lived.push(SegmentEvent::TurnEnded { outcome: TurnOutcome::Completed });
        let causes = [
            Cause::Input { seq: first, from: user(), agent: self.agent, input },
            life.claim(1),
            life.report(1, 2, lived),
            life.report(1, 3, vec![SegmentEvent::Park { reason, unfinished: false, events: None }]),
        ];
        let mut last: Option<Step> = None;
        for cause in causes {
            let state: Option<&State> = last.as_ref().map(|step| &step.state);
            match step(self.key(), state, cause, now) {
                Ok(Decision::Append(step)) => last = Some(*step),
                other => panic!("{other:?}"),
            }
        }
        last.expect("a step")
    }
}

/// Writes them all. `nats` is one that may append.
pub async fn write(nats: &Nats, all: impl Iterator<Item = Parked>) {
    let now = crate::now();
    futures_util::stream::iter(all)
        .map(|parked| async move {
            let step = parked.step(now);
            let subject = Subject::Process(parked.key(), step.state.process);
            nats.publish(Outgoing::message(&subject, &step)).await.expect("stored");
        })
        .buffer_unordered(IN_FLIGHT)
        .collect::<()>()
        .await;
}

/// A pull request of its own for each.
pub fn pull_request(n: u128) -> WaitOn {
    let event = EventKey::Github { repo: "owner/name".into(), number: n as u64 };
    WaitOn::Event { event, kinds: Vec::new(), timeout: None }
}
