//! A fleet with fewer slots than work.

use std::time::Duration;

use contract::buckets::Role;
use serde_json::Value;
use tests::installation::program;
use tests::wait::eventually;
use tests::{Installation, Options, api::Api};

const WITHIN: Duration = Duration::from_secs(60);

/// How many are before a conversation's process, and what it says about it.
async fn place(api: &Api, agent: &str, conversation: &str) -> (Option<u64>, String) {
    let process = &api.record(agent, conversation).await["process"];
    (process["waiting_before"].as_u64(), process["next"].as_str().unwrap_or_default().to_owned())
}

async fn until_before(api: &Api, agent: &str, conversation: &str, before: u64) -> String {
    eventually("a place in the queue", WITHIN, async || {
        let (there, next) = place(api, agent, conversation).await;
        if there == Some(before) { Ok(next) } else { Err(format!("{there:?}: {next}")) }
    })
    .await
}

async fn until_state(api: &Api, agent: &str, conversation: &str, state: &str) -> Value {
    api.until(state, agent, conversation, |record| record["process"]["state"] == state).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_fleet_serves_every_wake_people_first_and_tells_each_its_place() {
    let options =
        Options { harness: Some(program("scripted-harness")), executors: 2, slots: 1, ..Options::default() };
    let installation = Installation::with(options).await;
    let api = installation.api(Role::Operator).await;
    let (agent, other) = (api.agent().await, api.agent().await);
    // It parks and comes back by its time alone; by then another has its slot.
    let timed = api.open(&agent, "go wait").await;
    api.until("a slot", &agent, &timed, |record| record["process"]["state"] != "queued").await;
    let busy = api.open(&agent, "go").await;
    let busy_at = until_state(&api, &agent, &busy, "hot_working").await["process"]["executor"].clone();
    // A new agent goes where room is, although it was the first executor that was chosen first.
    let elsewhere = api.open(&other, "go").await;
    let elsewhere_at =
        until_state(&api, &other, &elsewhere, "hot_working").await["process"]["executor"].clone();
    assert_ne!(busy_at, elsewhere_at);

    let said = until_before(&api, &agent, &timed, 0).await;
    let here = busy_at.as_str().expect("an executor");
    assert_eq!(said, format!("it waits for a free slot of {here}; it is the next"));
    // People come before times, and an agent's files decide where, whatever room there is elsewhere.
    let person = api.open(&agent, "go end").await;
    let second = api.open(&agent, "go end").await;
    assert_eq!(
        until_before(&api, &agent, &timed, 2).await,
        format!("it waits for a free slot of {here}; 2 are before it")
    );
    until_before(&api, &agent, &person, 0).await;
    until_before(&api, &agent, &second, 1).await;
    // The fleet's list follows by up to a second.
    eventually("a place in the fleet's list", WITHIN, async || {
        let listed = api.get("/fleet/processes?state=waking").await;
        if listed["items"][0]["waiting_before"] == 2 { Ok(()) } else { Err(listed) }
    })
    .await;
    let process = api.record(&agent, &second).await["process"]["id"].as_str().expect("an id").to_owned();
    let explained = api.get(&format!("/v1/processes/{process}/explain")).await;
    let sentence = explained["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains("one is before it"), "{sentence}");

    // Whoever is idle and not looked at gives way, one after the other, until all were served.
    for (agent, conversation) in [(&agent, &busy), (&other, &elsewhere)] {
        api.say(agent, conversation, "end", "auto").await;
    }
    for conversation in [&person, &second, &timed] {
        api.until("its turn", &agent, conversation, |record| {
            record["process"]["undelivered"] == 0
                && record["process"]["epoch"] != 0
                && ["hot_idle", "parked"].contains(&record["process"]["state"].as_str().unwrap_or_default())
                && (conversation != &timed || record["process"]["epoch"] == 2)
        })
        .await;
    }
    let claims: Vec<String> = installation
        .log()
        .await
        .iter()
        .filter(|step| step.facts.iter().any(|fact| matches!(fact, domain::process::Fact::Claimed { .. })))
        .map(|step| step.state.conversation.to_string())
        .collect();
    assert_eq!(claims, [&timed, &busy, &elsewhere, &person, &second, &timed].map(String::as_str));
}
