//! The layout of one executor's volume, and the two locks that keep it single-handed.
//!
//! ```text
//! <volume>/lock                          one executor at a time, until the last harness is gone
//! <volume>/etc/…                         the few files a sandbox sees as /etc, written by us
//! <volume>/agents/<agent>/
//!     workdirs/CLAUDE.md, AGENTS.md      the agent's own instructions, seeded once
//!     packages/  notes/                  shared by the agent's conversations
//!     conversations/<conversation>/
//!         lock                           one sandbox at a time
//!         tree/  home/  tmp/             what the conversation owns
//!         run/                           our configuration of this segment, rewritten at each
//! ```
//!
//! Only the leaves are ever mounted into a sandbox, never a folder above them, so nothing an agent writes can turn
//! one of these paths into another. This module knows no harness and starts nothing.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use thiserror::Error;

use crate::sandbox::{ETC, inside};

/// Longer than any id; a file name may have 255 bytes.
const DIR_NAME_BYTES_MAX: usize = 64;
/// Only the executor's own user reads anything on a volume.
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The agent's instruction files, empty until the agent or a person writes them.
const INSTRUCTION_FILES: [&str; 2] = ["CLAUDE.md", "AGENTS.md"];

/// One folder's name on the volume: an id. Lower case, digits and underscore, so nothing else can become a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DirName(String);

#[derive(Debug, Error)]
#[error(
    "{given:?} cannot name a folder on the volume; an id has 1 to {DIR_NAME_BYTES_MAX} of a-z, 0-9 and underscore"
)]
pub struct NotADirName {
    given: String,
}

/// An executor's volume, held by this process.
#[derive(Debug)]
pub struct Volume {
    root: PathBuf,
    lock: OwnedFd,
}

/// The folders of one conversation. Having this does not mean that the conversation is free; see [`Self::lock`].
#[derive(Debug)]
pub struct ConversationDir {
    agent_dir: PathBuf,
    dir: PathBuf,
    etc: PathBuf,
    conversation: DirName,
    volume_lock: OwnedFd,
}

/// A conversation's folders with its lock taken: the only thing from which a sandbox can be made. What runs inside
/// holds the same locks, so dropping this while a harness lives frees nothing.
#[derive(Debug)]
pub struct LockedDir {
    dir: ConversationDir,
    lock: OwnedFd,
}

#[derive(Debug, Error)]
pub enum VolumeError {
    #[error(
        "another executor holds the volume {}, or a harness of the last one still ends; one volume has one executor",
        root.display()
    )]
    InUse { root: PathBuf },
    #[error("a sandbox of {conversation} still lives; wait until it has ended, then lock its folder again")]
    ConversationInUse { conversation: DirName },
    #[error("cannot {attempt} {}; the volume must be writable by the executor's user", path.display())]
    Io { attempt: &'static str, path: PathBuf, source: io::Error },
}

// === impl DirName ===

impl DirName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DirName {
    type Err = NotADirName;

    fn from_str(given: &str) -> Result<Self, NotADirName> {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
        if given.is_empty() || given.len() > DIR_NAME_BYTES_MAX || !given.bytes().all(allowed) {
            return Err(NotADirName { given: given.chars().take(DIR_NAME_BYTES_MAX).collect() });
        }
        Ok(Self(given.to_owned()))
    }
}

impl fmt::Display for DirName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Volume ===

impl Volume {
    /// Takes the volume for this process, and writes the files that every sandbox sees as `/etc`.
    pub fn open(root: &Path) -> Result<Self, VolumeError> {
        make_dir(root)?;
        let root = root.canonicalize().map_err(io_error("resolve", root))?;
        let lock = open_lock(&root.join("lock"))?;
        if !try_lock(&lock).map_err(io_error("lock", &root))? {
            return Err(VolumeError::InUse { root });
        }
        let etc = root.join("etc");
        make_dir(&etc)?;
        for (name, content) in ETC {
            write_file(&etc.join(name), content)?;
        }
        Ok(Self { root, lock })
    }

    /// The folders of a conversation, made where they are missing.
    pub fn conversation(
        &self,
        agent: &DirName,
        conversation: &DirName,
    ) -> Result<ConversationDir, VolumeError> {
        let agent_dir = self.root.join("agents").join(agent.as_str());
        let dir = agent_dir.join("conversations").join(conversation.as_str());
        let volume_lock = self.lock.try_clone().map_err(io_error("share the lock of", &self.root))?;
        let made = ConversationDir {
            agent_dir,
            dir,
            etc: self.root.join("etc"),
            conversation: conversation.clone(),
            volume_lock,
        };
        for folder in [made.packages(), made.notes(), made.tree(), made.home(), made.tmp(), made.run()] {
            make_dir(&folder)?;
        }
        make_dir(&made.agent_dir.join("workdirs"))?;
        for name in INSTRUCTION_FILES {
            seed_file(&made.instructions(name))?;
        }
        Ok(made)
    }
}

// === impl ConversationDir ===

impl ConversationDir {
    pub fn conversation(&self) -> &DirName {
        &self.conversation
    }

    pub fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    pub fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    pub fn tmp(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    pub fn run(&self) -> PathBuf {
        self.dir.join("run")
    }

    pub fn packages(&self) -> PathBuf {
        self.agent_dir.join("packages")
    }

    pub fn notes(&self) -> PathBuf {
        self.agent_dir.join("notes")
    }

    pub fn etc(&self) -> &Path {
        &self.etc
    }

    /// The agent's instruction files: the name each has in `workdirs`, and where it is.
    pub fn instruction_files(&self) -> impl Iterator<Item = (&'static str, PathBuf)> + '_ {
        INSTRUCTION_FILES.into_iter().map(|name| (name, self.instructions(name)))
    }

    fn instructions(&self, name: &str) -> PathBuf {
        self.agent_dir.join("workdirs").join(name)
    }

    /// Refused as long as anything lives in a sandbox of this conversation, whoever started it.
    pub fn lock(self) -> Result<LockedDir, VolumeError> {
        let lock = open_lock(&self.dir.join("lock"))?;
        if !try_lock(&lock).map_err(io_error("lock", &self.dir))? {
            return Err(VolumeError::ConversationInUse { conversation: self.conversation });
        }
        Ok(LockedDir { dir: self, lock })
    }
}

// === impl LockedDir ===

impl LockedDir {
    pub fn dir(&self) -> &ConversationDir {
        &self.dir
    }

    /// What must stay locked while anything lives inside: the conversation, and the volume round it.
    pub fn locks(&self) -> [BorrowedFd<'_>; 2] {
        [self.lock.as_fd(), self.dir.volume_lock.as_fd()]
    }

    /// Writes this segment's configuration anew; nothing of the last segment's stays.
    pub fn configure(&self, prompt: &str, mcp_json: &str) -> Result<(), VolumeError> {
        let run = self.dir.run();
        fs::remove_dir_all(&run).map_err(io_error("clear", &run))?;
        make_dir(&run)?;
        write_file(&run.join(inside::PROMPT_FILE), prompt)?;
        write_file(&run.join(inside::MCP_FILE), mcp_json)
    }

    /// The runtime's socket, as the sandbox will see it. Call after [`Self::configure`].
    pub fn listen(&self) -> Result<UnixListener, VolumeError> {
        let run = self.dir.run();
        let folder = File::open(&run).map_err(io_error("open", &run))?;
        // A socket's path has room for 107 bytes, a volume's may be longer; through the descriptor any length works.
        let path = format!("/proc/self/fd/{}/{}", folder.as_raw_fd(), inside::SOCKET_FILE);
        let listener = UnixListener::bind(path).map_err(io_error("listen in", &run))?;
        listener.set_nonblocking(true).map_err(io_error("listen in", &run))?;
        Ok(listener)
    }
}

fn io_error(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> VolumeError {
    let path = path.to_owned();
    move |source| VolumeError::Io { attempt, path, source }
}

fn make_dir(path: &Path) -> Result<(), VolumeError> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(path).map_err(io_error("make", path))
}

fn write_file(path: &Path, content: &str) -> Result<(), VolumeError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(FILE_MODE);
    options
        .open(path)
        .and_then(|mut file| file.write_all(content.as_bytes()))
        .map_err(io_error("write", path))
}

fn seed_file(path: &Path) -> Result<(), VolumeError> {
    match OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(io_error("make", path)(error)),
    }
}

fn open_lock(path: &Path) -> Result<OwnedFd, VolumeError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(FILE_MODE);
    options.open(path).map(OwnedFd::from).map_err(io_error("open", path))
}

/// Whether the lock is now ours.
fn try_lock(lock: &OwnedFd) -> io::Result<bool> {
    match flock(lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn name(text: &str) -> DirName {
        text.parse().unwrap()
    }

    fn conversation(volume: &Volume, id: &str) -> ConversationDir {
        volume.conversation(&name("agt_1"), &name(id)).unwrap()
    }

    #[test]
    fn only_ids_name_folders() {
        let longest = "a".repeat(DIR_NAME_BYTES_MAX);
        for good in ["agt_0198c0de", "a", longest.as_str()] {
            assert_eq!(name(good).as_str(), good);
        }
        let too_long = "a".repeat(DIR_NAME_BYTES_MAX + 1);
        for bad in ["", ".", "..", "a/b", "A", "a b", "a.b", "a-b", "é", "a\0", "a\n", too_long.as_str()] {
            DirName::from_str(bad).unwrap_err();
        }
    }

    #[test]
    fn a_second_executor_is_refused_until_the_last_holder_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("volume");
        let volume = Volume::open(&root).unwrap();
        let refused = Volume::open(&root).unwrap_err();
        assert!(matches!(refused, VolumeError::InUse { .. }), "{refused}");

        // What a harness inside would hold.
        let held =
            conversation(&volume, "cnv_1").lock().unwrap().locks().map(|lock| lock.try_clone_to_owned());
        drop(volume);
        Volume::open(&root).unwrap_err();
        drop(held);
        Volume::open(&root).unwrap();
    }

    #[test]
    fn a_conversation_is_locked_once_and_its_neighbour_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let volume = Volume::open(folder.path()).unwrap();
        let first = conversation(&volume, "cnv_1").lock().unwrap();
        let refused = conversation(&volume, "cnv_1").lock().unwrap_err();
        assert!(refused.to_string().contains("cnv_1"), "{refused}");
        conversation(&volume, "cnv_2").lock().unwrap();
        drop(first);
        conversation(&volume, "cnv_1").lock().unwrap();
    }

    #[test]
    fn folders_are_private_and_instructions_are_never_rewritten() {
        let folder = tempfile::tempdir().unwrap();
        let volume = Volume::open(folder.path()).unwrap();
        let dir = conversation(&volume, "cnv_1");
        let (_, instructions) = dir.instruction_files().next().unwrap();
        fs::write(&instructions, "written by the agent").unwrap();
        let again = conversation(&volume, "cnv_2");
        assert_eq!(fs::read_to_string(&instructions).unwrap(), "written by the agent");
        assert_eq!(again.packages(), dir.packages());
        assert_ne!(again.tree(), dir.tree());
        for private in [dir.tree(), dir.home(), dir.tmp(), dir.run(), dir.packages(), dir.notes(), dir.dir] {
            let mode = fs::metadata(&private).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, DIR_MODE, "{}", private.display());
        }
    }

    #[test]
    fn each_segment_finds_only_its_own_configuration() {
        let folder = tempfile::tempdir().unwrap();
        // Longer than a socket's path may be.
        let volume = Volume::open(&folder.path().join("v".repeat(150))).unwrap();
        let locked = conversation(&volume, "cnv_1").lock().unwrap();
        locked.configure("first", "{}").unwrap();
        let _socket = locked.listen().unwrap();
        fs::write(locked.dir().run().join("stray"), "").unwrap();

        locked.configure("second", "{}").unwrap();
        let run = locked.dir().run();
        let mut names: Vec<_> = fs::read_dir(&run)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, [inside::MCP_FILE, inside::PROMPT_FILE]);
        assert_eq!(fs::read_to_string(run.join(inside::PROMPT_FILE)).unwrap(), "second");

        let listener = locked.listen().unwrap();
        let folder = File::open(&run).unwrap();
        UnixStream::connect(format!("/proc/self/fd/{}/{}", folder.as_raw_fd(), inside::SOCKET_FILE)).unwrap();
        listener.accept().unwrap();
    }
}
