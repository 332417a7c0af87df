//! Commands that run on beside the turn: they hold their process, the agent goes on when they end, and what is killed is
//! told.

use contract::buckets::Role;
use serde_json::Value;
use tests::installation::executor_name;
use tests::{Installation, api::Api, model};

/// Opens a conversation whose agent has the command run in the background.
async fn with_command(api: &Api, agent: &str, command: &str) -> String {
    let conversation = api.open(agent, &format!("back {command}")).await;
    api.until("work beside the turn", agent, &conversation, |record| {
        record["result"] == "it runs" && record["process"]["substate"] == "Working"
    })
    .await;
    conversation
}

fn notices(record: &Value) -> Vec<&str> {
    let activity = record["activity"].as_array().into_iter().flatten();
    activity.filter(|line| line["type"] == "notice").filter_map(|line| line["text"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_command_holds_the_park_and_its_end_goes_on_by_itself() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = with_command(&api, &agent, "sleep 4; echo built > built.txt").await;
    api.say(&agent, &conversation, "wait 3600", "auto").await;
    let answered = api
        .until("a booking", &agent, &conversation, |record| {
            record["result"].as_str().is_some_and(|text| text.contains("Still running"))
        })
        .await;
    assert_eq!(answered["process"]["state"], "hot_working");
    api.until("a park", &agent, &conversation, |record| {
        record["process"]["park_reason"]["park_reason"] == "wait_time"
    })
    .await;
    api.say(&agent, &conversation, "run cat built.txt", "auto").await;
    api.until("its file", &agent, &conversation, |record| record["result"] == "it printed: built").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sub_agent_at_work_holds_the_end_until_it_has_ended() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "delegate run sleep 6; echo done > helped.txt").await;
    api.until("a sub-agent beside the turn", &agent, &conversation, |record| {
        record["result"] == "it is delegated" && record["process"]["substate"] == "Working"
    })
    .await;
    api.say(&agent, &conversation, "finish too early", "auto").await;
    let held = api
        .until("an answer", &agent, &conversation, |record| {
            record["result"].as_str().is_some_and(|text| text.starts_with("finishing was answered"))
        })
        .await;
    let told = held["result"].as_str().unwrap_or_default();
    assert!(told.contains("the helper"), "the sub-agent is named: {told}");
    assert_eq!(held["status"], "executing", "{held:#}");
    // Its end is the agent's next turn.
    api.until("its end", &agent, &conversation, |record| {
        record["result"].as_str().is_some_and(|text| text.contains("task-notification"))
    })
    .await;
    let helped = std::fs::read_to_string(installation.tree(&agent, &conversation).join("helped.txt"));
    assert_eq!(helped.expect("its file"), "done\n");
    api.say(&agent, &conversation, "finish in time", "auto").await;
    api.until("the end", &agent, &conversation, |record| record["status"] == "completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stop_or_a_roll_kills_is_told_to_the_person_and_to_the_agent() {
    let mut installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let stopped = with_command(&api, &agent, "sleep 1001").await;
    let rolled = with_command(&api, &agent, "sleep 1002").await;

    let stop = format!("/v1/agents/{agent}/conversations/{stopped}/stop");
    api.post(&stop, serde_json::json!({ "scope": "process" })).await;
    let record = api
        .until("a notice", &agent, &stopped, |record| {
            record["status"] == "stopped" && !notices(record).is_empty()
        })
        .await;
    let [told] = notices(&record)[..] else { panic!("{record:#}") };
    assert!(told.contains("killed") && told.contains("sleep 1001"), "{told}");

    let executor = executor_name(0);
    installation.stop(&executor).await;
    installation.start_program(&executor).await;
    // It was cut off in its work, so it goes on by itself.
    let record = api
        .until("the wake", &agent, &rolled, |record| {
            record["result"].as_str().is_some_and(|text| text.contains("was killed with it: sleep 1002"))
        })
        .await;
    let [told] = notices(&record)[..] else { panic!("{record:#}") };
    assert!(told.contains("killed") && told.contains("sleep 1002"), "{told}");
    // The next process of the other conversation is told too, once.
    api.say(&agent, &stopped, "say one", "auto").await;
    api.until("the next process", &agent, &stopped, |record| record["result"] == "one").await;
    api.say(&agent, &stopped, "say two", "auto").await;
    api.until("its next turn", &agent, &stopped, |record| record["result"] == "two").await;
    let requests = installation.model.requests();
    let last =
        requests.iter().rev().find(|request| request.last_user().is_some_and(|said| said == "say two"));
    let heard = last.expect("a request").user_texts().join("\n");
    assert_eq!(heard.matches("was killed with it: sleep 1001").count(), 1, "{heard}");
}
