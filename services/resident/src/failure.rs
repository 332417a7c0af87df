//! What ends the program early, as a sentence that says what to do. Wrong settings exit with 64, the rest with 1.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use service::config::Mistakes;

const EXIT_SETTINGS: u8 = 64;
const EXIT_FAILED: u8 = 1;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the program's threads cannot be started; look at the limit of processes (ulimit -u)")]
    Runtime(#[source] std::io::Error),
    #[error("{0}")]
    Settings(Mistakes),
    #[error(transparent)]
    Misread(#[from] service::config::Misread),
    #[error("{0} names no role; the roles are {roles}", roles = crate::cli::ROLES)]
    UnknownRole(String),
    #[error("the data directory {path} cannot be used; make it writable or choose another with --data-dir")]
    DataDir { path: PathBuf, source: std::io::Error },
    #[error(
        "another resident runs on the data directory {path}{}; stop it, or choose another directory with --data-dir",
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    DataDirInUse { path: PathBuf, pid: Option<u32> },
    #[error(
        "cannot listen on {address} (from {origin}); stop what listens there, or choose another with --listen, \
         for example --listen 127.0.0.1:0 for a free port"
    )]
    Listen { address: std::net::SocketAddr, origin: String, source: std::io::Error },
    #[error(
        "{name} was not found ({found} was looked for in PATH and in .tools/bin); run `make tools`, or set {key}"
    )]
    Program { name: &'static str, found: PathBuf, key: &'static str },
    #[error(
        "the executor needs a provider: set providers.anthropic.api_key (or ANTHROPIC_API_KEY), or point \
         providers.anthropic.base_url to a gateway; `resident dev` brings a demo model instead"
    )]
    NoProvider,
    #[error(transparent)]
    Broker(#[from] bus::broker::BrokerError),
    #[error(transparent)]
    Connect(#[from] bus::ConnectError),
    #[error(transparent)]
    Provision(#[from] bus::provision::ProvisionError),
    #[error("nats-server ended ({status}); its log is {log}")]
    BrokerEnded { status: String, log: PathBuf },
    #[error(transparent)]
    Telemetry(#[from] service::telemetry::TelemetryError),
    #[error(transparent)]
    Signals(#[from] service::shutdown::SignalError),
    #[error(transparent)]
    Executor(#[from] executor::StartError),
    #[error("no random numbers; the operating system gives none")]
    NoRandomness(#[from] service::fresh::NoRandomness),
    #[error("no free port on the loopback address for the demo model")]
    Loopback(#[source] std::io::Error),
    #[error(transparent)]
    DemoModel(#[from] scripted_model::StartError),
    #[error("the key was not stored; is the broker running?")]
    Key(#[source] bus::BusError),

    #[error("the dead letters cannot be reached; is the broker running?")]
    DeadLetters(#[source] bus::BusError),
    #[error("the order to the executor was not stored; is the broker there?")]
    Drain(#[source] bus::BusError),
    #[error("the order stands, but how far it is could not be read; `resident drain` can be given again")]
    DrainRead(#[source] bus::kv::KvError),

    #[error("there is no dead letter {0}; `resident dlq ls` lists them")]
    NoDeadLetter(u64),

    #[error("whose hook is it? Name the organization with --org")]
    NoOrg,

    #[error("{0} is no hook of this installation; leave --hook out to make one")]
    NoHook(domain::ids::HookId),

    #[error("no question is open in this conversation; say something with: resident send")]
    NoQuestion,

    #[error("{given} answers are given, and the card asks: {asked}; give one answer each, in this order")]
    AnswersMissing { given: usize, asked: String },
    #[error("the default agent was not stored; is the broker running?")]
    Agent(#[source] bus::BusError),
    #[error("the program was asked to stop before it was ready")]
    StoppedEarly,
    #[error(
        "no resident is known here: start `resident dev`, or set RESIDENT__CLIENT__URL and RESIDENT__CLIENT__API_KEY"
    )]
    NoServer,
    #[error(transparent)]
    Http(#[from] service::http::ClientError),
    #[error("{url} cannot be reached; is `resident dev` running?")]
    Unreachable { url: String, source: reqwest::Error },
    #[error("{title}: {detail}")]
    Problem { title: String, detail: String },
    #[error(
        "the server answered something that this program does not understand: {0}; is it of the same version?"
    )]
    Strange(String),
    #[error("{0} is no conversation that the key may see; `resident ps` lists them")]
    NoConversation(String),
    #[error("it has not ended after {limit:?}; it goes on, and `resident attach` shows how")]
    StillRuns { limit: std::time::Duration },
    #[error("no agent is there; make one with POST /v1/agents")]
    NoAgent,
    #[error("writing to standard output failed")]
    Output(#[source] std::io::Error),
}

impl Failure {
    /// Whether the way to the server failed, and not what was asked of it.
    pub(crate) const fn is_of_the_way(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Strange(_))
    }
}

/// Says why the program ends, once.
pub(crate) fn report(failure: &Failure) -> ExitCode {
    let mut text = failure.to_string();
    let mut source = failure.source();
    while let Some(cause) = source {
        let told = cause.to_string();
        if !text.contains(&told) {
            text = format!("{text}: {told}");
        }
        source = cause.source();
    }
    say(&format!("resident: {text}"));
    match failure {
        Failure::Settings(_) | Failure::UnknownRole(_) => ExitCode::from(EXIT_SETTINGS),
        _ => ExitCode::from(EXIT_FAILED),
    }
}

#[expect(clippy::print_stderr, reason = "the talk of a command goes to stderr")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}
