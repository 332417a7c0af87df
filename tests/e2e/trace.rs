//! One trace from the HTTP request to the harness, and the events of a process's life in the logs.

use std::time::Duration;

use contract::buckets::Role;
use reqwest::Method;
use serde_json::{Value, json};
use tests::wait::eventually;
use tests::{Installation, Options, model};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn lines(log: &str) -> Vec<Value> {
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn of_event<'a>(lines: &'a [Value], event: &str) -> Option<&'a Value> {
    lines.iter().find(|line| line["message"] == event)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_s_trace_reaches_the_harness_and_a_process_s_life_is_logged() {
    let options =
        Options { script: model::obedient(), park_after: Duration::from_secs(1), ..Options::default() };
    let installation = Installation::with(options).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let body = json!({ "input": { "text": "say traced" } });
    let answer = api
        .request(Method::POST, &format!("/v1/agents/{agent}/invoke/async"))
        .header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"))
        .json(&body)
        .send()
        .await
        .expect("an answer");
    let record: Value = answer.json().await.expect("json");
    let conversation = record["id"].as_str().expect("an id");
    api.until("a park", &agent, conversation, |record| record["process"]["state"] == "parked").await;
    api.say(&agent, conversation, "finish it", "auto").await;
    api.until_status(&agent, conversation, "completed").await;
    eventually("the logs", Duration::from_secs(20), async || {
        let executor = lines(&installation.log_of("executor-0"));
        let steerer = lines(&installation.log_of("steerer"));
        let registry = lines(&installation.log_of("registry"));
        let start = of_event(&executor, "harness.start").ok_or("no harness.start")?;
        if start["trace_id"] != TRACE {
            return Err("another trace at the harness");
        }
        let process = of_event(&steerer, "process.start").ok_or("no process.start")?;
        if process["trace_id"] != TRACE || process["conversation"] != conversation {
            return Err("process.start does not say whose it is");
        }
        of_event(&registry, "process.park").ok_or("no process.park")?;
        of_event(&steerer, "process.wake").ok_or("no process.wake")?;
        of_event(&registry, "process.finish").ok_or("no process.finish")?;
        Ok(())
    })
    .await;
}
