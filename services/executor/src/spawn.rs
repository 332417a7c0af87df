//! Starting a sandbox, and what the executor holds of it while it runs.
//!
//! A sandbox dies with the *thread* that started it (that is how the kernel reads "parent" for `--die-with-parent`),
//! and the runtime's worker threads come and go. So one thread of its own starts them all and lives as long as any of
//! them. Nothing here knows what a harness says; lines go through as they are.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use thiserror::Error;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::lines::Lines;
use crate::sandbox::SandboxCommand;
use crate::shim::control::{self, Order, Report};
use crate::volume::LockedDir;

/// Requests waiting for the one thread; each takes about a millisecond, and an executor has fewer slots than this.
const REQUESTS_MAX: usize = 64;
/// Bubblewrap and shim need about 20 ms; on a machine where this is not enough the harness would not be usable.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// The longest line of a harness that is kept. Tool results with images come in one line.
const STDOUT_LINE_BYTES_MAX: usize = 16 << 20;
/// Error output is for people; what is longer is cut.
const STDERR_LINE_BYTES_MAX: usize = 4 << 10;
/// Lines of error output that explain a failed start.
const START_ERROR_LINES_MAX: usize = 20;

/// The one thread that starts sandboxes. Cheap to clone; when the last clone is gone the thread ends, and with it
/// every sandbox that it started.
#[derive(Debug, Clone)]
pub struct Spawner {
    requests: mpsc::Sender<Request>,
}

/// A running sandbox, in parts that are used apart.
#[derive(Debug)]
pub struct Inside {
    /// The harness's standard input.
    pub stdin: pipe::Sender,
    pub stdout: Lines<ChildStdout>,
    pub stderr: Lines<ChildStderr>,
    pub control: Control,
    pub exit: Exit,
}

/// Orders to the shim, and the hard way to end it all.
#[derive(Debug)]
pub struct Control {
    socket: UnixStream,
    bwrap: OwnedFd,
    shim: OwnedFd,
}

/// The end of a sandbox. Dropping this kills it.
#[derive(Debug)]
pub struct Exit {
    child: Child,
    shim: AsyncFd<OwnedFd>,
    /// Held until everything inside has ended, also if the shim is killed before its children.
    _locks: Vec<OwnedFd>,
    /// Keeps the starting thread alive, since the sandbox would die with it.
    _spawner: Spawner,
}

#[derive(Debug, Error)]
pub enum SpawnError {
    #[error("cannot start a sandbox: the thread that starts them has ended; restart the executor")]
    ThreadGone,
    #[error("cannot make the pipes and sockets of a sandbox; raise the limit of open files (ulimit -n)")]
    Plumbing(#[source] io::Error),
    #[error("cannot start {program}; run the sandbox probe to see what is missing")]
    NotStarted { program: String, source: io::Error },
    #[error("the sandbox ended before the harness ran ({status}): {stderr}")]
    EndedAtOnce { status: ExitStatus, stderr: String },
    #[error("the sandbox did not start the harness within {} s; the machine is overloaded, try again later", START_PATIENCE.as_secs())]
    Slow,
}

#[derive(Debug)]
struct Request {
    command: SandboxCommand,
    stdin: Stdio,
    answer: oneshot::Sender<io::Result<Child>>,
}

// === impl Spawner ===

impl Spawner {
    /// Starts the thread. Children are collected by the runtime this is called in, which must outlive them.
    pub fn start() -> io::Result<Self> {
        let (requests, mut waiting) = mpsc::channel::<Request>(REQUESTS_MAX);
        let runtime = Handle::current();
        std::thread::Builder::new().name("spawner".to_owned()).spawn(move || {
            while let Some(request) = waiting.blocking_recv() {
                let _runtime = runtime.enter();
                // An asker that has gone drops the child, and dropping it kills it.
                let _asker_gone = request.answer.send(spawn(&request.command, request.stdin));
            }
        })?;
        Ok(Self { requests })
    }

    /// Starts a sandbox whose inside holds the locks of `dir`; answers when the harness runs.
    pub async fn spawn(&self, command: SandboxCommand, dir: &LockedDir) -> Result<Inside, SpawnError> {
        let [conversation, volume] = dir.locks();
        let plumbing = || {
            let (ours, theirs) = StdUnixStream::pair()?;
            let (input, stdin) = io::pipe()?;
            // In the socket before the sandbox exists: there is no moment at which nobody holds the locks.
            control::send(&ours, Order::Start, &[input.as_fd(), conversation, volume])?;
            ours.set_nonblocking(true)?;
            let locks = vec![conversation.try_clone_to_owned()?, volume.try_clone_to_owned()?];
            let stdin = pipe::Sender::from_owned_fd(stdin.into())?;
            Ok((UnixStream::from_std(ours)?, OwnedFd::from(theirs), stdin, locks))
        };
        let (socket, theirs, stdin, locks) = plumbing().map_err(SpawnError::Plumbing)?;

        let program = command.program.display().to_string();
        let (answer, answered) = oneshot::channel();
        let request = Request { command, stdin: theirs.into(), answer };
        self.requests.send(request).await.map_err(|_| SpawnError::ThreadGone)?;
        let child = answered.await.map_err(|_| SpawnError::ThreadGone)?;
        let mut child = child.map_err(|source| SpawnError::NotStarted { program, source })?;

        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(SpawnError::Plumbing(io::Error::other("the child has no output pipes")));
        };
        let mut stderr = Lines::new(stderr, STDERR_LINE_BYTES_MAX);
        let bwrap = open_pidfd(&child).map_err(SpawnError::Plumbing)?;
        let shim = match timeout(START_PATIENCE, started(&socket)).await {
            Err(_) => return Err(SpawnError::Slow),
            Ok(Some(shim)) => shim,
            Ok(None) => return Err(ended_at_once(child, &mut stderr).await),
        };
        let control = Control { socket, bwrap, shim: shim.try_clone().map_err(SpawnError::Plumbing)? };
        let shim = watch(shim).map_err(SpawnError::Plumbing)?;
        let exit = Exit { child, shim, _locks: locks, _spawner: self.clone() };
        Ok(Inside { stdin, stdout: Lines::new(stdout, STDOUT_LINE_BYTES_MAX), stderr, control, exit })
    }
}

// === impl Control ===

impl Control {
    pub async fn order(&self, order: Order) -> io::Result<()> {
        self.socket.async_io(Interest::WRITABLE, || control::send(&self.socket, order, &[])).await
    }

    /// The shim's next report, `None` when the sandbox is gone.
    pub async fn report(&self) -> io::Result<Option<Report>> {
        let received = next_report(&self.socket).await?;
        Ok(received.map(|(report, _)| report))
    }

    /// Ends everything inside at once, frozen or not. [`Exit::wait`] tells when it is over.
    pub fn kill(&self) {
        for process in [&self.shim, &self.bwrap] {
            // Already gone is what was wanted.
            let _gone = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

// === impl Exit ===

impl Exit {
    /// Waits until the sandbox has ended and nothing that was inside lives; only then are the locks given up.
    pub async fn wait(mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        // Bubblewrap may be killed alone; its child follows, but not in the same moment.
        let _ended = self.shim.readable().await?;
        Ok(status)
    }
}

fn spawn(command: &SandboxCommand, stdin: Stdio) -> io::Result<Child> {
    let mut process = Command::new(&command.program);
    process.args(&command.launch.args).env_clear().envs(&command.launch.env);
    process.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    process.spawn()
}

fn open_pidfd(child: &Child) -> io::Result<OwnedFd> {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("the child ended before it was looked at"))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

#[expect(
    deprecated,
    reason = "its replacement is unsafe; an owned descriptor stays what it is while it is watched"
)]
fn watch(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(pidfd, Interest::READABLE)
}

async fn next_report(socket: &UnixStream) -> io::Result<Option<(Report, Vec<OwnedFd>)>> {
    socket.async_io(Interest::READABLE, || control::receive::<Report>(socket)).await
}

/// The shim's pidfd from its first report; `None` when the sandbox ended without one.
async fn started(socket: &UnixStream) -> Option<OwnedFd> {
    match next_report(socket).await {
        Ok(Some((Report::Started, mut descriptors))) => descriptors.pop(),
        _ => None,
    }
}

async fn ended_at_once(mut child: Child, stderr: &mut Lines<impl AsyncRead + Unpin>) -> SpawnError {
    let explained = async {
        let mut said = Vec::new();
        while let Ok(Some(line)) = stderr.next().await {
            if said.len() < START_ERROR_LINES_MAX {
                said.push(line.text);
            }
        }
        (child.wait().await, said.join("; "))
    };
    match timeout(START_PATIENCE, explained).await {
        Ok((Ok(status), stderr)) => SpawnError::EndedAtOnce { status, stderr },
        Ok((Err(error), _)) => SpawnError::Plumbing(error),
        Err(_) => SpawnError::Slow,
    }
}
