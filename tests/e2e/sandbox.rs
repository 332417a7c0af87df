//! The sandbox, from the first segment on: no network but the runtime, nothing of ours, nobody else's files.

use contract::buckets::Role;
use tests::{Installation, Options, model};

use crate::steer::tree;

const CANARY: &str = "canary-4b1d";

/// Runs a command inside and returns what it printed.
async fn inside(api: &tests::api::Api, agent: &str, conversation: &str, command: &str) -> String {
    let said =
        api.say(agent, conversation, &format!("run {command}; echo end-of-{}", command.len()), "auto").await;
    api.until_receipt(agent, conversation, &said, "consumed").await;
    let mark = format!("end-of-{}", command.len());
    let record = api
        .until("the output", agent, conversation, |record| {
            record["result"].as_str().is_some_and(|text| text.contains(&mark))
        })
        .await;
    record["result"].as_str().expect("text").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_inside_sees_its_own_conversation_and_nothing_else() {
    let options = Options {
        script: model::obedient(),
        settings: vec![("RESIDENT__PROVIDERS__ANTHROPIC__API_KEY".into(), format!("sk-{CANARY}-key"))],
        ..Options::default()
    };
    let installation = Installation::with(options).await;
    let api = installation.api(Role::Member).await;
    let (agent, other) = (api.agent().await, api.agent().await);
    // Another conversation of the agent, and one of another agent, both with a secret.
    for (of, text) in [(&agent, "one"), (&other, "two")] {
        let conversation = api.open(of, &format!("run echo {CANARY}-{text} > secret.txt")).await;
        api.until("words", of, &conversation, |record| record["process"]["substate"] == "Idle").await;
        assert!(tree(&installation, of, &conversation).join("secret.txt").exists());
    }
    let conversation = api.open(&agent, "say ready").await;
    api.until("words", &agent, &conversation, |record| record["process"]["substate"] == "Idle").await;

    // The word is taken apart, so that the search does not find itself.
    let search = "grep -rsl 'canary-4b1''d' /agent /home /root /tmp /run /etc /opt /var /proc/*/environ /proc/*/cmdline";
    let found = inside(&api, &agent, &conversation, search).await;
    assert!(
        !found.contains("secret.txt") && !found.contains("environ") && !found.contains("/run"),
        "{found}"
    );
    // Its own transcript holds the command, no more.
    let environment = inside(&api, &agent, &conversation, "env").await;
    for ours in ["RESIDENT__", "ANTHROPIC_API_KEY", CANARY, "CARGO"] {
        assert!(!environment.contains(ours), "{ours} in {environment}");
    }
    let broker = installation.broker.url().replace("nats://", "").replace(':', "/");
    let network = inside(
        &api,
        &agent,
        &conversation,
        &format!("(exec 3<>/dev/tcp/{broker}) 2>&1 | head -1; ls /sys/class/net"),
    )
    .await;
    assert!(network.contains("refused") || network.contains("unreachable"), "{network}");
    assert!(!network.contains("eth"), "{network}");

    // The key arrived where it belongs.
    let requests = installation.model.requests();
    assert!(requests.iter().all(|request| request.header("x-api-key") == Some(&format!("sk-{CANARY}-key"))));
}
