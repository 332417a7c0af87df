//! A process that waits is parked, costs nothing, and goes on by itself in the same session and files.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use contract::buckets::{Executors, Role};
use contract::topology::OPERATOR;
use domain::Timestamp;
use domain::ids::ExecutorId;
use domain::process::{Fact, Step, WaitClosed, WaitOn};
use scripted_model::{Reply, RequestView, Script};
use serde_json::{Value, json};
use tests::wait::eventually;
use tests::{Installation, Options, api::Api, model};

/// How late a wake may be.
const LATE_MAX: Duration = Duration::from_secs(5);

async fn parked(api: &Api, agent: &str, conversation: &str, reason: &str) -> Value {
    api.until("a park", agent, conversation, |record| {
        record["process"]["park_reason"]["park_reason"] == reason
    })
    .await
}

/// Each wait of the log: when it was due, and when the process was told that it is over.
fn waits(steps: &[Step]) -> Vec<(Timestamp, Timestamp)> {
    let mut due = None;
    let mut all = Vec::new();
    for step in steps {
        for fact in &step.facts {
            if let (Fact::WaitClosed { closed: WaitClosed::Fired, .. }, Some(until)) = (fact, due) {
                all.push((until, step.at));
            }
        }
        due = match step.state.wait.as_ref().map(|wait| &wait.on) {
            Some(WaitOn::Time { until }) => Some(*until),
            _ => None,
        };
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_time_parks_with_nothing_left_and_wakes_in_time() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "run echo kept > kept.txt").await;
    api.until("words", &agent, &conversation, |record| record["process"]["substate"] == "Idle").await;
    api.say(&agent, &conversation, "wait 4", "auto").await;
    let record = parked(&api, &agent, &conversation, "wait_time").await;
    let process = &record["process"];
    assert_eq!((&process["substate"], &process["status"]), (&json!("Waiting"), &json!("executing")));
    assert!(process["next"].as_str().is_some_and(|next| next.contains("it waits until")), "{process:#}");
    // No slot and no harness.
    let operator = installation.broker.connect(OPERATOR).await;
    eventually("a free slot", Duration::from_secs(3), async || {
        match bus::kv::get::<Executors>(&operator, &ExecutorId(0)).await.expect("a lease").value {
            Some(lease) if lease.segments.is_empty() => Ok(()),
            lease => Err(lease),
        }
    })
    .await;
    assert_eq!(installation.sandboxes(), 0);

    let woken = api
        .until("the wake", &agent, &conversation, |record| {
            record["result"]
                .as_str()
                .is_some_and(|text| text.starts_with("heard: [xpander] The time has come"))
        })
        .await;
    assert_eq!(woken["process"]["id"], process["id"], "one process");
    let waits = waits(&installation.steps(&record).await);
    let [(until, fired)] = waits.as_slice() else { panic!("{waits:?}") };
    assert!(until <= fired && fired.since(*until) <= LATE_MAX, "due {until}, over {fired}");
    api.say(&agent, &conversation, "run cat kept.txt", "auto").await;
    api.until("the same files", &agent, &conversation, |record| record["result"] == "it printed: kept").await;
    api.say(&agent, &conversation, "finish all done", "auto").await;
    api.until_status(&agent, &conversation, "completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twelve_waits_in_a_row_each_wake_once() {
    const WAITS: usize = 12;
    let told = AtomicUsize::new(0);
    let script = Script::from_responder(move |request: &RequestView| {
        let booked = request.last_tool_result().is_some_and(|result| result.starts_with("Booked"));
        if booked && model::after_tool(request) {
            return Some(Reply::text("I wait"));
        }
        let n = told.fetch_add(1, Ordering::SeqCst);
        if n == WAITS {
            return Some(Reply::tool("mcp/finish_process", json!({ "summary": "twelve waits" })));
        }
        if n > WAITS {
            return Some(Reply::text("bye"));
        }
        let until = tests::now().plus(Duration::from_millis(2_500));
        Some(Reply::tool("mcp/wait_for", json!({ "reason": format!("wait {n}"), "until": until })))
    });
    let installation = Installation::start(script).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "begin").await;
    let record = api.until_status(&agent, &conversation, "completed").await;
    assert_eq!(record["result"], "twelve waits");
    let waits = waits(&installation.steps(&record).await);
    assert_eq!(waits.len(), WAITS);
    for (until, fired) in waits {
        assert!(until <= fired && fired.since(until) <= LATE_MAX, "due {until}, over {fired}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_wakes_a_waiting_process_early_and_the_wait_stays_booked() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "wait 3600").await;
    let waiting = parked(&api, &agent, &conversation, "wait_time").await;
    let said = api.say(&agent, &conversation, "finish too early", "auto").await;
    api.until_receipt(&agent, &conversation, &said, "consumed").await;
    // The finish is held and says what is booked.
    let held = api
        .until("a held finish", &agent, &conversation, |record| {
            record["result"]
                .as_str()
                .is_some_and(|text| text.contains("held: ") && text.contains("a wait until"))
        })
        .await;
    assert_eq!(held["process"]["wait"]["id"], waiting["process"]["wait"]["id"]);
    // A new one replaces it, and a stop ends it all.
    api.say(&agent, &conversation, "wait 7200", "auto").await;
    let replaced = api
        .until("another wait", &agent, &conversation, |record| {
            record["process"]["state"] == "parked"
                && record["process"]["wait"]["id"] != waiting["process"]["wait"]["id"]
        })
        .await;
    assert_eq!(replaced["process"]["id"], waiting["process"]["id"]);
    let stop = format!("/v1/agents/{agent}/conversations/{conversation}/stop");
    api.post(&stop, json!({ "scope": "process" })).await;
    let stopped = api.until_status(&agent, &conversation, "stopped").await;
    assert_eq!(stopped["process"]["wait"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_fleet_full_an_idle_process_that_nobody_watches_gives_way() {
    let options = Options {
        script: model::obedient(),
        slots: 1,
        park_after: Duration::from_secs(600),
        ..Options::default()
    };
    let installation = Installation::with(options).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let first = api.open(&agent, "say one").await;
    api.until("words", &agent, &first, |record| record["process"]["substate"] == "Idle").await;
    let second = api.open(&agent, "say two").await;
    api.until("the second", &agent, &second, |record| record["result"] == "two").await;
    parked(&api, &agent, &first, "absent").await;
    // And back again.
    api.say(&agent, &first, "say three", "auto").await;
    api.until("the first", &agent, &first, |record| record["result"] == "three").await;
}
