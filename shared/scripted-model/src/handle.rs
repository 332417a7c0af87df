//! The running server, as a test or a program holds it. Dropping it ends the server and every open reply.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::request::{RequestView, authorization};
use crate::script::{Script, Step};
use crate::seen::{AnsweredBy, Fault, NotSeen, Seen};
use crate::server;

#[derive(Debug)]
pub struct ScriptedModel {
    shared: Arc<Shared>,
    address: SocketAddr,
}

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("a free local port for the scripted model could not be bound; is the loopback interface up?")]
    Bind(#[source] io::Error),
    #[error("the address of the scripted model's listener could not be read; hand in a bound TCP listener")]
    Address(#[source] io::Error),
}

/// What the handle and the routes have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    script: Mutex<Script>,
    pub(crate) seen: watch::Sender<Seen>,
    pub(crate) doors: watch::Sender<Doors>,
    credentials: Mutex<Option<HashSet<String>>>,
}

/// What replies may be waiting for.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    released: HashSet<String>,
    closing: bool,
}

// === impl ScriptedModel ===

impl ScriptedModel {
    /// Serves on a listener that is already bound; must be called on a tokio runtime.
    pub fn start(listener: TcpListener, script: impl Into<Script>) -> Result<Self, StartError> {
        let address = listener.local_addr().map_err(StartError::Address)?;
        let shared = Arc::new(Shared {
            script: Mutex::new(script.into()),
            seen: watch::Sender::default(),
            doors: watch::Sender::default(),
            credentials: Mutex::default(),
        });
        // Small writes must not wait for each other: the pauses between words are the script's, not the kernel's.
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection stays with Nagle's algorithm");
            }
        });
        let mut doors = shared.doors.subscribe();
        let closing = async move {
            // The sender lives in the state of the routes, so this ends by the drop of the handle alone.
            let _ = doors.wait_for(|doors| doors.closing).await;
        };
        let serving = axum::serve(listener, server::routes(shared.clone())).with_graceful_shutdown(closing);
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the scripted model stopped serving");
            }
        });
        Ok(Self { shared, address })
    }

    /// The same on a free port of this machine.
    pub async fn start_local(script: impl Into<Script>) -> Result<Self, StartError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(StartError::Bind)?;
        Self::start(listener, script)
    }

    /// The base URL, as a harness wants it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a step behind those that are left.
    pub fn push_step(&self, step: Step) {
        self.shared.script().push(step);
    }

    /// The steps that answered nothing so far.
    pub fn unused_steps(&self) -> Vec<String> {
        self.shared.script().unused()
    }

    pub fn requests(&self) -> Vec<Arc<RequestView>> {
        self.shared.seen.borrow().requests().cloned().collect()
    }

    pub fn aborted(&self) -> Vec<Arc<RequestView>> {
        self.shared.seen.borrow().aborted().cloned().collect()
    }

    pub fn faults(&self) -> Vec<Fault> {
        self.shared.seen.borrow().faults().to_vec()
    }

    /// Opens a gate for good: replies that wait for it go on, and those that come to it later pass.
    pub fn release(&self, gate: impl Into<String>) {
        let gate = gate.into();
        self.shared.doors.send_modify(|doors| {
            doors.released.insert(gate);
        });
    }

    /// From now on a request needs one of the credentials named so far.
    pub fn require_bearer(&self, token: impl Into<String>) {
        self.shared.credentials().get_or_insert_default().insert(token.into());
    }

    /// Takes a credential back; the last one gone, every request is refused.
    pub fn revoke_bearer(&self, token: &str) {
        self.shared.credentials().get_or_insert_default().remove(token);
    }

    /// Waits until `found` finds in what was seen what it looks for. It is asked at once and after every change, and
    /// must not use this handle.
    pub async fn wait_for<T>(
        &self,
        what: &str,
        within: Duration,
        mut found: impl FnMut(&Seen) -> Option<T>,
    ) -> Result<T, NotSeen> {
        let mut seen = self.shared.seen.subscribe();
        let mut hit = None;
        let search = seen.wait_for(|seen| {
            hit = found(seen);
            hit.is_some()
        });
        // Whether it ended by the time or by the condition, `hit` tells.
        let _ = tokio::time::timeout(within, search).await;
        hit.ok_or_else(|| NotSeen {
            what: what.to_owned(),
            within,
            seen: self.shared.seen.borrow().to_string(),
        })
    }

    /// Waits for the request that a step answers.
    pub async fn wait_for_step(&self, id: &str, within: Duration) -> Result<Arc<RequestView>, NotSeen> {
        let by = AnsweredBy::Step(id.to_owned());
        self.wait_for(&format!("step {id}"), within, |seen| {
            seen.exchanges()
                .find(|exchange| exchange.answered_by == by)
                .map(|exchange| exchange.request.clone())
        })
        .await
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.shared.doors.send_modify(|doors| doors.closing = true);
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn credentials(&self) -> MutexGuard<'_, Option<HashSet<String>>> {
        self.credentials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        let shown = authorization(headers).map(|value| value.strip_prefix("Bearer ").unwrap_or(value));
        self.credentials().as_ref().is_none_or(|wanted| shown.is_some_and(|token| wanted.contains(token)))
    }
}

// === impl Doors ===

impl Doors {
    pub(crate) fn is_open(&self, gate: &str) -> bool {
        self.closing || self.released.contains(gate)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }
}
