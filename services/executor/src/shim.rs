//! The first process inside every sandbox: it keeps the conversation's locks, forwards the one loopback port to the
//! runtime's socket, starts the harness, and ends with it.
//!
//! It is PID 1 of its namespace, so the kernel ends everything inside when it ends. It knows nothing of harness
//! protocols: the harness's standard streams pass through it untouched. There is no async runtime here on purpose;
//! the program must stay small, since one of it lives in every hot segment.
//!
//! Its own standard input is not the harness's but the *control socket* (see [`control`]): the executor hands the
//! harness's input and the locks through it, beats on it, and freezes and thaws what is inside. Descriptors that come
//! over a socket are close-on-exec from the start, so neither the harness nor a neighbour can inherit a lock.

pub mod control;
mod forward;
mod inherited;

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process_group,
    pidfd_open, set_dumpable_behavior, wait,
};
use thiserror::Error;

use control::{Order, Report};

/// The shim's own exit code when it could not do its work; harnesses do not use it.
pub const FAILED: u8 = 125;

/// What follows `resident-shim` on the command line; [`Arguments::to_args`] and [`Arguments::parse`] are inverse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// Where connections from inside are taken.
    pub listen: SocketAddr,
    /// The runtime's socket, to which they go.
    pub socket: PathBuf,
    /// How long the executor's beat may be missing before everything inside is frozen.
    pub patience: Duration,
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

#[derive(Debug, Error)]
pub enum ShimError {
    #[error(
        "cannot read the arguments: {0}; use --listen ADDR --socket PATH --patience-ms N -- PROGRAM [ARG …]"
    )]
    Arguments(&'static str),
    #[error("refusing to run outside a sandbox: this process is not PID 1 of its namespace")]
    NotInside,
    #[error(
        "cannot keep descriptors of the executor's own from the harness; is /proc mounted in the sandbox?"
    )]
    Inherited(#[source] io::Error),
    #[error(
        "cannot take the harness's input and the locks from standard input; only an executor starts this program"
    )]
    Handover(#[source] io::Error),
    #[error("cannot listen on {address} inside the sandbox; has it a network of its own?")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot start {}; is it mounted, and for this machine?", program.display())]
    Harness { program: PathBuf, source: io::Error },
    #[error(
        "cannot start the shim's threads or tell the executor of them; resume the session in a new sandbox"
    )]
    Report(#[source] io::Error),
    #[error("cannot wait for the harness; resume the session in a new sandbox")]
    Wait(#[source] Errno),
}

/// Runs the harness to its end and answers its exit code, 128 + signal when a signal ended it.
pub fn run(arguments: impl Iterator<Item = OsString>) -> Result<u8, ShimError> {
    let arguments = Arguments::parse(arguments)?;
    // Signals to "everyone" are used below: outside a PID namespace of its own that would be the whole machine.
    if getpid() != Pid::INIT {
        return Err(ShimError::NotInside);
    }
    inherited::keep_from_harness().map_err(ShimError::Inherited)?;
    // Nobody inside may trace this process or open its descriptors: the locks are here.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| ShimError::Handover(errno.into()))?;
    let (input, _locks) = take_over().map_err(ShimError::Handover)?;

    let listener = TcpListener::bind(arguments.listen)
        .map_err(|source| ShimError::Listen { address: arguments.listen, source })?;
    let socket = arguments.socket;
    spawn_thread("forward", move || forward::serve(&listener, &socket)).map_err(ShimError::Report)?;

    let mut command = Command::new(&arguments.program);
    command.args(&arguments.args).stdin(input);
    let harness = command
        .spawn()
        .map_err(|source| ShimError::Harness { program: arguments.program.clone(), source })?;
    // The command still holds the reading end of the harness's input; the writer must see it close with the harness.
    drop(command);

    announce().map_err(ShimError::Report)?;
    spawn_thread("control", move || obey(arguments.patience)).map_err(ShimError::Report)?;
    let status = reap_until(Pid::from_child(&harness))?;
    end_everyone()?;
    Ok(exit_code(status))
}

// === impl Arguments ===

impl Arguments {
    pub fn parse(mut given: impl Iterator<Item = OsString>) -> Result<Self, ShimError> {
        let (mut listen, mut socket, mut patience) = (None, None, None);
        loop {
            let flag = given.next().ok_or(ShimError::Arguments("no program"))?;
            if flag == "--" {
                break;
            }
            let value = given.next().ok_or(ShimError::Arguments("a flag without its value"))?;
            match flag.to_str() {
                Some("--listen") => listen = value.to_str().and_then(|text| text.parse().ok()),
                Some("--socket") => socket = Some(PathBuf::from(value)),
                Some("--patience-ms") => patience = value.to_str().and_then(|text| text.parse().ok()),
                _ => return Err(ShimError::Arguments("an unknown flag")),
            }
        }
        Ok(Self {
            listen: listen.ok_or(ShimError::Arguments("no address in --listen"))?,
            socket: socket.ok_or(ShimError::Arguments("no --socket"))?,
            patience: Duration::from_millis(
                patience.ok_or(ShimError::Arguments("no number in --patience-ms"))?,
            ),
            program: given.next().ok_or(ShimError::Arguments("no program"))?.into(),
            args: given.collect(),
        })
    }

    pub fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["--listen".into(), self.listen.to_string().into()];
        args.extend(["--socket".into(), self.socket.clone().into_os_string()]);
        args.extend(["--patience-ms".into(), self.patience.as_millis().to_string().into()]);
        args.extend(["--".into(), self.program.clone().into_os_string()]);
        args.extend(self.args.iter().cloned());
        args
    }
}

fn spawn_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// The first order carries the harness's input, then the locks, which live as long as this process.
fn take_over() -> io::Result<(Stdio, Vec<OwnedFd>)> {
    match control::receive::<Order>(io::stdin())? {
        Some((Order::Start, mut descriptors)) if !descriptors.is_empty() => {
            let input = descriptors.remove(0);
            Ok((Stdio::from(input), descriptors))
        }
        _ => Err(io::Error::other("the first order was not a start with descriptors")),
    }
}

/// Tells the executor that the harness runs, and gives it a handle by which it can see that all inside has ended.
fn announce() -> io::Result<()> {
    let this_process = pidfd_open(getpid(), PidfdFlags::empty())?;
    control::send(io::stdin(), Report::Started, &[this_process.as_fd()])
}

/// Follows the control socket. A missing beat freezes; only an explicit order thaws, since an executor that was away
/// must first learn whether this segment is still its own. A closed socket means that the executor is gone.
fn obey(patience: Duration) {
    let mut frozen = false;
    loop {
        let limit = (!frozen).then_some(patience);
        if set_socket_timeout(io::stdin(), Timeout::Recv, limit).is_err() {
            break;
        }
        frozen = match control::receive::<Order>(io::stdin()) {
            Ok(Some((Order::Start | Order::Beat, _))) => continue,
            Ok(Some((Order::Freeze, _))) => true,
            Ok(Some((Order::Thaw, _))) => false,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(None) | Err(_) => break,
        };
        let (signal, report) =
            if frozen { (Signal::STOP, Report::Frozen) } else { (Signal::CONT, Report::Thawed) };
        signal_everyone(signal);
        if control::send(io::stdin(), report, &[]).is_err() {
            break;
        }
    }
    // The harness dies with everyone, and the main thread ends the sandbox in order.
    signal_everyone(Signal::KILL);
}

/// To every process of the namespace but this one. Nothing to signal is no error.
fn signal_everyone(signal: Signal) {
    let _no_such_process = kill_process_group(Pid::INIT, signal);
}

/// Collects every orphan that ends, until the harness itself does.
fn reap_until(harness: Pid) -> Result<WaitStatus, ShimError> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == harness => return Ok(status),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(ShimError::Wait(errno)),
        }
    }
}

/// The kernel would end the rest anyway, but after it has closed this process's descriptors. Ending them first keeps
/// the promise that the locks outlive everything inside.
fn end_everyone() -> Result<(), ShimError> {
    signal_everyone(Signal::KILL);
    loop {
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(()),
            Err(errno) => return Err(ShimError::Wait(errno)),
        }
    }
}

fn exit_code(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> Arguments {
        Arguments {
            listen: "127.0.0.1:18080".parse().unwrap(),
            socket: "/run/resident/runtime.sock".into(),
            patience: Duration::from_secs(20),
            program: "/opt/harness".into(),
            args: vec!["--listen".into(), "--".into(), "x y".into()],
        }
    }

    #[test]
    fn arguments_come_back_as_they_were_given() {
        let given = arguments();
        let read = Arguments::parse(given.to_args().into_iter()).unwrap();
        assert_eq!(read, given);
    }

    #[test]
    fn every_missing_argument_is_named() {
        let whole = arguments().to_args();
        for (cut, complaint) in [(0..2, "--listen"), (2..4, "--socket"), (4..6, "--patience-ms")] {
            let mut args = whole.clone();
            args.drain(cut);
            let error = Arguments::parse(args.into_iter()).unwrap_err();
            assert!(error.to_string().contains(&format!("{complaint};")), "{error}");
        }
        let error = Arguments::parse(whole.into_iter().take(6)).unwrap_err();
        assert!(error.to_string().contains("no program"), "{error}");
    }

    #[test]
    fn outside_a_sandbox_it_refuses() {
        let error = run(arguments().to_args().into_iter()).unwrap_err();
        assert!(matches!(error, ShimError::NotInside), "{error}");
    }
}
