//! An ordinary user needs nothing of root's: the whole demo, with the real harness in its sandbox.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use tests::broker::tools;
use tests::installation::program;
use tokio::process::Command;

use crate::as_root;

/// Nobody on this machine.
const USER: u32 = 2_001;

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_runs_as_an_ordinary_user() {
    as_root();
    // A checkout of root's may be closed to others, so the programs are put where everybody may go.
    let place = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    let copy = |from: &Path| {
        let name = from.file_name().expect("a name");
        fs::copy(from, place.path().join(name)).expect("a copy");
    };
    for name in ["resident", "resident-shim"] {
        copy(&program(name));
    }
    copy(&tools().join("nats-server"));
    fs::copy(tools().join("claude"), place.path().join("claude")).expect("a copy");
    let home = place.path().join("home");
    fs::create_dir(&home).expect("a home");
    chown(&home, Some(USER), Some(USER)).expect("its owner");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", place.path().display());
    let output = Command::new("setpriv")
        .args(["--reuid", &USER.to_string(), "--regid", &USER.to_string(), "--clear-groups"])
        .arg(place.path().join("resident"))
        .arg("demo")
        .env_clear()
        .env("PATH", path)
        .env("HOME", &home)
        .env("TMPDIR", &home)
        .current_dir(&home)
        .output()
        .await
        .expect("setpriv");
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{error}");
    assert!(out.contains("state     Working") && out.contains("finished  completed"), "{out}\n{error}");
}
