//! The sandbox of profile `dev`, as a bubblewrap command line. Built purely from what it is given; nothing is started
//! here, and there is no way to run a harness without it.
//!
//! What is inside sees its own tree, home and temp files, the agent's packages, notes and instruction files, a
//! read-only `/usr`, a few files of `/etc`, our configuration of the segment, and one unix socket. No network, no
//! other process, no capability, no further user namespace.
//!
//! The environment inside is the environment bubblewrap is started with, no more. It is never an argument, since
//! arguments are public on the machine and one of the values is the segment's token.

mod host;
pub mod inside;
mod probe;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::shim;
use crate::volume::ConversationDir;

pub use host::{Host, RootEntry};
pub use probe::{SandboxUnavailable, probe};

/// How long the executor's beat may be missing before the shim freezes what is inside. With the beat of the driver
/// it comes well before another executor may be given the conversation (34 s).
pub const BEAT_PATIENCE: Duration = Duration::from_secs(20);
/// `/tmp` and `/dev/shm` live in memory. Large things belong in the temp folder on the volume, where `TMPDIR` points.
const TMPFS_BYTES_MAX: u64 = 1 << 30;
/// `workdirs` itself takes only the temporary copies an editor makes beside the instruction files.
const WORKDIRS_BYTES_MAX: u64 = 16 << 20;

/// The files of `/etc` that are ours: one user, no name service but files.
pub const ETC: [(&str, &str); 4] = [
    (
        "passwd",
        "agent:x:1000:1000:agent:/agent/data/home:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    ),
    ("group", "agent:x:1000:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1 localhost resident\n::1 localhost\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
];
/// What of the host's `/etc` programs in `/usr` need, where it exists. Never a folder that has private keys in it.
const HOST_ETC: [&str; 7] = [
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];

/// The programs a sandbox is made of, as they lie on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    pub bwrap: PathBuf,
    pub shim: PathBuf,
    /// The harness's one binary; nothing beside it is mounted.
    pub harness: PathBuf,
}

/// Everything about a sandbox that is the same for all segments of an executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    pub programs: Programs,
    pub host: Host,
    pub beat_patience: Duration,
}

/// What the harness is started with.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Launch {
    pub args: Vec<OsString>,
    pub env: BTreeMap<String, String>,
}

/// A process to start: exactly this environment, nothing inherited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxCommand {
    pub program: PathBuf,
    pub launch: Launch,
}

// === impl Sandbox ===

impl Sandbox {
    /// The command that runs the harness in a sandbox on this conversation's folders.
    pub fn command(&self, dir: &ConversationDir, launch: Launch) -> SandboxCommand {
        let mut args = Args::default();
        args.isolation();
        args.system(&self.host);
        for (name, _) in ETC {
            args.bind("--ro-bind", &dir.etc().join(name), &format!("/etc/{name}"));
        }
        for path in HOST_ETC {
            args.bind("--ro-bind-try", Path::new(path), path);
        }
        args.bind("--ro-bind", &self.programs.harness, inside::HARNESS);
        args.bind("--ro-bind", &self.programs.shim, inside::SHIM);
        args.bind("--ro-bind", &dir.run(), inside::RUN);
        args.data(dir);
        // Last, since bubblewrap makes the mount points above as it goes: nothing can be left where it would be lost.
        args.words(["--remount-ro", "/"]);
        let workdir = inside::workdir(dir.conversation());
        args.words(["--chdir", workdir.as_str(), "--", inside::SHIM]);
        let shim = shim::Arguments {
            listen: inside::LISTEN,
            socket: inside::socket(),
            patience: self.beat_patience,
            program: inside::HARNESS.into(),
            args: launch.args,
        };
        args.0.extend(shim.to_args());
        SandboxCommand {
            program: self.programs.bwrap.clone(),
            launch: Launch { args: args.0, env: launch.env },
        }
    }
}

// === impl Launch ===

impl fmt::Debug for Launch {
    /// Names of variables, never their values: one of them is the segment's token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch").field("args", &self.args).field("env", &self.env.keys()).finish()
    }
}

/// A command line in the making. The order matters to bubblewrap: later mounts lie over earlier ones.
#[derive(Debug, Default)]
struct Args(Vec<OsString>);

// === impl Args ===

impl Args {
    fn words<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.map(OsString::from));
    }

    fn bind(&mut self, how: &str, source: &Path, destination: &str) {
        self.0.extend([how.into(), source.into(), destination.into()]);
    }

    fn tmpfs(&mut self, bytes: u64, mode: &str, destination: &str) {
        let bytes = bytes.to_string();
        self.words(["--size", bytes.as_str(), "--perms", mode, "--tmpfs", destination]);
    }

    /// Namespaces, and an ordinary user inside them, also when the executor itself runs as root.
    fn isolation(&mut self) {
        self.words(["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]);
        self.words(["--unshare-cgroup-try", "--disable-userns", "--cap-drop", "ALL"]);
        self.words(["--uid", inside::UID, "--gid", inside::UID, "--hostname", "resident"]);
        self.words(["--die-with-parent", "--new-session", "--as-pid-1"]);
    }

    fn system(&mut self, host: &Host) {
        // Read-only, since bubblewrap leaves /proc/sys writable for an executor that is root, and with it the host.
        self.words(["--proc", "/proc", "--remount-ro", "/proc"]);
        self.words(["--dev", "/dev"]);
        self.tmpfs(TMPFS_BYTES_MAX, "1777", "/dev/shm");
        self.words(["--remount-ro", "/dev"]);
        self.tmpfs(TMPFS_BYTES_MAX, "1777", "/tmp");
        self.bind("--ro-bind", Path::new("/usr"), "/usr");
        for (path, entry) in &host.root {
            match entry {
                RootEntry::Link(target) => self.bind("--symlink", target, path),
                RootEntry::Folder => self.bind("--ro-bind", Path::new(path), path),
            }
        }
    }

    /// `/agent/data`, put together from the leaves of the volume.
    fn data(&mut self, dir: &ConversationDir) {
        // Writable, since editors put a copy beside the file first. Renaming over the mounted file is then refused,
        // and those that matter (the harness's own Edit and Write) write in place.
        self.tmpfs(WORKDIRS_BYTES_MAX, "0700", inside::WORKDIRS);
        self.bind("--bind", &dir.tree(), &inside::workdir(dir.conversation()));
        for (name, path) in dir.instruction_files() {
            self.bind("--bind", &path, &format!("{}/{name}", inside::WORKDIRS));
        }
        self.bind("--bind", &dir.packages(), inside::PACKAGES);
        self.bind("--bind", &dir.notes(), inside::NOTES);
        self.bind("--bind", &dir.home(), inside::HOME);
        self.bind("--bind", &dir.tmp(), inside::TMP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::Volume;

    fn sandbox() -> Sandbox {
        let link = |path, target: &str| (path, RootEntry::Link(target.into()));
        Sandbox {
            programs: Programs {
                bwrap: "/x/bwrap".into(),
                shim: "/x/shim".into(),
                harness: "/x/claude".into(),
            },
            host: Host { root: vec![link("/bin", "usr/bin"), ("/lib", RootEntry::Folder)] },
            beat_patience: BEAT_PATIENCE,
        }
    }

    fn words(command: &SandboxCommand) -> Vec<String> {
        command.launch.args.iter().map(|word| word.to_str().unwrap().to_owned()).collect()
    }

    fn command() -> (tempfile::TempDir, SandboxCommand) {
        let folder = tempfile::tempdir().unwrap();
        let volume = Volume::open(folder.path()).unwrap();
        let dir = volume.conversation(&"agt_1".parse().unwrap(), &"cnv_1".parse().unwrap()).unwrap();
        let env = BTreeMap::from([("RESIDENT_TOKEN".to_owned(), "secret-token".to_owned())]);
        let launch = Launch { args: vec!["-p".into()], env };
        let command = sandbox().command(&dir, launch);
        (folder, command)
    }

    #[test]
    fn only_leaves_of_the_volume_are_mounted() {
        let (folder, command) = command();
        let root = folder.path().canonicalize().unwrap();
        let mut mounted: Vec<String> = words(&command)
            .iter()
            .filter_map(|word| Path::new(word).strip_prefix(&root).ok())
            .map(|leaf| leaf.display().to_string())
            .collect();
        mounted.sort();
        let agent = "agents/agt_1";
        let conversation = "agents/agt_1/conversations/cnv_1";
        let mut expected: Vec<String> =
            ["group", "hosts", "nsswitch.conf", "passwd"].map(|name| format!("etc/{name}")).into();
        expected.extend(["home", "run", "tmp", "tree"].map(|leaf| format!("{conversation}/{leaf}")));
        expected.extend(
            ["notes", "packages", "workdirs/AGENTS.md", "workdirs/CLAUDE.md"]
                .map(|leaf| format!("{agent}/{leaf}")),
        );
        expected.sort();
        assert_eq!(mounted, expected);
    }

    #[test]
    fn nothing_of_the_host_is_writable() {
        let (folder, command) = command();
        let root = folder.path().canonicalize().unwrap();
        let words = words(&command);
        for (at, word) in words.iter().enumerate().filter(|(_, word)| word.starts_with("--bind")) {
            assert!(Path::new(&words[at + 1]).starts_with(&root), "{word} {}", words[at + 1]);
        }
        assert!(!words.iter().any(|word| word.contains("dev-bind")));
    }

    #[test]
    fn the_root_follows_the_host() {
        let (_folder, command) = command();
        let line = words(&command).join(" ");
        assert!(line.contains(" --symlink usr/bin /bin "), "{line}");
        assert!(line.contains(" --ro-bind /lib /lib "), "{line}");
        assert!(!line.contains("/lib64"), "absent on this host: {line}");
    }

    #[test]
    fn the_token_is_no_argument_and_is_not_printed() {
        let (_folder, command) = command();
        assert!(!words(&command).join(" ").contains("secret"));
        let printed = format!("{command:?}");
        assert!(printed.contains("RESIDENT_TOKEN") && !printed.contains("secret"), "{printed}");
    }

    #[test]
    fn the_harness_comes_last_behind_the_shim() {
        let (_folder, command) = command();
        let words = words(&command);
        let tail: Vec<_> = words.iter().rev().take(3).rev().map(String::as_str).collect();
        assert_eq!(tail, ["--", inside::HARNESS, "-p"]);
        let last_mount = words.iter().rposition(|word| word == "--remount-ro").unwrap();
        assert_eq!(words[last_mount + 1], "/");
        assert!(words.iter().rposition(|word| word.ends_with("bind")).unwrap() < last_mount);
    }
}
