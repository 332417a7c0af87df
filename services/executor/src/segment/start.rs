//! Setting a segment up: the conversation's folders and their lock, our configuration of it, the endpoint, the harness.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use contract::buckets::{Agent, AgentKey, Agents};
use contract::messages::assign::Assignment;
use domain::process::{Session, State};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::Executor;
use crate::endpoint::{Credential, Endpoint};
use crate::harness::HarnessEvent;
use crate::harness::claude_code::{self, Claude, LaunchSpec, Running, mcp_json};
use crate::model_proxy::{ModelProxy, Patience};
use crate::prompt;
use crate::sandbox::inside;
use crate::tools::{Calls, Tools};
use crate::volume::{DirName, LockedDir, VolumeError};

/// How long a sandbox of the conversation's last segment may still live. It is being ended: its process has parked,
/// finished within the grace for its last turn, or was lost.
const LOCK_WITHIN: Duration = Duration::from_secs(60);
const LOCK_POLL: Duration = Duration::from_millis(50);

/// How long a read waits that the broker did not answer.
const BROKER_AWAY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum Begun {
    Runs(Started),
    /// What a person has to do.
    Cannot {
        what: String,
    },
}

/// A harness that runs, and what serves it.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) claude: Claude,
    pub(super) events: mpsc::Receiver<HarnessEvent>,
    pub(super) session: Session,
    alive: Arc<AtomicBool>,
    ended: CancellationToken,
    endpoint: JoinHandle<()>,
    /// What lives inside holds these locks too.
    _dir: LockedDir,
}

pub(super) async fn begin(
    executor: Arc<Executor>,
    assignment: Assignment,
    state: State,
    calls: Arc<dyn Calls>,
) -> Begun {
    match set_up(&executor, &assignment, &state, calls).await {
        Ok(started) => Begun::Runs(started),
        Err(what) => Begun::Cannot { what },
    }
}

async fn set_up(
    executor: &Executor,
    assignment: &Assignment,
    state: &State,
    calls: Arc<dyn Calls>,
) -> Result<Started, String> {
    if let Some(unable) = executor.unable() {
        return Err(format!("sandbox unavailable: {unable}"));
    }
    let agent = agent_of(executor, state).await?;
    let dir = lock(executor, state).await?;
    let conversation = dir.dir().conversation().clone();
    let prompt = prompt::compose(&agent.instructions, &conversation).map_err(|error| error.to_string())?;
    dir.configure(&prompt, &mcp_json()).map_err(|error| chain(&error))?;
    let listener = dir.listen().map_err(|error| chain(&error))?;

    let token = service::fresh::token().map_err(|error| chain(&error))?;
    let alive = Arc::new(AtomicBool::new(true));
    let ended = CancellationToken::new();
    let (model, mut told) =
        ModelProxy::new(executor.client.clone(), executor.provider.clone(), Patience::default())
            .map_err(|error| chain(&error))?;
    tokio::spawn(async move { while told.recv().await.is_some() {} });
    let endpoint = Endpoint {
        credential: Credential::new(token.clone(), Arc::clone(&alive)),
        model,
        tools: Tools::new(calls),
    };
    let serving = tokio::spawn({
        let ended = ended.clone();
        async move {
            if let Err(error) = endpoint.serve(listener, ended).await {
                tracing::error!(%error, "the segment's endpoint");
            }
        }
    });

    let session = session_of(&dir, state, assignment);
    let id = match session {
        claude_code::Session::New(id) | claude_code::Session::Resume(id) => id,
    };
    let spec = LaunchSpec { session, model: agent.model, token };
    // The plan of an earlier segment is in its transcript; it is shown anew when it changes.
    let Running { claude, events } =
        claude_code::start(&executor.spawner, &executor.sandbox, &dir, &spec, Vec::new())
            .await
            .map_err(|error| chain(&error))?;
    tracing::info!(session = %id, resumed = matches!(session, claude_code::Session::Resume(_)), "harness.start");
    Ok(Started {
        claude,
        events,
        session: Session { id: id.to_string(), version: executor.harness_version.clone() },
        alive,
        ended,
        endpoint: serving,
        _dir: dir,
    })
}

async fn agent_of(executor: &Executor, state: &State) -> Result<Agent, String> {
    let key = AgentKey { org: state.org, agent: state.agent };
    loop {
        match executor.nats.last_value::<Agents>(&key).await {
            Ok(Some(agent)) => return Ok(agent),
            Ok(None) => {
                return Err(format!(
                    "agent {} is unknown; create it again or start with another",
                    state.agent
                ));
            }
            // An outage of the broker is no reason to ask a person. The executor's end is the bound.
            Err(error) => tracing::warn!(%error, "the agent cannot be read yet"),
        }
        tokio::select! {
            () = executor.shutdown.now() => return Err("the executor ended while it was away".into()),
            () = executor.clock.sleep(BROKER_AWAY) => {}
        }
    }
}

/// Takes the conversation's folders, once nothing of its last segment lives in them.
async fn lock(executor: &Executor, state: &State) -> Result<LockedDir, String> {
    let name = |id: String| id.parse::<DirName>().map_err(|error| error.to_string());
    let (agent, conversation) = (name(state.agent.to_string())?, name(state.conversation.to_string())?);
    let polls = LOCK_WITHIN.as_millis() / LOCK_POLL.as_millis();
    for _ in 0..polls {
        let dir = executor.volume.conversation(&agent, &conversation).map_err(|error| chain(&error))?;
        match dir.lock() {
            Ok(locked) => return Ok(locked),
            Err(VolumeError::ConversationInUse { .. }) => executor.clock.sleep(LOCK_POLL).await,
            Err(error) => return Err(chain(&error)),
        }
    }
    Err("a sandbox of this conversation still lives and does not end; restart the executor".into())
}

/// The session to work in: the conversation's own if its transcript is there, else a new one.
fn session_of(dir: &LockedDir, state: &State, assignment: &Assignment) -> claude_code::Session {
    let known = state.session.as_ref().and_then(|session| session.id.parse::<Uuid>().ok());
    match known {
        Some(id) if has_transcript(&dir.dir().home(), dir.dir().conversation(), id) => {
            claude_code::Session::Resume(id)
        }
        // Derived, so that a start that is repeated after a crash is the same.
        _ => claude_code::Session::New(Uuid::new_v5(
            &assignment.process.uuid(),
            format!("session/{}", assignment.epoch).as_bytes(),
        )),
    }
}

/// Claude Code names the folder after the current directory, with everything but letters and digits as a dash. It
/// writes a little later than it acts: a session that was killed in its first moments has a file without a message, or
/// none, and cannot be resumed.
fn has_transcript(home: &Path, conversation: &DirName, session: Uuid) -> bool {
    let slug: String = inside::workdir(conversation)
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let path = home.join(".claude/projects").join(slug).join(format!("{session}.jsonl"));
    let Ok(file) = File::open(path) else { return false };
    let mut lines = BufReader::new(file).lines().map_while(Result::ok);
    lines.any(|line| line.contains(r#""type":"user""#))
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

// === impl Started ===

impl Started {
    /// Whether the segment's token is worth anything from here on.
    pub(super) fn serve(&self, served: bool) {
        self.alive.store(served, Ordering::Release);
    }

    /// The harness is gone; so is everything that served it.
    pub(super) async fn close(self) {
        self.serve(false);
        self.ended.cancel();
        if let Err(error) = self.endpoint.await {
            tracing::error!(%error, "the segment's endpoint");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_session_with_a_message_can_be_resumed() {
        let home = tempfile::tempdir().unwrap();
        let (conversation, session) = ("cnv_1".parse::<DirName>().unwrap(), Uuid::from_u128(5));
        let known = || has_transcript(home.path(), &conversation, session);
        assert!(!known(), "no file");
        let folder = home.path().join(".claude/projects/-agent-data-workdirs-cnv-1");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("{session}.jsonl"));
        std::fs::write(&file, "{\"type\":\"queue-operation\"}\n").unwrap();
        assert!(!known(), "no message");
        std::fs::write(&file, "{\"type\":\"queue-operation\"}\n{\"parentUuid\":null,\"type\":\"user\"}\n")
            .unwrap();
        assert!(known());
    }
}
