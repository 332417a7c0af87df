//! A message to a process that works: how long from the 202 to the harness's standard input, how many a second with
//! their consumption, and how many durable writes each costs. The scripted harness stands in for Claude Code, which
//! would measure a model.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bus::{Outgoing, Port};
use contract::Subject;
use contract::buckets::Role;
use contract::messages::record::{InputEntry, InputKind, Source};
use contract::topology::{INGRESS, streams};
use domain::ids::MessageId;
use domain::process::Mode;
use futures_util::StreamExt;
use tests::api::Api;
use tests::installation::program;
use tests::wait::eventually;
use tests::{Installation, Options, builders};

use crate::{arrivals, now, percentile};

const SINGLES: usize = 300;
const STEERS: usize = 2_000;
const IN_FLIGHT: [usize; 3] = [1, 16, 64];

/// What a rig of this design without HTTP did on one node that syncs every write.
const BARE_RIG_PER_SECOND: f64 = 880.0;

pub(crate) async fn run() {
    let installation =
        Installation::with(Options { harness: Some(program("scripted-harness")), ..Options::default() })
            .await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    api.until("work", &agent, &conversation, |record| record["process"]["state"] == "hot_working").await;

    let mut publishes = durable_publishes(&installation).await;
    let publish = (percentile(&mut publishes, 0.5), percentile(&mut publishes, 0.99));
    println!("durable publish (256 B, one at a time): p50 {:?}, p99 {:?}", publish.0, publish.1);

    let mut latencies = to_the_harness(&installation, &api, &agent, &conversation).await;
    let (p50, p99) = (percentile(&mut latencies, 0.5), percentile(&mut latencies, 0.99));
    let ratio = |of: Duration| of.as_secs_f64() / publish.0.as_secs_f64();
    println!("202 to the harness's stdin, hot, one at a time, in durable publishes (p50):");
    println!(
        "  p50 {:.1} x (target 4), p99 {:.1} x (target 12)   [{p50:?}, {p99:?}]",
        ratio(p50),
        ratio(p99)
    );

    let before = stored(&installation).await;
    let mut said = 0;
    for in_flight in IN_FLIGHT {
        let rate = steers_per_second(&api, &agent, &conversation, in_flight).await;
        said += STEERS;
        println!(
            "hot steers, consumption included, {in_flight:>2} in flight: {rate:.0}/s ({:.0} % of the bare rig's {BARE_RIG_PER_SECOND}/s, which has no HTTP, no accounts, no record of the receipts and no sandbox)",
            100.0 * rate / BARE_RIG_PER_SECOND
        );
    }
    let after = stored(&installation).await;
    let mut names: Vec<_> = after.keys().collect();
    names.sort();
    let each = |name: &String| (after[name] - before.get(name).copied().unwrap_or(0)) as f64 / said as f64;
    let parts: Vec<_> = names
        .iter()
        .filter(|name| each(name) > 0.001)
        .map(|name| format!("{name} {:.2}", each(name)))
        .collect();
    let all: f64 = names.iter().map(|name| each(name)).sum();
    println!("durable writes per steer: {all:.2} ({})", parts.join(", "));
}

/// What everything else is told by.
pub(crate) async fn durable_publishes(installation: &Installation) -> Vec<Duration> {
    let nats = installation.broker.connect(INGRESS).await;
    let entry = InputEntry {
        at: tests::now(),
        agent: builders::agent(),
        from: builders::user(),
        author: None,
        source: Source::Api,
        idempotency_key: None,
        what: InputKind::Message { text: String::new(), files: vec!["x".repeat(100)], mode: Mode::Steer },
    };
    let mut samples = Vec::new();
    for _ in 0..SINGLES {
        let message = Outgoing::message(&Subject::RecordIn(builders::key(99)), &entry);
        let begun = now();
        nats.publish(message).await.expect("stored");
        samples.push(now() - begun);
    }
    samples
}

async fn to_the_harness(
    installation: &Installation,
    api: &Api,
    agent: &str,
    conversation: &str,
) -> Vec<Duration> {
    let mut accepted = HashMap::new();
    for n in 0..SINGLES {
        let id = api.say(agent, conversation, &format!("steer {n}"), "auto").await;
        accepted.insert(frame(&id), now());
        api.until_receipt(agent, conversation, &id, "consumed").await;
    }
    let arrivals: HashMap<_, _> = arrivals(installation, agent, conversation).into_iter().collect();
    accepted.into_iter().filter_map(|(id, at)| Some(arrivals.get(&id)?.saturating_sub(at))).collect()
}

async fn steers_per_second(api: &Api, agent: &str, conversation: &str, in_flight: usize) -> f64 {
    let (api, agent, conversation) = (Arc::new(api.clone()), agent.to_owned(), conversation.to_owned());
    let begun = now();
    let last = futures_util::stream::iter(0..STEERS)
        .map(|n| {
            let (api, agent, conversation) = (Arc::clone(&api), agent.clone(), conversation.clone());
            async move { api.say(&agent, &conversation, &format!("steer {n}"), "auto").await }
        })
        .buffer_unordered(in_flight)
        .fold(String::new(), |last, id| async move { last.max(id) })
        .await;
    eventually("the last steer consumed", Duration::from_secs(120), async || {
        match api.receipt(&agent, &conversation, &last).await {
            receipt if receipt["receipt"] == "consumed" => Ok(()),
            receipt => Err(receipt),
        }
    })
    .await;
    STEERS as f64 / (now() - begun).as_secs_f64()
}

/// Messages ever stored, by stream.
async fn stored(installation: &Installation) -> HashMap<String, u64> {
    let jetstream = installation.broker.jetstream().await;
    let mut all = HashMap::new();
    for stream in streams() {
        let handle = jetstream.get_stream(&stream.name).await.expect("a stream");
        all.insert(stream.name, handle.cached_info().state.last_sequence);
    }
    all
}

fn frame(message: &str) -> String {
    message.parse::<MessageId>().expect("an id").uuid().to_string()
}
