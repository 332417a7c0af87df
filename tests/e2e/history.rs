//! A long life leaves a short log: where a process rests, the history of its conversation is cut to its bound.

use std::time::Duration;

use contract::buckets::Role;
use contract::topology::OPERATOR;
use domain::policy::HISTORY_STEPS_KEPT;
use domain::process::ConversationKey;
use futures_util::StreamExt;
use tests::installation::program;
use tests::wait::eventually;
use tests::{Installation, Options, log};

/// Each is a step of its own, so that the log outgrows its bound.
const STEERS: u64 = HISTORY_STEPS_KEPT + 50;

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_busy_process_is_cut_where_it_rests_and_the_process_goes_on() {
    let harness = Some(program("scripted-harness"));
    let options = Options { harness, park_after: Duration::from_secs(1), ..Options::default() };
    let installation = Installation::with(options).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    let steers = futures_util::stream::iter(0..STEERS).map(|n| {
        let (api, agent, conversation) = (api.clone(), agent.clone(), conversation.clone());
        async move { api.say(&agent, &conversation, &format!("steer {n}"), "auto").await }
    });
    let said: Vec<String> = steers.buffer_unordered(16).collect().await;
    let last = said.iter().max().expect("steers");
    api.until_receipt(&agent, &conversation, last, "consumed").await;
    let operator = installation.broker.connect(OPERATOR).await;
    let record = api.record(&agent, &conversation).await;
    let key = ConversationKey {
        org: serde_json::from_value(record["organization_id"].clone()).expect("an id"),
        conversation: serde_json::from_value(record["id"].clone()).expect("an id"),
    };
    assert!(
        log::steps(&operator, key).await.len() as u64 > HISTORY_STEPS_KEPT,
        "while it works nothing is cut"
    );

    api.say(&agent, &conversation, "end", "auto").await;
    api.until("a park", &agent, &conversation, |record| record["process"]["state"] == "parked").await;
    eventually("a short log", Duration::from_secs(20), async || {
        match log::steps(&operator, key).await.len() as u64 {
            steps if (1..=HISTORY_STEPS_KEPT).contains(&steps) => Ok(()),
            steps => Err(steps),
        }
    })
    .await;

    let next = api.say(&agent, &conversation, "go on", "auto").await;
    api.until_receipt(&agent, &conversation, &next, "consumed").await;
    let woken = api.record(&agent, &conversation).await;
    assert_eq!(woken["process"]["id"], record["process"]["id"]);
}
