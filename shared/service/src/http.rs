//! HTTP as every role speaks it: one client to call others with, one server that slow or many peers cannot hold up.
//! Routes, authentication and the shape of errors are not here.

use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::shutdown::Shutdown;

/// A peer that is there answers a handshake in well under a second, also across a continent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Headers fit in a few packets; it is also how long a kept-alive connection may be idle.
const HEADER_READ: Duration = Duration::from_secs(30);
/// Bodies are small here; the largest attachment gets through in this time on a slow uplink.
const BODY_READ: Duration = Duration::from_secs(120);
/// Every viewer holds one; each costs a file descriptor and its buffers, and this many fit an ordinary container.
const CONNECTIONS: usize = 4_096;
/// Room for the largest cookie and token headers, a sixth of hyper's own.
const HEADER_BYTES: usize = 64 * 1024;
/// Out of file descriptors or memory, `accept` fails at once: this keeps the loop and the log quiet until some are free.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// How much a server bears from its peers.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the moment that a request may begin until its headers are complete.
    pub header_read: Duration,
    /// From the first wait for a request's body until it is complete.
    pub body_read: Duration,
    /// Connections at once; more wait in the operating system's backlog.
    pub connections: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("the HTTP client could not be set up; see that the machine has its CA certificates installed")]
pub struct ClientError(#[source] reqwest::Error);

/// A request's body that must be complete by a deadline.
struct TimedBody {
    incoming: Incoming,
    limit: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error("the request's body was not complete after {0:?}; send it faster or in smaller parts")]
    TooSlow(Duration),
    #[error("reading the request's body failed; send the request again")]
    Broken(#[source] hyper::Error),
}

/// The client for everything outside: TLS by rustls with ring, no redirects (a credential is sent where it was meant
/// to go), no proxy from the environment, no limit on a whole answer, which may be a stream.
pub fn client() -> Result<reqwest::Client, ClientError> {
    install_tls();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("resident/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(ClientError)
}

/// Makes ring the process's TLS provider, if none is. Called before anything that speaks TLS.
pub fn install_tls() {
    // An error says that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Serves until the shutdown begins; then finishes the requests at hand, and returns when they are done or may not be
/// waited for any longer. Handlers of endless answers end them when the shutdown begins.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, shutdown: Shutdown) {
    let room = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();
    let mut draining = pin!(shutdown.draining());
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            () = &mut draining => break,
        };
        if let Some((stream, permit)) = accepted {
            let connection = connection(stream, router.clone(), limits, shutdown.clone());
            connections.spawn(async move {
                connection.await;
                drop(permit);
            });
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// The next connection, when there is room for one.
async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(error) if error.kind() == ErrorKind::ConnectionAborted => None,
        Err(error) => {
            tracing::warn!(%error, "accepting a connection failed; look at the limit of open files");
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            None
        }
    }
}

async fn connection(stream: TcpStream, router: Router, limits: Limits, shutdown: Shutdown) {
    // A socket without a peer is one that has hung up.
    let Ok(peer) = stream.peer_addr() else { return };
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(|incoming| Body::new(TimedBody::new(incoming, limits.body_read)));
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().oneshot(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    let (mut draining, mut now) = (pin!(shutdown.draining()), pin!(shutdown.now()));
    let mut asked = false;
    loop {
        tokio::select! {
            outcome = &mut served => {
                if let Err(error) = outcome {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            () = &mut draining, if !asked => {
                asked = true;
                served.as_mut().graceful_shutdown();
            }
            () = &mut now => return,
        }
    }
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self { header_read: HEADER_READ, body_read: BODY_READ, connections: CONNECTIONS }
    }
}

// === impl TimedBody ===

impl TimedBody {
    fn new(incoming: Incoming, limit: Duration) -> Self {
        Self { incoming, limit, deadline: None }
    }
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)));
        }
        let limit = self.limit;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Some(Err(BodyError::TooSlow(limit))))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;
    use crate::clock::RealClock;

    const BOUND: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(150);
    const LIMITS: Limits = Limits { header_read: SHORT, body_read: SHORT, connections: 8 };

    struct Server {
        address: SocketAddr,
        shutdown: Shutdown,
        served: JoinHandle<()>,
        /// Lets the handler of `/slow` answer.
        answer: Arc<Notify>,
        /// The handler of `/slow` has begun.
        begun: Arc<Notify>,
    }

    async fn server(limits: Limits) -> Server {
        let (answer, begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let slow = {
            let (answer, begun) = (Arc::clone(&answer), Arc::clone(&begun));
            async move || {
                begun.notify_one();
                answer.notified().await;
                "done"
            }
        };
        let router = Router::new()
            .route("/peer", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.ip().to_string()))
            .route("/echo", post(async |body: String| body))
            .route("/slow", get(slow));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new(BOUND, Arc::new(RealClock::start()));
        let served = tokio::spawn(serve(listener, router, limits, shutdown.clone()));
        Server { address, shutdown, served, answer, begun }
    }

    /// What the server answers to these bytes until it closes the connection.
    async fn say(address: SocketAddr, bytes: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = timeout(BOUND, stream.read_to_end(&mut answer)).await;
        // A reset is an end too.
        let _ = read.expect("the server kept a slow connection open");
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn a_request_is_answered_and_knows_its_peer() {
        let server = server(Limits::default()).await;
        let client = client().unwrap();
        let answer = client.get(format!("http://{}/peer", server.address)).send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), "127.0.0.1");
        let answer =
            client.post(format!("http://{}/echo", server.address)).body("hello").send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), "hello");
    }

    #[tokio::test]
    async fn a_slow_header_and_a_silent_connection_are_cut() {
        let server = server(LIMITS).await;
        for bytes in ["", "GET /peer HTTP/1.1\r\nhost: a\r\nx-slow: "] {
            let answer = say(server.address, bytes).await;
            assert!(!answer.contains("200 OK"), "{answer}");
        }
    }

    #[tokio::test]
    async fn a_slow_body_is_cut_also_when_it_drips() {
        let server = server(LIMITS).await;
        let head = "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n";
        let answer = say(server.address, &format!("{head}ab")).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");

        let (mut reader, mut writer) = TcpStream::connect(server.address).await.unwrap().into_split();
        let drip = tokio::spawn(async move {
            writer.write_all(head.as_bytes()).await.unwrap();
            while writer.write_all(b"a").await.is_ok() {
                tokio::time::sleep(SHORT / 15).await;
            }
        });
        let mut answer = [0; 12];
        timeout(BOUND, reader.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(&answer, b"HTTP/1.1 400");
        drop(reader);
        timeout(BOUND, drip).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_drain_finishes_what_is_at_hand_and_takes_nothing_new() {
        let Server { address, shutdown, served, answer, begun } = server(Limits::default()).await;
        let idle = TcpStream::connect(address).await.unwrap();
        let request = tokio::spawn(say(address, "GET /slow HTTP/1.1\r\nhost: a\r\n\r\n"));
        timeout(BOUND, begun.notified()).await.unwrap();
        shutdown.begin();
        let refused = async {
            while TcpStream::connect(address).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        timeout(BOUND, refused).await.unwrap();
        assert!(!served.is_finished());
        answer.notify_one();
        assert!(request.await.unwrap().ends_with("done"));
        timeout(BOUND, served).await.unwrap().unwrap();
        drop(idle);
    }

    #[tokio::test]
    async fn now_waits_for_nothing() {
        let Server { address, shutdown, served, begun, answer: _answer } = server(Limits::default()).await;
        let request = tokio::spawn(say(address, "GET /slow HTTP/1.1\r\nhost: a\r\n\r\n"));
        timeout(BOUND, begun.notified()).await.unwrap();
        shutdown.end();
        timeout(BOUND, served).await.unwrap().unwrap();
        assert_eq!(request.await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_connection_beyond_the_bound_waits_for_room() {
        let server = server(Limits { connections: 1, ..Limits::default() }).await;
        let request = "GET /peer HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        let first =
            tokio::spawn(say(server.address, "GET /slow HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"));
        timeout(BOUND, server.begun.notified()).await.unwrap();
        let mut second = tokio::spawn(say(server.address, request));
        assert!(timeout(SHORT, &mut second).await.is_err(), "was served beyond the bound");
        server.answer.notify_one();
        first.await.unwrap();
        assert!(timeout(BOUND, second).await.unwrap().unwrap().contains("200 OK"));
    }
}
