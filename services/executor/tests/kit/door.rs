//! An endpoint without a sandbox: served on a socket of its own, called by a client, and in front of a provider that
//! the test plays by hand.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use executor::endpoint::{Credential, Endpoint, EndpointError};
use executor::model_proxy::{ModelCall, ModelProxy, Patience, Provider};
use executor::sandbox::inside;
use executor::tools::Tools;
use http::{HeaderMap, HeaderValue};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::runtime::{PROVIDER_KEY, Segment, TOKEN};
use super::soon;

/// Short enough to wait for, long enough that a loaded machine says more than this between two pieces it has.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_millis(100);

pub(crate) struct Door {
    pub(crate) segment: Arc<Segment>,
    pub(crate) alive: Arc<AtomicBool>,
    pub(crate) ended: CancellationToken,
    pub(crate) calls: mpsc::Receiver<ModelCall>,
    pub(crate) served: JoinHandle<Result<(), EndpointError>>,
    socket: PathBuf,
    _folder: TempDir,
}

pub(crate) fn patience() -> Patience {
    Patience { keep_alive: KEEP_ALIVE, ..Patience::default() }
}

impl Door {
    pub(crate) fn open(base_url: &str, patience: Patience) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("runtime.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let provider =
            Provider { base_url: base_url.parse().unwrap(), api_key: Some(PROVIDER_KEY.to_owned().into()) };
        let client = service::http::client().unwrap();
        let (model, calls) = ModelProxy::new(client, provider, patience).unwrap();
        let (segment, alive) = (Segment::new(), Arc::new(AtomicBool::new(true)));
        let credential = Credential::new(TOKEN.to_owned().into(), Arc::clone(&alive));
        let tools = Tools::new(segment.clone()).with_keep_alive(KEEP_ALIVE);
        let ended = CancellationToken::new();
        let served = tokio::spawn(Endpoint { credential, model, tools }.serve(listener, ended.clone()));
        Self { segment, alive, ended, calls, served, socket, _folder: folder }
    }

    /// A client of this socket that shows the token, as the harness does.
    pub(crate) fn client(&self) -> reqwest::Client {
        self.client_with(HeaderMap::from_iter([(
            http::header::AUTHORIZATION,
            HeaderValue::try_from(format!("Bearer {TOKEN}")).unwrap(),
        )]))
    }

    pub(crate) fn client_with(&self, headers: HeaderMap) -> reqwest::Client {
        service::http::install_tls();
        let client = reqwest::Client::builder().unix_socket(self.socket.as_path());
        client.default_headers(headers).build().unwrap()
    }

    /// What these bytes are answered, until the connection closes.
    pub(crate) async fn raw(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        soon("the end of the answer", stream.read_to_end(&mut answer)).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    pub(crate) async fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).await.unwrap()
    }

    pub(crate) async fn call(&mut self) -> ModelCall {
        soon("a report of a model call", self.calls.recv()).await.unwrap()
    }
}

pub(crate) fn url(path: &str) -> String {
    format!("{}{path}", inside::BASE_URL)
}

/// A provider of which each answer is written by hand.
pub(crate) struct ByHand {
    listener: TcpListener,
}

/// A request that came to it, and the connection to answer on.
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: String,
    stream: TcpStream,
}

impl ByHand {
    pub(crate) async fn start() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.listener.local_addr().unwrap())
    }

    pub(crate) async fn asked(&self) -> Asked {
        soon("a request to the provider", self.read()).await
    }

    async fn read(&self) -> Asked {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let mut read = String::new();
        let head = loop {
            if let Some((head, _)) = read.split_once("\r\n\r\n") {
                break head.to_lowercase();
            }
            more(&mut stream, &mut read).await;
        };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let whole = head.len() + 4 + length.map_or(0, |length| length.parse::<usize>().unwrap());
        while read.len() < whole {
            more(&mut stream, &mut read).await;
        }
        let body = read.split_off(head.len() + 4);
        Asked { head, body, stream }
    }
}

async fn more(stream: &mut TcpStream, read: &mut String) {
    let mut buffer = vec![0; 64 * 1024];
    let count = stream.read(&mut buffer).await.unwrap();
    assert_ne!(count, 0, "the request broke off: {read}");
    read.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
}

impl Asked {
    pub(crate) async fn say(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// The head of a streamed answer, in chunks that `chunk` writes.
    pub(crate) async fn begin_events(&mut self) {
        self.say("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
    }

    pub(crate) async fn chunk(&mut self, text: &str) {
        self.say(&format!("{:x}\r\n{text}\r\n", text.len())).await;
    }

    pub(crate) async fn end_events(&mut self) {
        self.say("0\r\n\r\n").await;
    }

    /// Until whoever asked has closed the connection, whatever comes before.
    pub(crate) async fn gone_after_anything(mut self) {
        let mut buffer = vec![0; 64 * 1024];
        while soon("the end of the connection", self.stream.read(&mut buffer)).await.unwrap_or(0) > 0 {}
    }

    /// Until whoever asked has closed the connection.
    pub(crate) async fn gone(mut self) {
        let mut rest = Vec::new();
        // A reset is an end too.
        let _ = soon("the end of the connection", self.stream.read_to_end(&mut rest)).await;
        assert_eq!(rest, b"", "nothing more was asked on it");
    }
}
