//! Where no user namespace may be made, nothing runs outside a sandbox: the installation starts, says what mends it, and
//! its processes wait for that. The switch is thrown in a user namespace of the test's own, so it needs no root.

use std::time::Duration;

use tests::dev::{Dev, command};
use tests::wait::eventually;
use tokio::process::Command;

const SWITCH: &str = "/proc/sys/user/max_user_namespaces";

#[tokio::test(flavor = "multi_thread")]
async fn without_user_namespaces_processes_need_attention_and_nothing_runs() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let close = format!("echo 0 > {SWITCH} && exec \"$0\" \"$@\"");
    let before = ["unshare", "--user", "--map-root-user", "sh", "-c", &close];
    let dev = Dev::start(command(&before, &data.path().join("data"), &[])).await;
    let api = dev.api();
    let agent = api.get("/v1/agents").await["items"][0]["id"].as_str().expect("an agent").to_owned();

    let conversation = api.open(&agent, "Write a small program").await;
    let waiting = api
        .until("attention", &agent, &conversation, |record| {
            record["process"]["substate"] == "Needs attention"
        })
        .await;
    let next = waiting["process"]["next"].as_str().expect("what to do");
    assert!(next.contains("sandbox unavailable"), "{next}");
    assert!(next.contains("sudo sysctl -w user.max_user_namespaces="), "{next}");
    assert_eq!(waiting["status"], "executing");
    let readyz = api.send(reqwest::Method::GET, "/readyz", None).await;
    assert_eq!(readyz.status, 503);
    assert!(
        readyz.body["detail"].as_str().is_some_and(|text| text.contains("max_user_namespaces")),
        "{readyz:?}"
    );

    // Mended, a message wakes it, and the first message is read too.
    let open = format!("echo 15000 > {SWITCH}");
    let mended = Command::new("nsenter")
        .args(["-U", "-t", &dev.pid().to_string(), "--preserve-credentials", "sh", "-c", &open])
        .status()
        .await;
    assert!(mended.expect("nsenter").success());
    eventually("a sandbox", Duration::from_secs(60), async || {
        let answer = api.send(reqwest::Method::GET, "/readyz", None).await;
        if answer.status.is_success() { Ok(()) } else { Err(answer.body) }
    })
    .await;
    api.say(&agent, &conversation, "Please go on", "auto").await;
    let done = api.until_status(&agent, &conversation, "completed").await;
    assert_eq!(done["processes"].as_array().map(Vec::len), Some(1));
    dev.stop().await;
}
