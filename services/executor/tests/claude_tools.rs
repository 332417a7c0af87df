//! The real Claude Code in the real sandbox, calling what an agent has.

#![expect(clippy::expect_used, reason = "the helpers here are tests too")]

mod kit;

use executor::harness::What;
use executor::harness::claude_code::Session;
use executor::model_proxy::{ModelCall, Usage};
use executor::tools::Asked;
use scripted_model::Reply;
use serde_json::json;

use kit::door::KEEP_ALIVE;
use kit::runtime::{PROVIDER_KEY, TOKEN};
use kit::stay::{SESSION, Stay, World, uuid, world};

const HELD: &str = "a message arrived that you have not read; end your turn to receive it";

fn tell(text: &str) -> Reply {
    Reply::default().and_tool("mcp/tell_user", json!({"text": text}))
}

fn finish(summary: &str) -> Reply {
    Reply::default().and_tool("mcp/finish_process", json!({"summary": summary}))
}

/// What the model was told by its last call.
fn last_result(world: &World) -> String {
    world.last_request().last_tool_result().expect("a tool result").to_owned()
}

fn tool_ids(stay: &Stay) -> Vec<String> {
    let ids = stay.seen.iter().filter_map(|event| match &event.what {
        What::ToolStarted { id, .. } => Some(id.clone()),
        _ => None,
    });
    ids.collect()
}

#[tokio::test]
async fn a_note_and_a_finish_end_to_end() {
    let world = world([tell("half way"), finish("all of it"), Reply::text("bye")]).await;
    let mut stay = world.stay(Session::New(SESSION)).await;
    stay.claude.deliver(uuid(1), "do it").await.unwrap();
    assert_eq!(stay.completed().await, "bye");
    let ids = tool_ids(&stay);
    assert_eq!(*world.runtime.segment.told.lock().unwrap(), [("half way".to_owned(), Some(ids[0].clone()))]);
    assert_eq!(world.runtime.segment.summaries(), ["all of it"]);
    assert!(last_result(&world).starts_with("Recorded: the process is Completed."));
    stay.park().await;
    world.assert_sound();
}

#[tokio::test]
async fn a_held_finish_is_no_error_and_a_second_one_is_told_so() {
    let world = world([finish("one"), finish("two"), finish("three"), Reply::text("bye")]).await;
    world.runtime.segment.answer([
        Asked::Refused { why: HELD.to_owned() },
        done(),
        Asked::AlreadyEnded { outcome: "Completed".to_owned() },
    ]);
    let mut stay = world.stay(Session::New(SESSION)).await;
    stay.claude.deliver(uuid(1), "do it").await.unwrap();
    assert_eq!(stay.completed().await, "bye");
    let outputs = stay.seen.iter().filter_map(|event| match &event.what {
        What::ToolEnded { is_error, output, .. } => Some((*is_error, output.clone())),
        _ => None,
    });
    let outputs: Vec<_> = outputs.collect();
    let expected =
        [format!("held: {HELD}"), "Recorded:".to_owned(), "The process is Completed already".to_owned()];
    assert_eq!(outputs.len(), expected.len(), "{outputs:?}");
    for ((is_error, output), begins) in outputs.iter().zip(expected) {
        assert!(!is_error && output.starts_with(&begins), "{output}");
    }
    stay.park().await;
    world.assert_sound();
}

#[tokio::test]
async fn what_is_declined_is_an_error_that_says_what_to_do() {
    let ask = Reply::default().and_tool("mcp/tell_user", json!({"text": "x", "colour": "red"}));
    let world = world([ask, Reply::text("bye")]).await;
    let mut stay = world.stay(Session::New(SESSION)).await;
    stay.claude.deliver(uuid(1), "do it").await.unwrap();
    stay.completed().await;
    let result = last_result(&world);
    assert!(result.contains("colour") && result.contains("tell_user takes text"), "{result}");
    assert!(world.runtime.segment.told().is_empty());
    stay.park().await;
    world.assert_sound();
}

#[tokio::test]
async fn its_model_calls_go_out_with_the_providers_key_and_are_counted() {
    let world = world([tell("a note"), Reply::text("bye")]).await;
    let mut stay = world.stay(Session::New(SESSION)).await;
    stay.claude.deliver(uuid(1), "do it").await.unwrap();
    stay.completed().await;
    stay.park().await;
    let requests = world.runtime.model.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        let headers = format!("{:?}", request.headers);
        assert!(headers.contains(PROVIDER_KEY) && !headers.contains(TOKEN), "{headers}");
        assert_eq!(request.session, Some(SESSION.to_string()));
    }
    let usage = Usage { input: 10, output: 5, ..Usage::default() };
    let ended = ModelCall::Ended { status: Some(200), usage: Some(usage) };
    let told = || world.runtime.model_calls.lock().unwrap().clone();
    kit::until("both calls told", || told().len() == 4).await;
    assert_eq!(told(), [ModelCall::Started, ended, ModelCall::Started, ended]);
    world.assert_sound();
}

#[tokio::test]
async fn a_slow_stream_with_our_comments_in_it_is_the_same_to_it() {
    let words = "one two three four five";
    let world = world([Reply::text(words).chunked(3 * KEEP_ALIVE)]).await;
    let mut stay = world.stay(Session::New(SESSION)).await;
    stay.claude.deliver(uuid(1), "count").await.unwrap();
    assert_eq!(stay.completed().await, words);
    assert_eq!(world.runtime.model.requests().len(), 1, "it was not tried again");
    stay.park().await;
    world.assert_sound();
}

fn done() -> Asked {
    Asked::Done { running: Vec::new(), questions: Vec::new() }
}
