//! One task, one process: from the first message until the agent itself says that it is done.

use std::time::Duration;

use contract::buckets::{Executors, Role};
use contract::topology::OPERATOR;
use domain::ids::ExecutorId;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tests::wait::eventually;
use tests::{Installation, Options, model};

#[tokio::test(flavor = "multi_thread")]
async fn a_task_works_answers_in_words_and_is_done_when_the_agent_says_so() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "run echo built > made.txt && cat made.txt").await;
    let working =
        api.until("work", &agent, &conversation, |record| record["process"]["substate"] == "Working").await;
    assert_eq!(working["status"], "executing");
    // A plain text is a message to the person, and no exit.
    let idle =
        api.until("words", &agent, &conversation, |record| record["process"]["substate"] == "Idle").await;
    assert_eq!(idle["status"], "executing");
    assert_eq!(idle["result"], "it printed: built");

    let process = idle["process"]["id"].clone();
    let second = api.say(&agent, &conversation, "twice the file is made", "auto").await;
    let done = api.until_status(&agent, &conversation, "completed").await;
    assert_eq!(done["process"]["id"], process, "the message went into the live process");
    assert_eq!(done["result"], "the file is made");
    // The second call in the same turn was told that there had been a first.
    let told = api
        .until("the last words", &agent, &conversation, |record| {
            texts(record)
                .iter()
                .any(|text| text.contains("finishing was answered") && text.contains("already"))
        })
        .await;
    assert_eq!(told["status"], "completed");
    assert_eq!(api.receipt(&agent, &conversation, &second).await["receipt"], "consumed");

    // The slot is free within 15 seconds.
    let operator = installation.broker.connect(OPERATOR).await;
    eventually("a free slot", Duration::from_secs(15), async || {
        match bus::kv::get::<Executors>(&operator, &ExecutorId(0)).await.expect("a lease").value {
            Some(lease) if lease.segments.is_empty() => Ok(()),
            lease => Err(lease),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_message_starts_the_next_process_on_the_same_session_tree_and_files() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "run echo first > made.txt").await;
    api.until("words", &agent, &conversation, |record| record["process"]["substate"] == "Idle").await;
    api.say(&agent, &conversation, "finish the first", "auto").await;
    api.until_status(&agent, &conversation, "completed").await;

    api.say(&agent, &conversation, "run cat made.txt", "auto").await;
    let second = api
        .until("the second process", &agent, &conversation, |record| record["result"] == "it printed: first");
    let second = second.await;
    assert_eq!(second["processes"].as_array().map(Vec::len), Some(2), "{second:#}");
    assert_eq!(second["processes"][0]["summary"], "the first");
    assert_eq!(second["status"], "executing");
    let requests = installation.model.requests();
    let sessions: Vec<_> = requests.iter().filter_map(|request| request.session.clone()).collect();
    assert!(sessions.windows(2).all(|pair| pair[0] == pair[1]), "one session: {sessions:?}");
    let last = requests.last().expect("a request");
    assert!(last.contains("echo first > made.txt"), "the conversation goes on");
    assert_eq!(installation.model.faults(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_messages_at_once_make_one_next_process_that_gets_them_in_their_order() {
    const MESSAGES: usize = 50;
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "finish the first").await;
    api.until_status(&agent, &conversation, "completed").await;
    let said = (0..MESSAGES).map(|n| {
        let (api, agent, conversation) = (api.clone(), agent.clone(), conversation.clone());
        async move {
            let text = format!("say number {n:02}");
            let id = api.say(&agent, &conversation, &text, "auto").await;
            (id, text)
        }
    });
    let mut said = join_all(said).await;
    for (id, _) in &said {
        api.until_receipt(&agent, &conversation, id, "consumed").await;
    }
    let record = api.record(&agent, &conversation).await;
    assert_eq!(record["processes"].as_array().map(Vec::len), Some(2), "one next process: {record:#}");
    // A message's id holds its place in the record, so this is the order of the acknowledgements.
    said.sort();
    let heard: Vec<String> = {
        let requests = installation.model.requests();
        let last = requests.iter().rev().find(|request| request.user_texts().len() > 1).expect("a request");
        let texts = last.user_texts().join("\n");
        texts.lines().filter(|line| line.starts_with("say number")).map(str::to_owned).collect()
    };
    assert_eq!(heard, said.into_iter().map(|(_, text)| text).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_copies_of_a_first_message_make_one_conversation() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let path = format!("/v1/agents/{agent}/invoke/async");
    let copies = (0..50).map(|_| {
        let (api, path) = (api.clone(), path.clone());
        let body = json!({ "input": { "text": "finish once" }, "idempotency_key": "order-4711" });
        async move { api.post(&path, body).await["conversation_id"].as_str().expect("an id").to_owned() }
    });
    let mut ids = join_all(copies).await;
    ids.dedup();
    assert_eq!(ids.len(), 1);
    let record = api.until_status(&agent, &ids[0], "completed").await;
    let messages = record["activity"].as_array().into_iter().flatten();
    assert_eq!(messages.filter(|entry| entry["role"] == "user").count(), 1, "{record:#}");
    let list = api.get(&format!("/v1/agents/{agent}/conversations")).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    let other = json!({ "input": { "text": "finish twice" }, "idempotency_key": "order-4711" });
    let answer = api.send(reqwest::Method::POST, &path, Some(&other)).await;
    assert_eq!(answer.status, 422);

    let unknown = "cnv_00000000000000000000000000000001";
    let body = json!({ "input": { "text": "x" }, "id": unknown });
    assert_eq!(api.send(reqwest::Method::POST, &path, Some(&body)).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn invoke_waits_for_the_turn_and_answers_with_the_record() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let body = json!({ "input": { "text": "say hello there" } });
    let first = api.post(&format!("/v1/agents/{agent}/invoke"), body).await;
    assert_eq!((&first["status"], &first["result"]), (&json!("executing"), &json!("hello there")));
    let body = json!({ "id": first["id"], "input": { "text": "finish well done" } });
    let second = api.post(&format!("/v1/agents/{agent}/conversations/invoke"), body).await;
    assert_eq!((&second["status"], &second["result"]), (&json!("completed"), &json!("well done")));
    assert_eq!(second["id"], first["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_parks_and_a_message_wakes_it_into_the_same_session() {
    let options =
        Options { script: model::obedient(), park_after: Duration::from_secs(1), ..Options::default() };
    let installation = Installation::with(options).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "run echo kept > kept.txt").await;
    let parked =
        api.until("a park", &agent, &conversation, |record| record["process"]["state"] == "parked").await;
    assert_eq!(parked["status"], "executing");
    assert_eq!(parked["process"]["substate"], "Waiting");
    let said = api.say(&agent, &conversation, "run cat kept.txt", "auto").await;
    let woken = api
        .until("the same files", &agent, &conversation, |record| record["result"] == "it printed: kept")
        .await;
    assert_eq!(woken["process"]["id"], parked["process"]["id"], "one process");
    assert!(woken["process"]["epoch"].as_u64() > parked["process"]["epoch"].as_u64());
    api.until_receipt(&agent, &conversation, &said, "consumed").await;
}

fn texts(record: &Value) -> Vec<&str> {
    let entries = record["activity"].as_array().into_iter().flatten();
    entries
        .filter(|entry| entry["role"] == "agent")
        .filter_map(|entry| entry["content"]["text"].as_str())
        .collect()
}
