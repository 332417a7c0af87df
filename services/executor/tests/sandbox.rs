//! The walls of the sandbox, tried from inside with the real bubblewrap and the real shim. `bash` stands where the
//! harness would.

mod kit;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use executor::sandbox::probe;
use executor::shim::control::{Order, Report};
use executor::spawn::SpawnError;
use rustix::process::{Pid, Signal, getuid, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use kit::{Bench, bench, bench_with, bwrap, line, processes_with, read, soon, until};

/// Any uid that is nobody's in particular.
const ORDINARY_UID: u32 = 2001;
/// Tells the executor that is killed where its volume is.
const HOLDER_FOLDER: &str = "RESIDENT_TEST_HOLDER_FOLDER";

#[tokio::test]
async fn this_machine_can_make_a_sandbox() {
    if let Err(error) = probe(&bwrap()).await {
        panic!("{error}");
    }
}

#[tokio::test]
async fn there_is_no_network_but_the_loopback_of_its_own() {
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outside.local_addr().unwrap().port();
    std::net::TcpStream::connect(("127.0.0.1", port)).expect("reachable from outside");

    let bench = bench();
    let script = format!(
        "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '
         (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached the host
         (exec 3<>/dev/tcp/192.0.2.1/80) 2>&1 | grep -om1 'Network is unreachable'"
    );
    let output = bench.run(&bench.conversation("cnv_1"), &script).await;
    assert_eq!(output.stdout, "lo\nNetwork is unreachable\n");
}

#[tokio::test]
async fn the_environment_is_only_what_it_was_given() {
    assert!(
        std::env::var_os("CARGO_MANIFEST_DIR").is_some(),
        "this process has something that must not be seen"
    );
    let bench = bench();
    let script = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | cut -d= -f1 | sort -u
        cat /proc/1/environ >/dev/null 2>&1 && echo the shim can be read";
    let output = bench.run(&bench.conversation("cnv_1"), script).await;
    // PWD comes from bubblewrap, the others from bash itself.
    let ours = ["PATH", "PWD", "RESIDENT_TOKEN"];
    let names: Vec<&str> =
        output.stdout.lines().filter(|name| !["OLDPWD", "SHLVL", "_"].contains(name)).collect();
    assert_eq!(names, ours);
}

#[tokio::test]
async fn the_token_stands_on_no_command_line() {
    let bench = bench();
    let dir = bench.conversation("cnv_1");
    let mut inside = bench.start(&dir, "echo here; read").await.unwrap();
    line(&mut inside.stdout).await;
    let volume = bench.folder.path().display().to_string();
    assert!(!processes_with(&volume).is_empty(), "the sandbox is there to be seen");
    assert!(processes_with("the-segment-token").is_empty());
}

#[tokio::test]
async fn neighbours_are_nowhere() {
    let bench = bench();
    let mine = bench.conversation("cnv_mine");
    let canary = |path: std::path::PathBuf| fs::write(path, "YELLOW-BIRD").unwrap();
    for (agent, id) in [("agt_1", "cnv_other"), ("agt_2", "cnv_foreign")] {
        let other = bench.conversation_of(agent, id);
        for folder in [other.dir().tree(), other.dir().home(), other.dir().tmp(), other.dir().run()] {
            canary(folder.join("canary_of_another"));
        }
        if agent == "agt_2" {
            canary(other.dir().notes().join("canary_of_another"));
            canary(other.dir().packages().join("canary_of_another"));
            other.dir().instruction_files().for_each(|(_, path)| canary(path));
        }
    }
    canary(mine.dir().tree().join("canary_of_mine"));
    canary(mine.dir().notes().join("canary_of_the_agent"));

    let script = "grep -rl YELLOW-BIRD / --exclude-dir=proc --exclude-dir=usr 2>/dev/null | sort
        find / -path /proc -prune -o -path /usr -prune -o -print 2>/dev/null | grep -E 'agt_|cnv_[^m]|canary_of_another'
        cat /proc/*/mountinfo | grep -oE 'cnv_other|cnv_foreign|agt_2'";
    let output = bench.run(&mine, script).await;
    assert_eq!(
        output.stdout,
        "/agent/data/notes/canary_of_the_agent\n/agent/data/workdirs/cnv_mine/canary_of_mine\n"
    );
}

#[tokio::test]
async fn the_machine_cannot_be_changed() {
    let bench = bench();
    let script = "grep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status | tr -s '\\t' ' '
        unshare -U true 2>/dev/null && echo made a user namespace
        unshare -m true 2>/dev/null && echo made a mount namespace
        find / -xdev -writable -not -type l 2>/dev/null | sort
        find /proc /usr /etc /opt /run -writable -not -type l 2>/dev/null | grep -v '^/proc/[0-9]'
        (: >> /proc/sys/kernel/core_pattern) 2>/dev/null && echo opened a kernel setting
        (: > /run/resident/prompt.md) 2>/dev/null && echo changed our configuration
        (: > /agent/data/lost) 2>/dev/null && echo wrote where it would be lost
        ls /sys /root /home /var 2>/dev/null
        true";
    let output = bench.run(&bench.conversation("cnv_1"), script).await;
    let none = "0000000000000000";
    let writable =
        "/agent/data/home /agent/data/notes /agent/data/packages /agent/data/tmp /agent/data/workdirs /tmp";
    let expected =
        format!("CapPrm: {none}\nCapEff: {none}\nCapBnd: {none}\n{}\n", writable.replace(' ', "\n"));
    assert_eq!(output.stdout, expected);
}

#[tokio::test]
async fn it_is_an_ordinary_user_whose_files_are_the_executors() {
    let bench = bench();
    let dir = bench.conversation("cnv_1");
    let script = "id -u; id -un; pwd; umask 077; mkdir sub; echo x > sub/file; stat -c %u sub/file
        echo x > /tmp/t && echo x > /dev/shm/t && echo x >> ../CLAUDE.md && echo x > ../AGENTS.md && echo ok";
    let output = bench.run(&dir, script).await;
    assert_eq!(output.stdout, "1000\nagent\n/agent/data/workdirs/cnv_1\n1000\nok\n");
    let made = dir.dir().tree().join("sub");
    assert_eq!(fs::metadata(made.join("file")).unwrap().uid(), getuid().as_raw());
    fs::remove_dir_all(made).unwrap();
    assert!(dir.dir().instruction_files().all(|(_, path)| read(&path) == "x\n"));
}

#[tokio::test]
async fn the_loopback_port_leads_to_the_runtimes_socket() {
    let bench = bench();
    let dir = bench.conversation("cnv_1");
    let listener = tokio::net::UnixListener::from_std(dir.listen().unwrap()).unwrap();
    let script = "exec 3<>/dev/tcp/127.0.0.1/18080; echo question >&3; cat <&3";
    let mut inside = bench.start(&dir, script).await.unwrap();
    let (mut connection, _) = soon("the connection", listener.accept()).await.unwrap();
    let mut question = [0; 9];
    connection.read_exact(&mut question).await.unwrap();
    assert_eq!(&question, b"question\n");
    connection.write_all(b"answer\n").await.unwrap();
    drop(connection);
    assert_eq!(line(&mut inside.stdout).await, "answer");
}

#[tokio::test]
async fn standard_streams_pass_through_and_exit_codes_come_back() {
    let bench = bench();
    let dir = bench.conversation("cnv_1");
    let mut inside = bench.start(&dir, "read line; echo got $line; echo oops >&2; exit 7").await.unwrap();
    inside.stdin.write_all(b"this\n").await.unwrap();
    assert_eq!(line(&mut inside.stdout).await, "got this");
    assert_eq!(line(&mut inside.stderr).await, "oops");
    assert_eq!(soon("the end", inside.exit.wait()).await.unwrap().code(), Some(7));

    assert_eq!(bench.run(&dir, "true").await.status.code(), Some(0));
    assert_eq!(bench.run(&dir, "kill -TERM $$").await.status.code(), Some(128 + 15));
    assert_eq!(bench.run(&dir, "kill -KILL $$").await.status.code(), Some(128 + 9));
}

#[tokio::test]
async fn the_end_of_input_reaches_the_harness() {
    let bench = bench();
    let dir = bench.conversation("cnv_1");
    let inside = bench.start(&dir, "cat; exit 3").await.unwrap();
    drop(inside.stdin);
    assert_eq!(soon("the end", inside.exit.wait()).await.unwrap().code(), Some(3));
}

#[tokio::test]
async fn a_harness_that_cannot_start_says_why() {
    let bench = bench_with("/etc/hostname".into());
    let dir = bench.conversation("cnv_1");
    let error = bench.start(&dir, "").await.unwrap_err();
    let SpawnError::EndedAtOnce { stderr, status } = &error else { panic!("{error}") };
    assert!(stderr.contains("resident-shim: cannot start /opt/resident/harness"), "{stderr}");
    assert_eq!(status.code(), Some(125));
    drop(dir);
    assert!(bench.is_free("cnv_1"));
}

#[tokio::test]
async fn a_sandbox_that_cannot_be_made_says_why() {
    let bench = bench_with("/nowhere/at/all".into());
    let dir = bench.conversation("cnv_1");
    let error = bench.start(&dir, "").await.unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
}

#[tokio::test]
async fn what_the_harness_leaves_behind_ends_with_it() {
    let bench = bench();
    let dir = bench.conversation("cnv_1");
    let mark = "97531.1";
    let script = format!("trap '' TERM HUP; setsid sleep {mark} & echo started");
    let output = bench.run(&dir, &script).await;
    assert_eq!(output.stdout, "started\n");
    assert!(processes_with(mark).is_empty());
}

#[tokio::test]
async fn orphans_are_collected() {
    let bench = bench();
    let dir = bench.conversation("cnv_1");
    // Each inner shell ends before its child: the child becomes one of the shim's.
    let script = "for n in 1 2 3 4 5; do (setsid true &); done
        for n in $(seq 200); do grep -l 'State:.Z' /proc/[0-9]*/status 2>/dev/null || { echo none; exit; }; done";
    let output = bench.run(&dir, script).await;
    assert!(output.stdout.ends_with("none\n"), "{}", output.stdout);
}

/// A harness that prints a line and then lives on in two processes that would not go by themselves.
const STUBBORN: &str =
    "trap '' TERM HUP INT; setsid bash -c 'trap \"\" TERM HUP INT; sleep 1000' & echo up; sleep 1000";

#[tokio::test]
async fn the_lock_is_held_as_long_as_anything_lives_inside() {
    let bench = bench();
    let dir = bench.conversation("cnv_1");
    let mut inside = bench.start(&dir, STUBBORN).await.unwrap();
    line(&mut inside.stdout).await;
    // The executor itself lets go; the inside does not.
    drop(dir);
    assert!(!bench.is_free("cnv_1"));

    let outermost = *processes_with(&bench.folder.path().display().to_string()).iter().min().unwrap();
    kill_process(Pid::from_raw(outermost).unwrap(), Signal::KILL).unwrap();
    let status = soon("the end", inside.exit.wait()).await.unwrap();
    assert_eq!(status.signal(), Some(9));
    assert!(bench.is_free("cnv_1"), "at once, not some time after");
}

#[tokio::test]
async fn nobody_inside_can_reach_the_lock() {
    let bench = bench();
    let dir = bench.conversation("cnv_1");
    // A harness's own descriptors, and whether PID 1's can be opened. The executor may well have been started with
    // stray ones, as this test is.
    let stray = fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&stray, rustix::io::FdFlags::empty()).unwrap();
    let script = "ls /proc/self/fd | sort -n | tr '\\n' ' '
        for n in $(seq 0 300); do (: < /proc/1/fd/$n) 2>/dev/null && echo opened $n; done; true";
    let output = bench.run(&dir, script).await;
    // The three standard streams, and the folder that ls reads.
    assert_eq!(output.stdout.trim_end(), "0 1 2 3");
}

#[tokio::test]
async fn a_killed_sandbox_is_gone_when_the_kill_is_over() {
    let bench = bench();
    let dir = bench.conversation("cnv_1");
    let mut inside = bench.start(&dir, STUBBORN).await.unwrap();
    line(&mut inside.stdout).await;
    drop(dir);
    inside.control.kill();
    soon("the end", inside.exit.wait()).await.unwrap();
    assert!(bench.is_free("cnv_1"));
}

#[tokio::test]
async fn a_dropped_sandbox_ends() {
    let bench = bench();
    let dir = bench.conversation("cnv_1");
    let mut inside = bench.start(&dir, STUBBORN).await.unwrap();
    line(&mut inside.stdout).await;
    drop((inside, dir));
    until("the lock", || bench.is_free("cnv_1")).await;
}

#[tokio::test]
async fn the_shim_ends_it_when_the_executor_closes_its_end() {
    let bench = bench();
    let dir = bench.conversation("cnv_1");
    let mut inside = bench.start(&dir, STUBBORN).await.unwrap();
    line(&mut inside.stdout).await;
    drop((inside.control, dir));
    let status = soon("the end", inside.exit.wait()).await.unwrap();
    assert_eq!(status.code(), Some(128 + 9));
    assert!(bench.is_free("cnv_1"));
}

/// Counts into a file of the tree.
const COUNTER: &str = "echo up; n=0; while :; do n=$((n+1)); echo $n > count; done";

async fn counts(bench: &Bench) -> bool {
    let count = bench.folder.path().join("volume/agents/agt_1/conversations/cnv_1/tree/count");
    let before = read(&count);
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let now = read(&count);
        if !now.is_empty() && now != before {
            return true;
        }
    }
    false
}

async fn eventually_counts(bench: &Bench, expected: bool) {
    soon(format!("counting: {expected}"), async { while counts(bench).await != expected {} }).await;
}

#[tokio::test]
async fn a_frozen_sandbox_stands_still_until_thawed() {
    let bench = bench();
    let dir = bench.conversation("cnv_1");
    let inside = bench.start(&dir, COUNTER).await.unwrap();
    eventually_counts(&bench, true).await;
    inside.control.order(Order::Freeze).await.unwrap();
    eventually_counts(&bench, false).await;
    inside.control.order(Order::Thaw).await.unwrap();
    eventually_counts(&bench, true).await;
    inside.control.order(Order::Freeze).await.unwrap();
    inside.control.kill();
    soon("the end of a frozen sandbox", inside.exit.wait()).await.unwrap();
}

#[tokio::test]
async fn without_the_beat_it_freezes_by_itself_and_only_an_order_thaws_it() {
    let mut bench = bench();
    bench.sandbox.beat_patience = Duration::from_millis(200);
    let dir = bench.conversation("cnv_1");
    let inside = bench.start(&dir, COUNTER).await.unwrap();
    let report = soon("the report", inside.control.report()).await.unwrap();
    assert_eq!(report, Some(Report::Frozen));
    inside.control.order(Order::Beat).await.unwrap();
    eventually_counts(&bench, false).await;
    // On a busy machine it may freeze again before anybody has looked.
    soon("counting", async {
        while !counts(&bench).await {
            inside.control.order(Order::Thaw).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn when_the_executor_is_killed_everything_inside_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holds_a_sandbox_until_it_is_killed", "--ignored", "--nocapture"])
        .env(HOLDER_FOLDER, folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let tree = folder.path().join("volume/agents/agt_1/conversations/cnv_1/tree");
    until("the sandbox", || tree.join("up").exists()).await;
    let mark = folder.path().display().to_string();
    assert!(!processes_with(&mark).is_empty());
    executor::volume::Volume::open(&folder.path().join("volume")).expect_err("held by the other executor");

    holder.kill().unwrap();
    holder.wait().unwrap();
    until("the end of the sandbox", || processes_with(&mark).is_empty()).await;
    let volume = || executor::volume::Volume::open(&folder.path().join("volume"));
    until("the volume's lock", || volume().is_ok()).await;
}

/// Not a test: the other executor of the one above, in a process of its own.
#[tokio::test]
#[ignore = "runs as a process of its own, started by another test"]
async fn holds_a_sandbox_until_it_is_killed() {
    let folder = std::env::var_os(HOLDER_FOLDER).expect("started by the other test");
    let mut bench = bench();
    bench.volume = executor::volume::Volume::open(&std::path::Path::new(&folder).join("volume")).unwrap();
    let dir = bench.conversation("cnv_1");
    let _inside = bench.start(&dir, "touch up; sleep 1000").await.unwrap();
    std::future::pending::<()>().await;
}

/// Run as root, the suite runs once more as somebody else, from a folder that anyone may read.
#[test]
fn the_walls_stand_for_an_ordinary_user_too() {
    if !getuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = |from: std::path::PathBuf, name: &str| {
        let to = folder.path().join(name);
        fs::copy(from, &to).unwrap();
        to
    };
    let suite = copy(std::env::current_exe().unwrap(), "suite");
    let shim = copy(kit::shim(), "shim");
    let output = Command::new(suite)
        .env("RESIDENT_TEST_SHIM", shim)
        .current_dir("/")
        .uid(ORDINARY_UID)
        .gid(ORDINARY_UID)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("test nobody_inside_can_reach_the_lock ... ok"), "{said}");
}
