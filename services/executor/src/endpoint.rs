//! The one thing a sandbox can talk to: an HTTP server on the segment's unix socket, for model calls (`/v1`) and for
//! the calls an agent has (`/mcp`). Nothing but the sandbox reaches the socket, and still everything but the harness's
//! probe needs the segment's token, which dies with the segment.
//!
//! No header, no body and no token is logged here.

mod credential;

use std::convert::Infallible;
use std::io;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{StatusCode, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::model_proxy::{ModelProxy, Question, Refusal};
use crate::tools::Tools;

pub use credential::Credential;

/// As many as the shim inside carries; each costs a file descriptor and its buffers.
pub const CONNECTIONS_MAX: usize = 256;
/// Claude Code's headers are 2 KiB; this is also how much of a request's body is read ahead.
const READ_AHEAD_BYTES: usize = 64 * 1024;
/// Pause after a failed accept (descriptors used up): long enough not to spin, short enough not to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What serves one segment.
#[derive(Debug)]
pub struct Endpoint {
    pub credential: Credential,
    pub model: ModelProxy,
    pub tools: Tools,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the segment's socket cannot be listened on; hand in a listener that does not block, on a tokio runtime"
)]
pub struct EndpointError(#[source] io::Error);

// === impl Endpoint ===

impl Endpoint {
    /// Serves until `ended`, which cuts what is open: by then the harness is gone, and nobody reads an answer.
    pub async fn serve(
        self,
        listener: StdUnixListener,
        ended: CancellationToken,
    ) -> Result<(), EndpointError> {
        let listener = UnixListener::from_std(listener).map_err(EndpointError)?;
        let router = self.router(&ended);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(connection(stream, router.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a sandbox's connection was not accepted; look at the limit of open files");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                () = ended.cancelled() => break,
            }
        }
        connections.shutdown().await;
        Ok(())
    }

    fn router(self, ended: &CancellationToken) -> Router {
        let guard = middleware::from_fn_with_state(self.credential, admit);
        let model = Router::new()
            .route(Question::Message.path(), post(messages))
            .route(Question::TokenCount.path(), post(token_count))
            .with_state(self.model);
        let guarded = Router::new()
            .merge(model)
            .route_service("/mcp", self.tools.into_service(ended.child_token()))
            .route_layer(guard);
        Router::new()
            .route("/", get(probe))
            .merge(guarded)
            .fallback(unknown)
            .method_not_allowed_fallback(unknown)
    }
}

async fn connection(stream: UnixStream, router: Router) {
    let service = service_fn(move |request: hyper::Request<Incoming>| answer(router.clone(), request));
    let served = http1::Builder::new()
        // A harness keeps idle connections, and one that is closed under its next request is an error to it.
        .header_read_timeout(None)
        .max_buf_size(READ_AHEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection of the sandbox ended early");
    }
}

/// Whoever names a host wants to go elsewhere, and this leads nowhere else.
async fn answer(router: Router, request: hyper::Request<Incoming>) -> Result<Response, Infallible> {
    match request.uri().authority() {
        Some(_) => Ok(Refusal::OtherHost.into_response()),
        None => router.oneshot(request.map(Body::new)).await,
    }
}

async fn admit(State(credential): State<Credential>, mut request: Request, next: Next) -> Response {
    if !credential.admits(request.headers()) {
        return refuse(request.uri(), Refusal::Unauthenticated);
    }
    Credential::take_from(request.headers_mut());
    next.run(request).await
}

/// The harness asks before its first call whether anybody is there.
async fn probe() -> StatusCode {
    StatusCode::OK
}

async fn messages(State(model): State<ModelProxy>, request: Request) -> Response {
    model.forward(Question::Message, request).await
}

async fn token_count(State(model): State<ModelProxy>, request: Request) -> Response {
    model.forward(Question::TokenCount, request).await
}

async fn unknown(uri: Uri) -> Response {
    refuse(&uri, Refusal::NotFound)
}

/// In the provider's shape where the provider's clients ask.
fn refuse(uri: &Uri, refusal: Refusal) -> Response {
    match uri.path().starts_with("/v1") {
        true => refusal.into_response(),
        false => refusal.status().into_response(),
    }
}
