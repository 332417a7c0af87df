//! The driver of Claude Code: one running harness, spoken to in its stream-json protocol.
//!
//! Protocol knowledge is in the pure parts ([`Codec`], the frame builders, [`launch`]); the tasks that carry lines to
//! and fro are in `pump`. Reading never waits for writing, so an answer gets through even while its asker does not
//! take events.

mod codec;
mod frames;
mod launch;
mod plan;
mod pump;
mod tasks;

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use uuid::Uuid;

use super::{HarnessEvent, PlanItem};
use crate::sandbox::Sandbox;
use crate::shim::control::Order;
use crate::spawn::{Control, SpawnError, Spawner};
use crate::volume::LockedDir;

pub use codec::Codec;
pub use frames::{cancel_async_message, end_session, interrupt, refuse, user_frame};
pub use launch::{LaunchSpec, Session, launch, mcp_json};

/// Events that the segment has not taken yet. Beyond it reading stops, and the harness waits on its output.
const EVENTS_MAX: usize = 1_024;
/// Frames to write. The segment hands over one input at a time; more than this is a loop.
const FRAMES_MAX: usize = 64;
/// The harness answers in milliseconds, also in the middle of a turn; it is ill when this passes.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// After SIGKILL only the kernel's own work is left.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// Withdrawn messages that are remembered; a segment that withdrew more delivers nothing any more.
const WITHDRAWN_MAX: usize = 10_000;

/// A harness that runs. Take events until [`super::What::Exited`]; dropping the receiver, or every [`Claude`], kills
/// it.
#[derive(Debug)]
pub struct Running {
    pub claude: Claude,
    pub events: mpsc::Receiver<HarnessEvent>,
}

/// What one can ask of the running harness. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Claude {
    frames: mpsc::Sender<Outgoing>,
    shared: Arc<Shared>,
    ended: watch::Receiver<bool>,
}

/// How a session was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// Through the protocol: transcript closed, children ended.
    InOrder,
    /// The harness did not end in time. The session can still be resumed; what ran is lost.
    Killed,
}

#[derive(Debug, Error)]
pub enum ClaudeError {
    #[error("cannot {attempt}: the harness has ended; wake the process again")]
    Ended { attempt: &'static str },
    #[error(
        "cannot {attempt}: the harness did not answer within {} s; end it and resume the session",
        ANSWER_PATIENCE.as_secs()
    )]
    NoAnswer { attempt: &'static str },
    #[error("cannot {attempt}: the harness refused ({answer}); end it and resume the session")]
    Refused { attempt: &'static str, answer: Value },
    #[error("cannot {attempt}: the shim does not listen; kill the sandbox and resume the session")]
    Shim { attempt: &'static str, source: io::Error },
    #[error(
        "cannot deliver under {uuid}: a message was withdrawn under this id, and this harness would acknowledge it \
         without running it; use a fresh id, or wait for the next segment"
    )]
    Withdrawn { uuid: Uuid },
    #[error(
        "cannot withdraw more than {WITHDRAWN_MAX} messages in one segment; end it and resume the session"
    )]
    TooManyWithdrawn,
}

/// A line for the harness, and who waits until it is written.
#[derive(Debug)]
struct Outgoing {
    frame: String,
    written: oneshot::Sender<()>,
}

/// What the asking side shares with the tasks round the harness.
#[derive(Debug)]
struct Shared {
    control: Control,
    requests: AtomicU64,
    /// Requests without their answer yet, `None` once the harness has ended.
    waiting: Mutex<Option<HashMap<String, oneshot::Sender<Answered>>>>,
    withdrawn: Mutex<HashSet<Uuid>>,
    /// What the shim last reported.
    frozen: watch::Sender<bool>,
}

#[derive(Debug)]
struct Answered {
    ok: bool,
    body: Value,
}

/// Starts the harness in a sandbox on the locked folders. It takes input at once; no model was called yet. `plan` is
/// the plan of a resumed session as it was last heard of.
pub async fn start(
    spawner: &Spawner,
    sandbox: &Sandbox,
    dir: &LockedDir,
    spec: &LaunchSpec,
    plan: Vec<PlanItem>,
) -> Result<Running, SpawnError> {
    let command = sandbox.command(dir.dir(), launch(spec));
    let inside = spawner.spawn(command, dir).await?;
    let (events, received) = mpsc::channel(EVENTS_MAX);
    let (frames, outgoing) = mpsc::channel(FRAMES_MAX);
    let (over, ended) = watch::channel(false);
    let shared = pump::start(inside, Codec::with_plan(plan), outgoing, &frames, events, over);
    Ok(Running { claude: Claude { frames, shared, ended }, events: received })
}

// === impl Claude ===

impl Claude {
    /// Hands over one message. It counts as delivered when the harness echoes `uuid` as consumed; the same id twice
    /// is run once, also across a resume.
    pub async fn deliver(&self, uuid: Uuid, text: &str) -> Result<(), ClaudeError> {
        if self.shared.withdrawn().contains(&uuid) {
            return Err(ClaudeError::Withdrawn { uuid });
        }
        self.write("deliver a message", user_frame(uuid, text)).await
    }

    /// Takes back a message that is not consumed yet; whether it was still there to be taken. Its id is then spent
    /// for this segment.
    pub async fn withdraw(&self, uuid: Uuid) -> Result<bool, ClaudeError> {
        if self.shared.withdrawn().len() >= WITHDRAWN_MAX {
            return Err(ClaudeError::TooManyWithdrawn);
        }
        let body = self.ask("withdraw a message", |request| cancel_async_message(request, uuid)).await?;
        let cancelled = body["cancelled"] == true;
        if cancelled {
            self.shared.withdrawn().insert(uuid);
        }
        Ok(cancelled)
    }

    /// Ends the current turn; queued messages run at once after it. The turn is over with its `TurnEnded`.
    pub async fn interrupt(&self) -> Result<(), ClaudeError> {
        self.ask("interrupt the turn", interrupt).await.map(drop)
    }

    /// Ends the session through the protocol, and hard when that takes longer than `deadline`. Returns when nothing
    /// lives inside any more.
    pub async fn end_session(&self, deadline: Duration) -> Result<SessionEnd, ClaudeError> {
        let in_order = async {
            let frame = end_session(&self.shared.next_request(), "park");
            // A harness that has already ended takes no frame; that is as good.
            let _already_ended = self.write("end the session", frame).await;
            self.ended().await;
        };
        if timeout(deadline, in_order).await.is_ok() {
            return Ok(SessionEnd::InOrder);
        }
        self.kill().await?;
        Ok(SessionEnd::Killed)
    }

    /// Ends everything inside at once, and returns when it is over.
    pub async fn kill(&self) -> Result<(), ClaudeError> {
        let attempt = "kill the sandbox";
        self.shared.control.kill();
        timeout(KILL_PATIENCE, self.ended()).await.map_err(|_| ClaudeError::NoAnswer { attempt })
    }

    /// Stops every process inside where it stands, until [`Self::thaw`]. When this returns, they have stopped.
    pub async fn freeze(&self) -> Result<(), ClaudeError> {
        self.order("freeze the sandbox", Order::Freeze, true).await
    }

    /// Lets everything inside go on, whoever froze it.
    pub async fn thaw(&self) -> Result<(), ClaudeError> {
        self.order("thaw the sandbox", Order::Thaw, false).await
    }

    async fn order(&self, attempt: &'static str, order: Order, frozen: bool) -> Result<(), ClaudeError> {
        let mut seen = self.shared.frozen.subscribe();
        let done = async {
            self.shared.control.order(order).await.map_err(|source| ClaudeError::Shim { attempt, source })?;
            let _reported = seen.wait_for(|seen| *seen == frozen).await;
            Ok(())
        };
        timeout(ANSWER_PATIENCE, done).await.map_err(|_| ClaudeError::NoAnswer { attempt })?
    }

    async fn ended(&self) {
        // The sender is only dropped after it has said so, or with the runtime.
        let mut over = self.ended.clone();
        let _over = over.wait_for(|ended| *ended).await;
    }

    async fn write(&self, attempt: &'static str, frame: String) -> Result<(), ClaudeError> {
        let (written, done) = oneshot::channel();
        let hand_over = async {
            self.frames
                .send(Outgoing { frame, written })
                .await
                .map_err(|_| ClaudeError::Ended { attempt })?;
            done.await.map_err(|_| ClaudeError::Ended { attempt })
        };
        timeout(ANSWER_PATIENCE, hand_over).await.map_err(|_| ClaudeError::NoAnswer { attempt })?
    }

    async fn ask(
        &self,
        attempt: &'static str,
        frame: impl FnOnce(&str) -> String,
    ) -> Result<Value, ClaudeError> {
        let request = self.shared.next_request();
        let (answer, answered) = oneshot::channel();
        match self.shared.waiting().as_mut() {
            Some(waiting) => waiting.insert(request.clone(), answer),
            None => return Err(ClaudeError::Ended { attempt }),
        };
        let asked = async {
            self.write(attempt, frame(&request)).await?;
            timeout(ANSWER_PATIENCE, answered).await.map_err(|_| ClaudeError::NoAnswer { attempt })
        };
        let result = asked.await;
        if let Some(waiting) = self.shared.waiting().as_mut() {
            waiting.remove(&request);
        }
        match result? {
            Ok(Answered { ok: true, body }) => Ok(body),
            Ok(Answered { ok: false, body }) => Err(ClaudeError::Refused { attempt, answer: body }),
            Err(_) => Err(ClaudeError::Ended { attempt }),
        }
    }
}

// === impl Shared ===

impl Shared {
    fn new(control: Control) -> Self {
        Self {
            control,
            requests: AtomicU64::new(0),
            waiting: Mutex::new(Some(HashMap::new())),
            withdrawn: Mutex::new(HashSet::new()),
            frozen: watch::Sender::new(false),
        }
    }

    fn next_request(&self) -> String {
        format!("r{}", self.requests.fetch_add(1, Ordering::Relaxed))
    }

    fn waiting(&self) -> MutexGuard<'_, Option<HashMap<String, oneshot::Sender<Answered>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn withdrawn(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
