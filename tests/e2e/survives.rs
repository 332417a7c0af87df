//! Harness, broker and executor are killed or stand still, and the work goes on.

use std::path::Path;
use std::time::Duration;

use bus::{BusError, Port};
use contract::buckets::Role;
use contract::topology::{ASSIGN, OPERATOR, TIMERS};
use domain::process::{Fact, LossReason, Step};
use reqwest::Method;
use serde_json::Value;
use tests::installation::{executor_name, program};
use tests::wait::eventually;
use tests::{Installation, Options, model};

/// Longer than an executor acts without its lease, with a renewal's time to spare.
const CUT_FOR: Duration = Duration::from_secs(28);

/// Longer than the registry waits for a lease to change.
const LOST_AFTER: Duration = Duration::from_secs(42);

const SOON: Duration = Duration::from_secs(40);

/// A command that shows whether it runs: a line each tenth of a second, until it has written as many as it is asked to.
fn ticks(count: usize) -> String {
    format!("run for i in $(seq {count}); do echo $i >> ticks.txt; sleep 0.1; done; echo ticked")
}

fn ticked(tree: &Path) -> usize {
    std::fs::read_to_string(tree.join("ticks.txt")).unwrap_or_default().lines().count()
}

fn facts(steps: &[Step]) -> impl Iterator<Item = &Fact> {
    steps.iter().flat_map(|step| &step.facts)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_harness_that_is_killed_in_the_middle_of_a_tool_goes_on_after_a_rest_and_knows_why() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "run echo once >> runs.txt; kill -9 $PPID; sleep 5").await;
    let record = api
        .until("a rest", &agent, &conversation, |record| {
            record["process"]["park_reason"]["park_reason"] == "crashed"
        })
        .await;
    let process = &record["process"];
    assert_eq!(record["status"], "executing", "{record:#}");
    let next = process["next"].as_str().unwrap_or_default();
    assert!(next.contains("signal 9") && next.contains("tried again at"), "{next}");
    let record = api
        .until("the next wake", &agent, &conversation, |record| {
            record["result"].as_str().is_some_and(|text| text.contains("Your harness crashed"))
        })
        .await;
    assert!(record["result"].as_str().is_some_and(|text| text.contains("signal 9")), "{record:#}");
    let runs = std::fs::read_to_string(installation.tree(&agent, &conversation).join("runs.txt"));
    assert_eq!(runs.expect("its file"), "once\n", "what it had been told is not told again");
    let steps = installation.steps(&record).await;
    assert_eq!(facts(&steps).filter(|fact| matches!(fact, Fact::Crashed { .. })).count(), 1);
    assert_eq!(steps.last().expect("a step").state.crashes.in_a_row, 0, "a good turn lies between");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_from_the_broker_by_hand_comes_back() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "wait 25").await;
    let parked = |record: &Value| record["process"]["park_reason"]["park_reason"] == "wait_time";
    api.until("a park", &agent, &conversation, parked).await;
    let operator = installation.broker.connect(OPERATOR).await;
    eventually("a timer", SOON, async || operator.last(TIMERS, "timer.>").await?.ok_or(BusError::Unknown))
        .await;
    operator.purge(TIMERS, ">", 0).await.expect("deleted");
    operator.purge("KV_executors", ">", 0).await.expect("deleted");
    let record = api
        .until("the wake in time", &agent, &conversation, |record| {
            record["result"].as_str().is_some_and(|text| text.contains("The time has come"))
        })
        .await;
    let steps = installation.steps(&record).await;
    assert_eq!(facts(&steps).filter(|fact| matches!(fact, Fact::Lost { .. })).count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_assignment_that_is_deleted_by_hand_is_made_again() {
    let options = Options { harness: Some(program("scripted-harness")), slots: 1, ..Options::default() };
    let installation = Installation::with(options).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let busy = api.open(&agent, "go").await;
    let working = |record: &Value| record["process"]["state"] == "hot_working";
    api.until("work", &agent, &busy, working).await;
    let waiting = api.open(&agent, "go").await;
    let behind = api.open(&agent, "go finish").await;
    let operator = installation.broker.connect(OPERATOR).await;
    let assigned = async || operator.last(ASSIGN, "assign.>").await?.ok_or(BusError::Unknown);
    let placed = |record: &Value| record["process"]["waiting_before"].is_number();
    for conversation in [&waiting, &behind] {
        api.until("a place", &agent, conversation, placed).await;
    }
    operator.purge(ASSIGN, "assign.>", 0).await.expect("deleted");
    eventually("an assignment", SOON, assigned).await;
    for (conversation, word) in [(&busy, "finish"), (&waiting, "finish")] {
        api.until("work", &agent, conversation, working).await;
        api.say(&agent, conversation, word, "auto").await;
        api.until_status(&agent, conversation, "completed").await;
    }
    api.until_status(&agent, &behind, "completed").await;
    installation.log().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_broker_costs_a_running_turn_a_pause_and_nothing_else() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, &ticks(400)).await;
    let tree = installation.tree(&agent, &conversation);
    eventually("its first ticks", SOON, async || if ticked(&tree) > 3 { Ok(()) } else { Err(ticked(&tree)) })
        .await;
    installation.broker.signal("STOP").await;
    tokio::time::sleep(CUT_FOR).await;
    let paused = ticked(&tree);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(ticked(&tree), paused, "it stands still");
    let ready = async || {
        let answer = api.send(Method::GET, "/readyz", None).await;
        if answer.status.is_success() { Ok(()) } else { Err(answer.body) }
    };
    let why = ready().await.expect_err("nothing is ready without its broker");
    assert!(why.to_string().contains("the broker is away"), "{why}");
    installation.broker.signal("CONT").await;
    eventually("readiness", SOON, ready).await;
    let record = api
        .until("its end", &agent, &conversation, |record| {
            record["result"].as_str().is_some_and(|text| text.contains("ticked"))
        })
        .await;
    assert_eq!(ticked(&tree), 400, "the same command went on");
    let steps = installation.steps(&record).await;
    assert!(facts(&steps).any(|fact| matches!(fact, Fact::StoodStill { .. })), "{steps:#?}");
    let ends = |fact: &&Fact| {
        matches!(
            fact,
            Fact::Lost { .. } | Fact::Parked { .. } | Fact::Crashed { .. } | Fact::TaskKilled { .. }
        )
    };
    assert_eq!(facts(&steps).filter(ends).count(), 0, "{steps:#?}");
    assert_eq!(steps.last().expect("a step").state.epoch.0, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_stood_still_for_too_long_finds_its_harness_frozen_and_kills_it() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, &ticks(1_000)).await;
    let tree = installation.tree(&agent, &conversation);
    eventually("its first ticks", SOON, async || if ticked(&tree) > 3 { Ok(()) } else { Err(ticked(&tree)) })
        .await;
    installation.signal(&executor_name(0), "STOP").await;
    tokio::time::sleep(CUT_FOR).await;
    let paused = ticked(&tree);
    tokio::time::sleep(LOST_AFTER - CUT_FOR).await;
    assert_eq!(ticked(&tree), paused, "the shim freezes it without the executor");
    api.until("its loss", &agent, &conversation, |record| record["process"]["state"] == "waking").await;
    installation.signal(&executor_name(0), "CONT").await;
    let record = api
        .until("the next segment", &agent, &conversation, |record| {
            record["result"].as_str().is_some_and(|text| text.contains("You were interrupted"))
        })
        .await;
    assert_eq!(ticked(&tree), paused, "the old one never went on");
    assert_eq!(installation.sandboxes(), 1);
    let steps = installation.steps(&record).await;
    let lost = |fact: &Fact| matches!(fact, Fact::Lost { why: LossReason::LeaseExpired, .. });
    assert_eq!(facts(&steps).filter(|fact| lost(fact)).count(), 1);
    assert_eq!(steps.last().expect("a step").state.epoch.0, 2);
}
