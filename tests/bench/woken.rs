//! An event comes for a parked process: how long from the 202 until its claim stands in the log, and how long its sandbox
//! and its harness take from there.

use std::collections::HashMap;
use std::time::Duration;

use bus::{Reader, Seen, Start};
use contract::buckets::Role;
use contract::subjects::filter;
use contract::topology::{OPERATOR, PROCESS, REGISTRY};
use domain::process::{ConversationKey, Fact, Step};
use tests::api::Api;
use tests::github::{Github, comment};
use tests::installation::program;
use tests::parked::{self, Parked};
use tests::wait::eventually;
use tests::{Installation, Options};

use crate::hot_steer::durable_publishes;
use crate::{now, percentile};

const ROUNDS: u128 = 100;

pub(crate) async fn run() {
    let options = Options {
        harness: Some(program("scripted-harness")),
        park_after: Duration::from_secs(1),
        ..Options::default()
    };
    let installation = Installation::with(options).await;
    let api = installation.api(Role::Operator).await;
    let agent = api.agent().await;
    let github = Github::connect(&installation.broker.connect(OPERATOR).await, &api, installation.org).await;
    let registry = installation.broker.connect(REGISTRY).await;
    let publish = percentile(&mut durable_publishes(&installation).await, 0.5);
    let all: Vec<_> = (1..=ROUNDS).map(|n| waiting(&installation, &agent, n)).collect();
    parked::write(&registry, all.iter().cloned()).await;
    shown(&api, ROUNDS as usize).await;

    let mut log = Reader::open(&registry, PROCESS, filter::all_logs(), Start::New);
    // Until it follows, nothing is to happen.
    while !matches!(log.next().await, Seen::CaughtUp) {}
    let mut claims = Vec::new();
    let mut claimed = HashMap::new();
    for parked in &all {
        github.tell("issue_comment", &comment("owner/name", parked.n as u64, "Looks good.")).await;
        let told = now();
        let at = seen(&mut log, parked.key(), |fact| matches!(fact, Fact::Claimed { .. })).await;
        claims.push(at.saturating_sub(told));
        claimed.insert(parked.n, at);
        // The next one finds a free slot and an idle machine.
        seen(&mut log, parked.key(), |fact| matches!(fact, Fact::Parked { .. })).await;
    }
    let mut begins: Vec<_> = all
        .iter()
        .map(|parked| begun(&installation, &agent, parked).saturating_sub(claimed[&parked.n]))
        .collect();
    let ratio = |of: Duration| of.as_secs_f64() / publish.as_secs_f64();
    let (p50, p99) = (percentile(&mut claims, 0.5), percentile(&mut claims, 0.99));
    println!(
        "event in (its 202) to the claim seen, parked, free slot: p50 {:.1} x a durable publish (target 12), p99 {:.1} x   [{p50:?}, {p99:?}]",
        ratio(p50),
        ratio(p99)
    );
    let (p50, p99) = (percentile(&mut begins, 0.5), percentile(&mut begins, 0.99));
    println!("  from there to a harness that runs (files, sandbox, start): p50 {p50:?}, p99 {p99:?}");
}

fn waiting(installation: &Installation, agent: &str, n: u128) -> Parked {
    let agent = agent.parse().expect("an id");
    Parked { org: installation.org, agent, n, wait: Some(parked::pull_request(n)) }
}

/// Waits until the fleet's list shows this many: then every role has read of them.
async fn shown(api: &Api, count: usize) {
    eventually("the fleet's list", Duration::from_secs(60), async || {
        let page = api.get("/fleet/processes?state=parked&limit=200").await;
        let found = page["items"].as_array().map_or(0, Vec::len);
        if found == count { Ok(()) } else { Err(found) }
    })
    .await;
}

async fn seen(log: &mut Reader, key: ConversationKey, wanted: impl Fn(&Fact) -> bool) -> Duration {
    loop {
        let Seen::Message(stored) = log.next().await else { continue };
        let at = now();
        let step: Step = stored.decode().expect("a step");
        if step.state.key() == key && step.facts.iter().any(&wanted) {
            return at;
        }
    }
}

/// When its harness began.
fn begun(installation: &Installation, agent: &str, parked: &Parked) -> Duration {
    let conversation = parked.key().conversation.to_string();
    let arrivals = crate::arrivals(installation, agent, &conversation);
    arrivals.into_iter().find(|(what, _)| what == "begun").expect("it began").1
}
