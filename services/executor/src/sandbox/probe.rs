//! Whether a sandbox can be made on this machine, and if not, the one command that mends it.
//!
//! Reading the machine is apart from judging it, so that the judgement is tested without a broken machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use thiserror::Error;
use tokio::process::Command;
use tokio::time::timeout;

use super::{Args, Host};

/// A sandbox of nothing takes about 10 ms; a machine that needs this long cannot run one.
const PROBE_PATIENCE: Duration = Duration::from_secs(10);
/// Enough for bubblewrap's one line and what a broken loader may add.
const MESSAGE_BYTES_MAX: usize = 1_000;
/// What the kernel gives a machine of ordinary size by default.
const USER_NAMESPACES: &str = "15000";

/// Why no sandbox can be made. Every text ends with what to do.
#[derive(Debug, Error)]
pub enum SandboxUnavailable {
    #[error("bubblewrap is missing ({} was looked for); run: sudo apt-get install bubblewrap", bwrap.display())]
    Missing { bwrap: PathBuf },
    #[error(
        "this bubblewrap is too old, 0.8.0 or newer is needed; run: sudo apt-get install bubblewrap ({message})"
    )]
    TooOld { message: String },
    #[error(
        "the kernel allows no user namespaces; run: sudo sysctl -w user.max_user_namespaces={USER_NAMESPACES}"
    )]
    NoUserNamespaces,
    #[error(
        "user namespaces are closed to ordinary users; run: sudo sysctl -w kernel.unprivileged_userns_clone=1"
    )]
    OnlyForRoot,
    #[error(
        "AppArmor closes user namespaces to ordinary users; run: sudo sysctl -w \
         kernel.apparmor_restrict_unprivileged_userns=0, or give bwrap a profile with \"userns,\" in it"
    )]
    AppArmor,
    #[error(
        "this container may make no sandbox; start it with: docker run --security-opt seccomp=unconfined \
         --security-opt apparmor=unconfined --security-opt systempaths=unconfined … ({message})"
    )]
    Container { message: String },
    #[error("bubblewrap failed: {message}; run it by hand to see more: {command}")]
    Failed { message: String, command: String },
    #[error("bubblewrap did not end within {} s; the machine is overloaded, try again", PROBE_PATIENCE.as_secs())]
    Slow,
    #[error("cannot start {}; check that it is a program this user may run", bwrap.display())]
    NotStarted { bwrap: PathBuf, source: io::Error },
}

/// What decides whether an ordinary user may make a user namespace; `None` where the kernel has no such switch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Machine {
    max_user_namespaces: Option<u64>,
    unprivileged_userns_clone: Option<u64>,
    apparmor_restricts: Option<u64>,
    container: bool,
}

/// Makes a sandbox of nothing with all the walls of a real one.
pub async fn probe(bwrap: &Path) -> Result<(), SandboxUnavailable> {
    let mut args = Args::default();
    args.isolation();
    args.system(&Host::read());
    args.words(["--remount-ro", "/", "--", "/usr/bin/true"]);
    let mut command = Command::new(bwrap);
    command.args(&args.0).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(PROBE_PATIENCE, command.output()).await {
        Err(_) => return Err(SandboxUnavailable::Slow),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Err(SandboxUnavailable::Missing { bwrap: bwrap.to_owned() });
        }
        Ok(Err(source)) => return Err(SandboxUnavailable::NotStarted { bwrap: bwrap.to_owned(), source }),
        Ok(Ok(output)) => output,
    };
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let message: String = message.trim().chars().take(MESSAGE_BYTES_MAX).collect();
    let words: Vec<_> = args.0.iter().map(|word| word.to_string_lossy()).collect();
    let by_hand = format!("{} {}", bwrap.display(), words.join(" "));
    Err(judge(&Machine::read(), message, by_hand))
}

/// The cause of a failed probe. The switches come first: they are facts, bubblewrap's text is a guess.
fn judge(machine: &Machine, message: String, command: String) -> SandboxUnavailable {
    if message.contains("Unknown option") {
        SandboxUnavailable::TooOld { message }
    } else if machine.max_user_namespaces == Some(0) {
        SandboxUnavailable::NoUserNamespaces
    } else if machine.unprivileged_userns_clone == Some(0) {
        SandboxUnavailable::OnlyForRoot
    } else if machine.apparmor_restricts == Some(1) {
        SandboxUnavailable::AppArmor
    } else if machine.container {
        SandboxUnavailable::Container { message }
    } else {
        SandboxUnavailable::Failed { message, command }
    }
}

// === impl Machine ===

impl Machine {
    fn read() -> Self {
        let switch = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok();
        Self {
            max_user_namespaces: switch("user/max_user_namespaces"),
            unprivileged_userns_clone: switch("kernel/unprivileged_userns_clone"),
            apparmor_restricts: switch("kernel/apparmor_restrict_unprivileged_userns"),
            container: ["/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io"]
                .iter()
                .any(|mark| Path::new(mark).exists()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(machine: &Machine, message: &str) -> String {
        judge(machine, message.to_owned(), "bwrap …".to_owned()).to_string()
    }

    #[test]
    fn every_cause_has_its_cure() {
        let refused = "bwrap: No permissions to create new namespace";
        let open = Machine::default();
        let cases = [
            (
                Machine { max_user_namespaces: Some(0), ..open.clone() },
                "sysctl -w user.max_user_namespaces=15000",
            ),
            (
                Machine { unprivileged_userns_clone: Some(0), ..open.clone() },
                "sysctl -w kernel.unprivileged_userns_clone=1",
            ),
            (
                Machine { apparmor_restricts: Some(1), ..open.clone() },
                "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
            ),
            (Machine { container: true, ..open.clone() }, "--security-opt seccomp=unconfined"),
            (open.clone(), refused),
        ];
        for (machine, cure) in cases {
            let text = judged(&machine, refused);
            assert!(text.contains(cure), "{machine:?}: {text}");
        }
        assert!(
            judged(&open, "bwrap: Unknown option --disable-userns").contains("apt-get install bubblewrap")
        );
    }

    #[tokio::test]
    async fn a_missing_bubblewrap_is_named_with_its_cure() {
        let error = probe(Path::new("/nowhere/bwrap")).await.unwrap_err();
        assert!(error.to_string().contains("sudo apt-get install bubblewrap"), "{error}");
    }
}
