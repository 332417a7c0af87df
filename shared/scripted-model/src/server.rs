//! The routes, and the playing of a reply: pauses, gates, cuts. What is answered is the script's, how it is written
//! the wire's; here is only the order of things in time. Contents are never logged.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::stream;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::handle::{Doors, Shared};
use crate::reply::{Failure, Reply};
use crate::request::RequestView;
use crate::seen::{AnsweredBy, Fault, Progress};
use crate::wire::{Piece, Wire};

const MESSAGES: &str = "/v1/messages";
/// The provider's own limit on a Messages request.
const BODY_BYTES: usize = 32 << 20;
/// How often a held stream shows that it lives; a harness drops a stream that is silent for minutes.
const PING_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn routes(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(probe))
        .route(MESSAGES, post(anthropic_messages))
        .route("/v1/messages/count_tokens", post(count_tokens))
        .route("/v1/models", get(models))
        .fallback(unknown)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .with_state(shared)
}

async fn probe() -> StatusCode {
    StatusCode::OK
}

async fn count_tokens(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let wire = Wire::AnthropicMessages;
    admitted(&shared, wire, &headers, wire.token_count())
}

async fn models(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let wire = Wire::AnthropicMessages;
    admitted(&shared, wire, &headers, wire.models())
}

async fn unknown() -> Response {
    failure(
        Wire::AnthropicMessages,
        StatusCode::NOT_FOUND,
        "the scripted model has no such route; it speaks POST /v1/messages",
    )
}

async fn anthropic_messages(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    answer(shared, Wire::AnthropicMessages, MESSAGES, headers, body).await
}

async fn answer(
    shared: Arc<Shared>,
    wire: Wire,
    path: &'static str,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut seq = 0;
    shared.seen.send_modify(|seen| seq = seen.next_seq());
    let request = match wire.read(seq, headers, body) {
        Ok(request) => Arc::new(request),
        Err(error) => {
            let reason = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            shared.seen.send_modify(|seen| seen.fault(Fault::Unreadable { path, reason }));
            return failure(wire, StatusCode::BAD_REQUEST, &error.to_string());
        }
    };
    let (by, reply) = match shared.admits(&request.headers) {
        true => shared.script().answer(&request),
        false => (AnsweredBy::Refused, Reply::fail(401, REFUSAL)),
    };
    let session = request.session.as_deref().unwrap_or_default();
    tracing::info!(seq, agent = %request.agent, session, answered_by = %by, "model request {seq} answered by {by}");
    let reply = checked(&shared, &request, reply);
    shared.seen.send_modify(|seen| seen.opened(request.clone(), by));
    let open = Open { shared, seq, ended: false };
    play(wire, &request, reply, open).await
}

/// A call of a tool that the harness does not have would only be answered by the harness's own error; the fault is
/// in the script, and is kept for whoever holds the handle.
fn checked(shared: &Shared, request: &RequestView, reply: Reply) -> Reply {
    let missing = reply.tools.iter().find(|call| !request.offers(&call.alias));
    let Some(tool) = missing.map(|call| request.wire.tool_name(&call.alias)) else { return reply };
    let text = format!("The script asks for the tool {tool}, which this request does not offer.");
    let fault = Fault::ToolNotOffered { seq: request.seq, tool, offered: request.tools().to_vec() };
    shared.seen.send_modify(|seen| seen.fault(fault));
    Reply::text(text)
}

// === playing ===

/// A reply under way. Dropped before its end, the client went away.
struct Open {
    shared: Arc<Shared>,
    seq: u64,
    ended: bool,
}

async fn play(wire: Wire, request: &RequestView, reply: Reply, mut open: Open) -> Response {
    if let Some(gate) = &reply.hold_before {
        open.pass(gate).await;
    }
    open.pause(Duration::from_millis(reply.delay_ms)).await;
    if let Some(Failure { status, message, headers }) = &reply.fail {
        open.end();
        let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = failure(wire, status, message);
        for (name, value) in headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                response.headers_mut().insert(name, value);
            }
        }
        return response;
    }
    if request.stream {
        let pieces = wire.stream(request, &reply).into();
        let body = Body::from_stream(stream::unfold(Playing { wire, pieces, open }, Playing::next));
        return ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response();
    }
    if let Some(gate) = &reply.hold {
        open.pass(gate).await;
    }
    open.end();
    if reply.cut {
        return Body::from_stream(stream::iter([Err::<Bytes, _>(cut())])).into_response();
    }
    Json(wire.whole(request, &reply)).into_response()
}

struct Playing {
    wire: Wire,
    pieces: VecDeque<Piece>,
    open: Open,
}

impl Playing {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        loop {
            let piece = self.pieces.pop_front()?;
            if self.open.shared.doors.borrow().is_closing() {
                return self.cut();
            }
            match piece {
                Piece::Data(bytes) => {
                    if self.pieces.is_empty() {
                        self.open.end();
                    }
                    return Some((Ok(bytes), self));
                }
                Piece::Pause(duration) => self.open.pause(duration).await,
                Piece::Hold(gate) => {
                    if timeout(PING_EVERY, self.open.pass(&gate)).await.is_err() {
                        self.pieces.push_front(Piece::Hold(gate));
                        return Some((Ok(self.wire.ping()), self));
                    }
                }
                Piece::Cut => return self.cut(),
            }
        }
    }

    /// An error of the body is what makes the server close the socket without the end of the message.
    fn cut(mut self) -> Option<(io::Result<Bytes>, Self)> {
        self.open.end();
        self.pieces.clear();
        Some((Err(cut()), self))
    }
}

impl Open {
    async fn pass(&self, gate: &str) {
        self.until(|doors| doors.is_open(gate)).await;
    }

    async fn pause(&self, duration: Duration) {
        tokio::select! {
            () = sleep(duration) => {}
            () = self.until(Doors::is_closing) => {}
        }
    }

    async fn until(&self, condition: impl FnMut(&Doors) -> bool) {
        let mut doors = self.shared.doors.subscribe();
        // It ends by the condition: the sender is in `shared`.
        let _ = doors.wait_for(condition).await;
    }

    fn end(&mut self) {
        self.close(Progress::Answered);
    }

    fn close(&mut self, progress: Progress) {
        if !std::mem::replace(&mut self.ended, true) {
            self.shared.seen.send_modify(|seen| seen.closed(self.seq, progress));
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.close(Progress::Aborted);
    }
}

// === answers without a script ===

const REFUSAL: &str = "invalid bearer token; use one that the scripted model was told to require";

fn admitted(shared: &Shared, wire: Wire, headers: &HeaderMap, body: Value) -> Response {
    match shared.admits(headers) {
        true => Json(body).into_response(),
        false => failure(wire, StatusCode::UNAUTHORIZED, REFUSAL),
    }
}

fn failure(wire: Wire, status: StatusCode, message: &str) -> Response {
    (status, Json(wire.failure(status.as_u16(), message))).into_response()
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the reply is cut here")
}
