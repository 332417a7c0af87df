//! `resident dev`: one line when ready, a small job with the demo model, and every start that cannot be said with what to
//! do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use rustix::process::geteuid;
use serde_json::Value;
use tests::dev::{Dev, command, refused};
use tests::installation::program;
use tokio::process::Command;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a command prints that ends well.
async fn printed(data: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program("resident"));
    let output = command.args(arguments).arg("--data-dir").arg(data).env_clear().output().await;
    let output = output.expect("a command");
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_starts_does_a_job_and_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("data");
    let dev = Dev::start(command(&[], &data, &[])).await;
    assert_eq!(dev.text("data_dir"), data.canonicalize().expect("made").to_string_lossy());
    assert!(dev.text("nats_url").starts_with("nats://127.0.0.1:"));
    let api = dev.api();
    let agents = api.get("/v1/agents").await;
    let agent = agents["items"][0]["id"].as_str().expect("an agent").to_owned();
    let conversation = api.open(&agent, "Write a small program").await;
    let done = api.until_status(&agent, &conversation, "completed").await;
    assert!(done["result"].as_str().is_some_and(|text| text.contains("checks passed")), "{done:#}");

    // Somebody who starts a second one is told where the first is.
    let second = refused(command(&[], &data, &["--listen", "127.0.0.1:0"])).await;
    assert!(said(&second).contains(&format!("process {}", dev.pid())), "{}", said(&second));
    let address = dev.text("url").trim_start_matches("http://").to_owned();
    let taken = refused(command(&[], &dir.path().join("other"), &["--listen", &address])).await;
    assert!(said(&taken).contains(&address) && said(&taken).contains("--listen"), "{}", said(&taken));

    // A key of another organization sees nothing of this one.
    let key = Command::new(program("resident"))
        .args(["keys", "add", "--role", "operator", "--json", "--data-dir"])
        .arg(&data)
        .env_clear()
        .output()
        .await
        .expect("a key");
    let key: Value = serde_json::from_slice(&key.stdout).unwrap_or_else(|_| panic!("{}", said(&key)));
    let url = dev.text("url").to_owned();
    let stranger = tests::api::Api::new(&url, &url, key["api_key"].as_str().expect("a secret"));
    let path = format!("/v1/agents/{agent}/conversations/{conversation}");
    assert_eq!(stranger.send(reqwest::Method::GET, &path, None).await.status, 404);
    assert_eq!(stranger.get("/fleet/processes").await["items"].as_array().map(Vec::len), Some(0));
    let listed = printed(&data, &["ps"]).await;
    assert!(listed.contains(&conversation), "{listed}");
    let logs = printed(&data, &["logs", &conversation]).await;
    for part in ["person    Write a small program", "action    ", "note      ", "finished  completed"] {
        assert!(logs.contains(part), "{part} in {logs}");
    }
    let events = printed(&data, &["logs", "--json", &conversation]).await;
    let named = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["event"] == "task_finished";
    assert_eq!(events.lines().filter(|line| named(line)).count(), 1, "{events}");
    let over = printed(&data, &["wait", "--timeout", "20", &conversation]).await;
    assert!(over.starts_with("completed: ") && over.contains("checks passed"), "{over}");

    let first = (dev.text("api_key").to_owned(), agent.clone());
    dev.stop().await;
    let again = Dev::start(command(&[], &data, &[])).await;
    assert_eq!(again.text("api_key"), first.0);
    let api = again.api();
    let record = api.record(&agent, &conversation).await;
    assert_eq!(record["status"], "completed");
    api.say(&agent, &conversation, "And once more", "auto").await;
    let next = api.until("the next process", &agent, &conversation, |record| {
        record["processes"].as_array().map(Vec::len) == Some(2) && record["status"] == "completed"
    });
    next.await;
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_cannot_be_says_what_to_do() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("data");

    let mut wrong = command(&[], &data, &["--listen", "127.0.0.1:0"]);
    wrong
        .env("RESIDENT__EXECUTOR__SLOTS", "many")
        .env("RESIDENT__SERVER__GRACE", "soon")
        .env("RESIDENT__EXECUTOR__SLOT", "4");
    let wrong = refused(wrong).await;
    assert_eq!(wrong.status.code(), Some(64));
    for part in
        ["executor.slots", "RESIDENT__EXECUTOR__SLOTS", "many", "server.grace", "RESIDENT__EXECUTOR__SLOT"]
    {
        assert!(said(&wrong).contains(part), "{part} in {}", said(&wrong));
    }

    let old = dir.path().join("nats-server");
    fs::write(&old, "#!/bin/sh\necho 'nats-server: v2.9.10'\n").expect("a script");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).expect("permissions");
    let mut too_old = command(&[], &data, &["--listen", "127.0.0.1:0"]);
    too_old.env("RESIDENT__BROKER__NATS_SERVER", &old);
    let too_old = refused(too_old).await;
    assert!(said(&too_old).contains("2.9.10") && said(&too_old).contains("make tools"), "{}", said(&too_old));

    let mut missing = command(&[], &data, &["--listen", "127.0.0.1:0"]);
    missing.env("RESIDENT__BROKER__NATS_SERVER", "/nowhere/nats-server");
    let missing = refused(missing).await;
    assert!(said(&missing).contains("broker.nats_server"), "{}", said(&missing));

    // Root may write anywhere, so the place is one where nobody can: below a file.
    let file = dir.path().join("file");
    fs::write(&file, "").expect("a file");
    let unwritable = refused(command(&[], &file.join("data"), &["--listen", "127.0.0.1:0"])).await;
    assert!(said(&unwritable).contains("--data-dir"), "{}", said(&unwritable));
    if !geteuid().is_root() {
        let closed = dir.path().join("closed");
        fs::create_dir(&closed).expect("a directory");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).expect("permissions");
        let unwritable = refused(command(&[], &closed.join("data"), &["--listen", "127.0.0.1:0"])).await;
        assert!(said(&unwritable).contains("--data-dir"), "{}", said(&unwritable));
    }
}
