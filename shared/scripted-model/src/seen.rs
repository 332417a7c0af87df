//! What the server saw: the requests it still remembers, how each was answered, and what was wrong with the script.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::request::RequestView;

/// Bytes of request bodies that are remembered; a demo server runs for days, a test makes a few hundred requests.
const KEPT_BYTES: usize = 64 << 20;
/// Faults that are remembered; the first ones tell what is wrong.
const FAULTS_KEPT: usize = 100;
/// Characters of a person's text that a report shows.
const SHOWN_CHARS: usize = 60;

#[derive(Debug, Default)]
pub struct Seen {
    exchanges: VecDeque<Exchange>,
    faults: Vec<Fault>,
    kept_bytes: usize,
    requests: u64,
}

/// One request and what became of it.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub request: Arc<RequestView>,
    pub answered_by: AnsweredBy,
    pub progress: Progress,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnsweredBy {
    Step(String),
    Responder,
    Default,
    /// Nobody: its credential is not one of those required.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Open,
    /// Everything the reply has was handed out.
    Answered,
    /// The client went away before that.
    Aborted,
}

/// The script and the harness do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("request {seq} was to be answered with a call of {tool}, which it does not offer; it offers: {}",
            offered.join(", "))]
    ToolNotOffered { seq: u64, tool: String, offered: Vec<String> },
    #[error("a request to {path} could not be read: {reason}")]
    Unreadable { path: &'static str, reason: String },
}

/// A condition was not met in time.
#[derive(Debug, thiserror::Error)]
#[error("{what} was not seen within {within:?}; look at what came instead:\n{seen}")]
pub struct NotSeen {
    pub what: String,
    pub within: Duration,
    pub seen: String,
}

// === impl Seen ===

impl Seen {
    pub fn exchanges(&self) -> impl DoubleEndedIterator<Item = &Exchange> + ExactSizeIterator {
        self.exchanges.iter()
    }

    pub fn requests(&self) -> impl DoubleEndedIterator<Item = &Arc<RequestView>> + ExactSizeIterator {
        self.exchanges.iter().map(|exchange| &exchange.request)
    }

    /// Requests whose client went away in the middle of the reply.
    pub fn aborted(&self) -> impl Iterator<Item = &Arc<RequestView>> {
        let aborted = |exchange: &&Exchange| exchange.progress == Progress::Aborted;
        self.exchanges.iter().filter(aborted).map(|exchange| &exchange.request)
    }

    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    pub(crate) fn next_seq(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    pub(crate) fn opened(&mut self, request: Arc<RequestView>, answered_by: AnsweredBy) {
        self.kept_bytes += request.raw.len();
        self.exchanges.push_back(Exchange { request, answered_by, progress: Progress::Open });
        while self.kept_bytes > KEPT_BYTES && self.exchanges.len() > 1 {
            let forgotten = self.exchanges.pop_front().map_or(0, |exchange| exchange.request.raw.len());
            self.kept_bytes -= forgotten;
        }
    }

    pub(crate) fn closed(&mut self, seq: u64, progress: Progress) {
        if let Some(exchange) = self.exchanges.iter_mut().rfind(|exchange| exchange.request.seq == seq) {
            exchange.progress = progress;
        }
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        if self.faults.len() < FAULTS_KEPT {
            self.faults.push(fault);
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for exchange in &self.exchanges {
            writeln!(f, "  {exchange}")?;
        }
        for fault in &self.faults {
            writeln!(f, "  fault: {fault}")?;
        }
        Ok(())
    }
}

// === impl Exchange ===

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RequestView { seq, agent, session, .. } = &*self.request;
        let session = session.as_deref().unwrap_or("none");
        let said: String = self.request.last_user().unwrap_or_default().chars().take(SHOWN_CHARS).collect();
        let by = &self.answered_by;
        let progress = self.progress;
        write!(f, "{seq}: {agent}, session {session}, answered by {by}, {progress:?}, last said {said:?}")
    }
}

// === impl AnsweredBy ===

impl fmt::Display for AnsweredBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(id) => write!(f, "step {id}"),
            Self::Responder => f.write_str("the responder"),
            Self::Default => f.write_str("the default"),
            Self::Refused => f.write_str("nobody (credential refused)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use bytes::Bytes;

    use super::*;
    use crate::wire::Wire;

    #[test]
    fn only_so_many_bytes_of_bodies_are_remembered() {
        let body = Bytes::from(format!("{{\"messages\": []{}}}", " ".repeat(KEPT_BYTES / 2)));
        let mut seen = Seen::default();
        for _ in 0..3 {
            let seq = seen.next_seq();
            let request = Wire::AnthropicMessages.read(seq, HeaderMap::new(), body.clone()).unwrap();
            seen.opened(Arc::new(request), AnsweredBy::Default);
        }
        assert_eq!(seen.requests().map(|request| request.seq).collect::<Vec<_>>(), [3]);
    }
}
