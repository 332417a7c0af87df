//! Thousands of waits are due at one instant, and few slots are there: how soon the slots are taken, how late the wakes
//! are, and how long the whole storm takes.

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

pub(crate) async fn run() {
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
