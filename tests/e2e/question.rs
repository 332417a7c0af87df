//! The agent asks, and somebody answers: at once or later, once.

use contract::buckets::Role;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tests::{Installation, api::Api, model};

async fn asked(api: &Api, agent: &str, conversation: &str) -> Value {
    let record = api
        .until("an open card", agent, conversation, |record| {
            card(record).is_some_and(|card| card["status"] == "open")
        })
        .await;
    card(&record).expect("a card").clone()
}

fn card(record: &Value) -> Option<&Value> {
    let activity = record["activity"].as_array()?;
    activity.iter().rev().find(|entry| entry["type"] == "ask_user_questions")
}

fn answer(card: &Value, answer: &str) -> Value {
    let question = &card["questions"][0]["id"];
    json!({ "decision_id": card["decision_id"], "answers": [{ "question_id": question, "answer": answer }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_parks_its_process_and_the_first_answer_wakes_it() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "need Which colour?").await;
    let open = asked(&api, &agent, &conversation).await;
    let parked =
        api.until("a park", &agent, &conversation, |record| record["process"]["state"] == "parked").await;
    assert_eq!(parked["process"]["park_reason"]["park_reason"], "question");
    let path = format!("/v1/agents/{agent}/conversations/{conversation}/answers");
    let wrong = json!({ "decision_id": open["decision_id"], "answers": [] });
    assert_eq!(api.send(Method::POST, &path, Some(&wrong)).await.status, 400);

    // Two people answer at the same instant.
    let answers = ["red", "blue"].map(|colour| {
        let (api, path, body) = (api.clone(), path.clone(), answer(&open, colour));
        async move { (colour, api.send(Method::POST, &path, Some(&body)).await) }
    });
    let answers = join_all(answers).await;
    let mut codes: Vec<_> = answers.iter().map(|(_, answer)| answer.status.as_u16()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [202, 409], "{answers:?}");
    let (won, accepted) = answers.iter().find(|(_, answer)| answer.status == 202).expect("an answer");
    let message = accepted.body["message_id"].as_str().expect("an id");
    api.until_receipt(&agent, &conversation, message, "consumed").await;
    let woken = api
        .until("the answer read", &agent, &conversation, |record| {
            record["result"].as_str().is_some_and(|text| text.ends_with(&format!("(Which colour?): {won}")))
        })
        .await;
    assert_eq!(woken["process"]["id"], parked["process"]["id"]);
    assert_eq!(card(&woken).expect("a card")["status"], "answered");
    assert_eq!(woken["process"]["wait"], Value::Null, "the wait for the answer is over");
    let late = api.send(Method::POST, &path, Some(&answer(&open, "green"))).await;
    assert_eq!((late.status.as_u16(), &late.body["type"]), (409, &json!("/docs/errors/card-closed")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_answers_the_only_question_and_an_end_closes_what_is_open() {
    let installation = Installation::start(model::obedient()).await;
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let conversation = api.open(&agent, "ask Which colour?").await;
    asked(&api, &agent, &conversation).await;
    api.say(&agent, &conversation, "say red", "auto").await;
    let answered = api.until("words", &agent, &conversation, |record| record["result"] == "red").await;
    assert_eq!(card(&answered).expect("a card")["status"], "answered");

    api.say(&agent, &conversation, "ask And which size?", "auto").await;
    let open = asked(&api, &agent, &conversation).await;
    let base = format!("/v1/agents/{agent}/conversations/{conversation}");
    api.post(&format!("{base}/stop"), json!({ "scope": "process" })).await;
    let stopped = api
        .until("a closed card", &agent, &conversation, |record| {
            card(record).is_some_and(|card| card["status"] == "expired")
        })
        .await;
    assert_eq!(stopped["status"], "stopped");
    let late = api.send(Method::POST, &format!("{base}/answers"), Some(&answer(&open, "large"))).await;
    assert_eq!((late.status.as_u16(), &late.body["type"]), (409, &json!("/docs/errors/already-ended")));
}
