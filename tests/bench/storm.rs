//! Waits that are due: how late their wakes are one by one, and when thousands are due at one instant and few slots are
//! there, how soon the slots are taken and how long the whole storm takes.

use std::collections::HashMap;
use std::time::Duration;

use bus::{Reader, Seen, Start};
use contract::buckets::Role;
use contract::subjects::filter;
use contract::topology::{PROCESS, REGISTRY};
use domain::Timestamp;
use domain::ids::ProcessId;
use domain::process::{Fact, Step, WaitClosed, WaitOn};
use tests::installation::program;
use tests::parked::{self, Parked};
use tests::{Installation, Options};

use crate::percentile;

const WAITS: usize = 5_000;
const SLOTS: u16 = 50;

/// Writing them all and setting their timers is over by then.
const LEAD: Duration = Duration::from_secs(45);

/// What one process has been through.
#[derive(Debug, Default)]
struct Life {
    fired: usize,
    claimed: usize,
    parked: usize,
}

/// Waits that are due one after the other.
const SPACED: u32 = 100;
const SPACE: Duration = Duration::from_millis(100);

pub(crate) async fn run() {
    spaced().await;
    storm().await;
}

async fn spaced() {
    let options = Options { harness: Some(program("scripted-harness")), ..Options::default() };
    let installation = Installation::with(options).await;
    let agent = installation.api(Role::Member).await.agent().await.parse().expect("an id");
    let registry = installation.broker.connect(REGISTRY).await;
    let mut log = Reader::open(&registry, PROCESS, filter::all_logs(), Start::New);
    while !matches!(log.next().await, Seen::CaughtUp) {}
    let first = tests::now().plus(Duration::from_secs(5));
    let parked = |n: u32| Parked {
        org: installation.org,
        agent,
        n: n.into(),
        wait: Some(WaitOn::Time { until: first.plus(SPACE * n) }),
    };
    parked::write(&registry, (0..SPACED).map(parked)).await;
    let (mut due, mut late) = (HashMap::new(), Vec::new());
    while late.len() < SPACED as usize {
        let Seen::Message(stored) = log.next().await else { continue };
        let step: Step = stored.decode().expect("a step");
        if let Some(WaitOn::Time { until }) = step.state.wait.as_ref().map(|wait| &wait.on) {
            due.insert(step.state.process, *until);
        }
        if step.facts.iter().any(|fact| matches!(fact, Fact::WaitClosed { closed: WaitClosed::Fired, .. })) {
            let until = due[&step.state.process];
            assert!(step.at >= until, "before its time");
            late.push(step.at.since(until));
        }
    }
    let (p50, p99) = (percentile(&mut late, 0.5), percentile(&mut late, 0.99));
    println!(
        "waits due one after the other: their waking steps are late by p50 {p50:?}, p99 {p99:?} (at most 5 s)"
    );
}

async fn storm() {
    let options = Options {
        harness: Some(program("scripted-harness")),
        slots: SLOTS,
        park_after: Duration::from_secs(1),
        ..Options::default()
    };
    let installation = Installation::with(options).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await.parse().expect("an id");
    let registry = installation.broker.connect(REGISTRY).await;
    let until = tests::now().plus(LEAD);
    let parked = |n| Parked { org: installation.org, agent, n, wait: Some(WaitOn::Time { until }) };
    parked::write(&registry, (1..=WAITS as u128).map(parked)).await;
    let left = until.since(tests::now());
    assert!(left > Duration::from_secs(5), "the waits were written too late");

    let mut log = Reader::open(&registry, PROCESS, filter::all_logs(), Start::New);
    let mut lives: HashMap<ProcessId, Life> = HashMap::new();
    let (mut late, mut claims): (Vec<Duration>, Vec<Timestamp>) = (Vec::new(), Vec::new());
    let mut over = 0;
    let mut last = until;
    while over < WAITS {
        let Seen::Message(stored) = log.next().await else { continue };
        let step: Step = stored.decode().expect("a step");
        let life = lives.entry(step.state.process).or_default();
        for fact in &step.facts {
            match fact {
                Fact::WaitClosed { closed: WaitClosed::Fired, .. } => {
                    assert!(step.at >= until, "before its time");
                    life.fired += 1;
                    late.push(step.at.since(until));
                }
                Fact::Claimed { .. } => {
                    life.claimed += 1;
                    claims.push(step.at);
                }
                Fact::Parked { .. } => {
                    life.parked += 1;
                    over += 1;
                    last = step.at;
                }
                _ => {}
            }
        }
    }
    let once = lives.values().all(|life| (life.fired, life.claimed, life.parked) == (1, 1, 1));
    assert!(lives.len() == WAITS && once, "some were lost or doubled");
    claims.sort_unstable();
    let since = |at: Timestamp| at.since(until);
    println!(
        "{WAITS} waits due at once, {SLOTS} slots: the first {SLOTS} claims within {:?} (target 2 s), all claimed after {:?}, the storm over after {:?}; none lost, none doubled",
        since(claims[usize::from(SLOTS) - 1]),
        since(claims[WAITS - 1]),
        since(last)
    );
    let (p50, p99) = (percentile(&mut late, 0.5), percentile(&mut late, 0.99));
    println!(
        "  lateness of their waking steps: p50 {p50:?}, p99 {p99:?}, the last {:?}",
        late[late.len() - 1]
    );
}
