//! What GitHub delivers: signed or nothing, once, and nothing lost between a wait and an event.

use std::time::Duration;

use bus::{LogReading, Port, last_event};
use contract::buckets::Hooks;
use contract::messages::event::EventEntry;
use contract::subjects::filter;
use contract::topology::{EVENTS, WAKER};
use domain::ids::{EventSeq, HookId};
use domain::process::{
    EventKey, ParkReason, Phase, SegmentEvent, State, TurnOutcome, WaitOn, WaitOutcome, WaitRequest,
};
use serde_json::json;
use tests::github::{Github, JSON, check_suite, comment, pull};
use tests::wait::eventually;

use crate::served::{Hand, Served, org, post, seq, text};

const REPO: &str = "owner/na.me";
const WITHIN: Duration = Duration::from_secs(20);

/// What is stored of events: what each is about, and its kind.
async fn events(served: &Served) -> Vec<(String, String)> {
    let (mut events, mut from) = (Vec::new(), 1);
    let all = filter::all_events();
    while let Some(stored) = served.operator.next(EVENTS, &all, from).await.expect("the events") {
        from = stored.sequence + 1;
        let entry: EventEntry = stored.decode().expect("an event");
        events.push((entry.key.to_string(), entry.kind));
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_signed_is_refused_and_what_nobody_waits_for_is_not_kept() {
    let served = Served::start().await;
    let github = Github::connect(&served.operator, &served.member().await, org(1)).await;
    let body = comment(REPO, 7, "hello").to_string().into_bytes();
    for secret in ["another", ""] {
        let answer = github.deliver("issue_comment", "d1", body.clone(), JSON, secret).await;
        assert_eq!(answer.status, 401, "{answer:?}");
    }
    let unsigned = github.unsigned("issue_comment", body.clone()).await;
    assert_eq!(unsigned.status, 401, "{unsigned:?}");
    let mut strange = github.clone();
    strange.hook = HookId::UNKNOWN;
    let answer = strange.deliver("issue_comment", "d1", body.clone(), JSON, &github.secret).await;
    assert_eq!(answer.status, 404, "{answer:?}");
    github.tell("star", &json!({ "action": "created", "repository": { "full_name": REPO } })).await;
    github.tell("ping", &json!({ "zen": "x" })).await;
    let broken = github.deliver("issue_comment", "d1", b"{".to_vec(), JSON, &github.secret).await;
    assert_eq!(broken.status, 400, "{broken:?}");
    assert_eq!(events(&served).await, []);

    // One delivery is one event, however often it is sent, and in either form.
    for _ in 0..3 {
        let answer = github.deliver("issue_comment", "d2", body.clone(), JSON, &github.secret).await;
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    let payload: String = body.iter().map(|byte| format!("%{byte:02x}")).collect();
    let form = format!("payload={payload}").into_bytes();
    let kind = "application/x-www-form-urlencoded";
    let answer = github.deliver("issue_comment", "d3", form, kind, &github.secret).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let one = || ("pull request owner/na.me#7".to_owned(), "issue_comment.created".to_owned());
    assert_eq!(events(&served).await, [one(), one()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_of_25_megabytes_is_taken_and_a_new_secret_beside_the_old_one() {
    let served = Served::start().await;
    let mut github = Github::connect(&served.operator, &served.member().await, org(1)).await;
    let mut large = comment(REPO, 7, "hello");
    large["padding"] = "x".repeat(24 * 1024 * 1024).into();
    github.tell("issue_comment", &large).await;
    large["padding"] = "x".repeat(25 * 1024 * 1024).into();
    let body = large.to_string().into_bytes();
    let answer = github.deliver("issue_comment", "d", body, JSON, &github.secret).await;
    assert_eq!(answer.status, 413, "{answer:?}");
    assert_eq!(events(&served).await.len(), 1);

    let row = bus::kv::get::<Hooks>(&served.operator, &github.hook).await.expect("a row");
    let mut hook = row.value.expect("a hook");
    hook.secrets.push("the new one".into());
    bus::kv::overwrite::<Hooks>(&served.operator, &hook.id, &hook).await.expect("stored");
    for secret in ["the secret", "the new one"] {
        github.secret = secret.into();
        github.tell("issue_comment", &comment(REPO, 7, secret)).await;
    }
    assert_eq!(events(&served).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_of_a_fork_finds_the_pull_request_whose_head_it_is() {
    let served = Served::start().await;
    let github = Github::connect(&served.operator, &served.member().await, org(1)).await;
    github.tell("check_suite", &check_suite(REPO, "c1")).await;
    github.tell("pull_request", &pull(REPO, 7, "opened", "c1")).await;
    github.tell("check_suite", &check_suite(REPO, "c1")).await;
    github.tell("pull_request", &pull(REPO, 7, "synchronize", "c2")).await;
    github.tell("check_suite", &check_suite(REPO, "c1")).await;
    github.tell("check_suite", &check_suite(REPO, "c2")).await;
    let kinds: Vec<_> = events(&served).await.into_iter().map(|(_, kind)| kind).collect();
    let expected =
        ["pull_request.opened", "check_suite.completed", "pull_request.synchronize", "check_suite.completed"];
    assert_eq!(kinds, expected, "the checks of a commit that is no head any more find nobody");
}

/// A process with a hand on it, which waits for pull requests.
struct Waiter {
    served: Served,
    github: Github,
    conversation: String,
    hand: Hand,
}

impl Waiter {
    async fn start() -> Self {
        let served = Served::start().await;
        let waker = served.broker.connect(WAKER).await;
        let mut log = LogReading::default();
        let steps = [log.follower(), log.follower()];
        log.start(&waker);
        tokio::spawn(waker::run(waker.into(), served.runtime(), steps));
        let api = served.member().await;
        let github = Github::connect(&served.operator, &api, org(1)).await;
        let agent = api.agent().await;
        let record = post(&api, &format!("/v1/agents/{agent}/invoke/async"), text("begin")).await.body;
        let conversation = record["id"].as_str().expect("an id").to_owned();
        let mut hand = served.claim(&conversation).await;
        let first = seq(served.key(&conversation), &record["activity"][0]["message_id"]);
        hand.take(&[first]).await;
        Self { served, github, conversation, hand }
    }

    async fn state(&self) -> State {
        self.served.state(self.served.key(&self.conversation)).await.expect("a state")
    }

    async fn book(&mut self, number: u64) {
        let event = EventKey::Github { repo: REPO.into(), number };
        let on = WaitOn::Event { event, kinds: Vec::new(), timeout: None };
        self.hand.report(vec![SegmentEvent::Wait(WaitRequest { reason: "r".into(), on })]).await;
    }

    async fn park(&mut self) {
        let events = Some(last_event(&self.served.operator).await.expect("the events"));
        let outcome = TurnOutcome::Completed;
        let park = SegmentEvent::Park { reason: ParkReason::WaitEvent, unfinished: false, events };
        self.hand.report(vec![SegmentEvent::TurnEnded { outcome }, park]).await;
    }

    /// Waits until the process is woken, takes it, and is told what has happened.
    async fn woken(&mut self) -> (u64, EventSeq) {
        eventually("a wake", WITHIN, async || match self.state().await {
            state if matches!(state.phase, Phase::Waking { .. }) => Ok(()),
            state => Err(state.public()),
        })
        .await;
        self.hand = self.served.claim(&self.conversation).await;
        self.told().await
    }

    /// What has fired and is not told yet: which pull request it is about, and where it stands. Then it is told.
    async fn told(&mut self) -> (u64, EventSeq) {
        let fired = eventually("an event", WITHIN, async || {
            let state = self.state().await;
            state.fired.first().cloned().ok_or(state.public())
        })
        .await;
        let WaitOutcome::Event(event) = &fired.outcome else { panic!("{fired:?}") };
        let EventKey::Github { number, .. } = event.key;
        self.hand.report(vec![SegmentEvent::Consumed { inputs: Vec::new(), fired: vec![fired.wait] }]).await;
        let state = self.state().await;
        assert!(state.wait.is_none() && state.fired.is_empty(), "it is over and told: {state:?}");
        (number, event.seq)
    }

    async fn comment(&self, number: u64) {
        self.github.tell("issue_comment", &comment(REPO, number, "look")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_rounds_in_which_an_event_wakes_once_and_none_is_lost_between_two_waits() {
    let mut waiter = Waiter::start().await;
    for round in 0..50 {
        waiter.book(1).await;
        waiter.park().await;
        waiter.comment(1).await;
        let (number, woke) = waiter.woken().await;
        assert_eq!(number, 1, "round {round}");
        // While it is busy with the first, something happens to the second.
        waiter.comment(2).await;
        waiter.book(1).await;
        waiter.comment(1).await;
        let (number, next) = waiter.told().await;
        assert!(number == 1 && next > woke, "round {round}: what woke it does not fire the next wait");
        waiter.book(2).await;
        let (number, between) = waiter.told().await;
        assert!(number == 2 && woke < between && between < next, "round {round}: nothing in between is lost");
    }
}
