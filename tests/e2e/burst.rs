//! Ten messages at every moment at which a process parks, wakes or finishes: each arrives once, in the order of the
//! acknowledgements, in this process or the next.

use std::time::Duration;

use contract::Subject;
use contract::buckets::Role;
use contract::messages::record::{InputEntry, InputKind, StateEntry};
use contract::topology::OPERATOR;
use domain::ids::RecordSeq;
use domain::process::{ConversationKey, Fact};
use futures_util::future::join_all;
use tests::api::Api;
use tests::installation::program;
use tests::wait::eventually;
use tests::{Installation, Options, model};

/// Messages of one burst.
const BURST: usize = 10;

/// Bursts of one conversation come this late after what they meet, from the first to the last; a park and a wake are
/// over by then.
const LATEST: Duration = Duration::from_millis(600);

/// What a burst meets: its process parks since nobody is there, waits for a time, or finishes.
const MET: [&str; 3] = ["say end", "wait 1", "finish all"];

const ROUND_WITHIN: Duration = Duration::from_secs(90);

/// Bursts at these offsets, one after the other; the conversation. The last message of each lets the turn end.
async fn bursts(api: &Api, agent: &str, offsets: impl Iterator<Item = (usize, Duration)>) -> String {
    let conversation = api.open(agent, "say end").await;
    for (round, offset) in offsets {
        api.say(agent, &conversation, MET[round % MET.len()], "auto").await;
        tokio::time::sleep(offset).await;
        let mut last = String::new();
        for n in 0..BURST {
            let end = if n + 1 == BURST { " end" } else { "" };
            last = api.say(agent, &conversation, &format!("say {round} {n}{end}"), "auto").await;
        }
        eventually("the burst consumed", ROUND_WITHIN, async || {
            match api.receipt(agent, &conversation, &last).await {
                receipt if receipt["receipt"] == "consumed" => Ok(()),
                receipt => Err(receipt),
            }
        })
        .await;
    }
    conversation
}

/// `count` offsets in conversations side by side, which are returned with their agent.
async fn storm(installation: &Installation, side_by_side: usize, count: usize) -> (String, Vec<String>) {
    let api = installation.api(Role::Member).await;
    let agent = api.agent().await;
    let offsets = |first: usize| {
        let all = (first..count).step_by(side_by_side).enumerate();
        all.map(move |(round, n)| (round, LATEST.mul_f64(n as f64 / count as f64)))
    };
    let all = (0..side_by_side).map(|first| bursts(&api, &agent, offsets(first)));
    let conversations = join_all(all).await;
    (agent, conversations)
}

/// The texts that were accepted, in their order, once the record says that each was consumed once and in that order.
async fn accepted(installation: &Installation, conversation: &str) -> Vec<String> {
    let key = ConversationKey { org: installation.org, conversation: conversation.parse().expect("an id") };
    let operator = installation.broker.connect(OPERATOR).await;
    let (mut said, mut texts, mut consumed) = (Vec::new(), Vec::new(), Vec::new());
    for stored in bus::history(&operator, key, 0).await.expect("the record") {
        match stored.subject.parse() {
            Ok(Subject::RecordIn(_)) => {
                let entry: InputEntry = stored.decode().expect("an input");
                if let InputKind::Message { text, .. } = entry.what {
                    said.push(RecordSeq(stored.sequence));
                    texts.push(text);
                }
            }
            Ok(Subject::RecordState(_)) => {
                let entry: StateEntry = stored.decode().expect("a state");
                for dated in entry.facts {
                    match dated.fact {
                        Fact::Consumed { inputs, .. } => consumed.extend(inputs),
                        Fact::Returned { inputs } => panic!("given back: {inputs:?}"),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    assert_eq!(consumed, said, "consumed, accepted");
    texts
}

/// The lines that are messages: the runtime's notes and blank lines are not.
fn messages(heard: &str) -> Vec<&str> {
    heard.lines().filter(|line| !line.is_empty() && !line.starts_with("[xpander]")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn bursts_at_the_boundaries_reach_the_scripted_harness() {
    let options = Options {
        harness: Some(program("scripted-harness")),
        park_after: Duration::from_millis(50),
        slots: 8,
        ..Options::default()
    };
    let installation = Installation::with(options).await;
    let (agent, conversations) = storm(&installation, 8, 1_000).await;
    for conversation in conversations {
        let accepted = accepted(&installation, &conversation).await;
        let heard = std::fs::read_to_string(installation.tree(&agent, &conversation).join("heard.txt"));
        assert_eq!(messages(&heard.expect("what it heard")), accepted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bursts_at_the_boundaries_reach_claude_code() {
    let options =
        Options { script: model::obedient(), park_after: Duration::from_millis(50), ..Options::default() };
    let installation = Installation::with(options).await;
    let (_, conversations) = storm(&installation, 4, 40).await;
    let requests = installation.model.requests();
    for conversation in conversations {
        let accepted = accepted(&installation, &conversation).await;
        // The last request of its session holds the whole conversation.
        let last = requests
            .iter()
            .rev()
            .find(|request| request.working_directory().is_some_and(|folder| folder.contains(&conversation)));
        let heard = last.expect("a request").user_texts().join("\n");
        assert_eq!(messages(&heard), accepted);
    }
}
