//! Telemetry as a whole: what is written, and what is sent.

use std::io::Write;
use std::sync::Mutex;

use axum::Router;
use axum::routing::post;
use domain::Timestamp;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tracing::{Span, info_span};

use super::*;
use crate::clock::{ManualClock, RealClock};
use crate::config::{Catalogue, Sources, assert_reads_all_keys};
use crate::http::{Limits, serve};
use crate::shutdown::Shutdown;

const BOUND: Duration = Duration::from_secs(20);

/// Where lines go instead of stderr.
#[derive(Clone, Default)]
pub(super) struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    pub(super) fn writer(&self) -> impl Fn() -> Self + use<> {
        let written = self.clone();
        move || written.clone()
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().unwrap();
        std::str::from_utf8(&bytes).unwrap().lines().map(str::to_owned).collect()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn config(level: &str, format: Format) -> TelemetryConfig {
    TelemetryConfig { level: level.into(), format, otlp_endpoint: None }
}

fn speaker() -> Speaker {
    Speaker { role: "steerer".into(), instance: "steerer-0".into() }
}

/// What is written while `act` runs under these settings.
fn lines_of(config: &TelemetryConfig, act: impl FnOnce()) -> Vec<String> {
    let written = Written::default();
    let clock = Arc::new(ManualClock::at(Timestamp::EPOCH));
    let (subscriber, _telemetry) = build(config, speaker(), clock, written.writer()).unwrap();
    tracing::subscriber::with_default(subscriber, act);
    written.lines()
}

fn json_of(config: &TelemetryConfig, act: impl FnOnce()) -> Vec<Value> {
    lines_of(config, act).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_section_reads_what_it_declares() {
    assert_reads_all_keys::<TelemetryConfig>();
    for (level, good) in [
        ("off", true),
        ("info,executor=debug,bus::append=trace", true),
        ("verbose", false),
        ("executor=debug", false),
        ("info,executor", false),
        ("info,executor=loud", false),
        ("info,=debug", false),
    ] {
        let sources = Sources::default().environment([("RESIDENT__TELEMETRY__LEVEL", level)]);
        assert_eq!(Catalogue::default().needs::<TelemetryConfig>().read(&sources).is_ok(), good, "{level}");
    }
}

#[test]
fn a_line_has_its_fields_flat_its_trace_and_its_speaker() {
    let mut traceparent = None;
    let lines = json_of(&config("info", Format::Json), || {
        let outer = info_span!("outer", process = "prc_1", epoch = 3, late = tracing::field::Empty).entered();
        let inner = info_span!("inner", epoch = 4_u64, otel.kind = "server").entered();
        outer.record("late", true);
        traceparent = traceparent_of(&inner);
        tracing::info!(level = "shadowed", count = -1, "parked\n\"it\"");
        drop((inner, outer));
        tracing::info!("outside");
    });
    let traceparent = traceparent.unwrap();
    let parts: Vec<&str> = traceparent.split('-').collect();
    assert_eq!(
        lines[0],
        serde_json::json!({
            "timestamp": "1970-01-01T00:00:00.000Z", "level": "INFO", "target": "service::telemetry::tests",
            "service": "steerer", "instance": "steerer-0", "message": "parked\n\"it\"",
            "process": "prc_1", "epoch": 4, "late": true, "count": -1,
            "trace_id": parts[1], "span_id": parts[2],
        })
    );
    assert_eq!(lines[1].get("trace_id"), None);
}

#[test]
fn a_library_that_tells_each_request_is_quiet_until_it_is_named() {
    let told = |level| {
        lines_of(&config(level, Format::Json), || {
            tracing::info!(target: "rmcp::service", "a request");
            tracing::warn!(target: "rmcp::service", "a bad request");
        })
        .len()
    };
    assert_eq!([told("info"), told("info,rmcp=info"), told("off")], [1, 2, 0]);
}

#[test]
fn text_is_one_line_for_the_eye() {
    let lines = lines_of(&config("info", Format::Text), || {
        tracing::warn!(process = "prc_1", text = "two\nlines", "lost\nits executor");
    });
    assert_eq!(
        lines,
        [r#"1970-01-01T00:00:00.000Z WARN  steerer "lost\nits executor" process=prc_1 text="two\nlines""#]
    );
}

#[test]
fn an_error_is_told_with_its_whole_chain_and_a_long_field_is_cut() {
    #[derive(Debug, thiserror::Error)]
    #[error("storing the step failed")]
    struct Outer(#[source] std::io::Error);
    let lines = json_of(&config("info", Format::Json), || {
        let error = Outer(std::io::Error::other("disk full"));
        tracing::error!(
            error = &error as &(dyn std::error::Error + 'static),
            long = "ä".repeat(5_000),
            "failed"
        );
    });
    assert_eq!(lines[0]["error"], "storing the step failed: disk full");
    assert_eq!(lines[0]["long"].as_str().unwrap().chars().count(), 2_049);
}

#[test]
fn a_quiet_log_keeps_its_traces() {
    let lines = json_of(&config("warn,loud=debug", Format::Json), || {
        let span = info_span!("work", process = "prc_1").entered();
        tracing::info!("not said");
        tracing::debug!(target: "loud::part", "said");
        tracing::warn!("said too");
        assert!(traceparent_of(&span).is_some());
    });
    let messages: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(messages, ["said", "said too"]);
    assert!(lines.iter().all(|line| line["trace_id"].is_string() && line["process"] == "prc_1"));
}

#[test]
fn a_trace_survives_the_way_through_a_message() {
    let lines = json_of(&config("info", Format::Json), || {
        let sender = info_span!("send steer");
        let sent = traceparent_of(&sender).unwrap();

        let receiver = info_span!("process steer");
        assert!(continue_from(&receiver, &sent));
        let next = traceparent_of(&receiver).unwrap();
        assert_eq!(next[..35], sent[..35], "another trace");
        assert_ne!(next[36..52], sent[36..52], "the same span");
        sender.in_scope(|| tracing::info!("sent"));
        receiver.in_scope(|| tracing::info!("received"));

        assert!(!continue_from(&receiver, &sent), "taken after the span had begun");
        let stranger = info_span!("stranger");
        assert!(!continue_from(&stranger, "not a trace"));
        let linked = info_span!("linked");
        link_to(&linked, &sent);
        assert_ne!(traceparent_of(&linked).unwrap()[..35], sent[..35], "a link became a parent");
    });
    assert_eq!(lines[0]["trace_id"], lines[1]["trace_id"]);
    assert_ne!(lines[0]["span_id"], lines[1]["span_id"]);
    assert_eq!(traceparent_of(&Span::none()), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_reach_the_collector_by_the_end_at_the_latest() {
    let (sender, mut received) = mpsc::channel(8);
    let collect = async move |body: axum::body::Bytes| sender.send(body).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/", listener.local_addr().unwrap());
    let clock: Arc<dyn Clock> = Arc::new(RealClock::start());
    let shutdown = Shutdown::new(BOUND, Arc::clone(&clock));
    let router = Router::new().route("/v1/traces", post(collect));
    let server = tokio::spawn(serve(listener, router, Limits::default(), shutdown.clone()));

    let config =
        TelemetryConfig { otlp_endpoint: Some(endpoint.parse().unwrap()), ..config("info", Format::Json) };
    let (subscriber, telemetry) = build(&config, speaker(), clock, Written::default().writer()).unwrap();
    tracing::subscriber::with_default(subscriber, || info_span!("work", process = "prc_1").in_scope(|| ()));
    tokio::time::timeout(BOUND, telemetry.flush()).await.unwrap();

    let body = tokio::time::timeout(BOUND, received.recv()).await.unwrap().unwrap();
    for text in ["work", "prc_1", "steerer-0", "resident"] {
        assert!(
            body.windows(text.len()).any(|window| window == text.as_bytes()),
            "{text} is not among what came"
        );
    }
    shutdown.end();
    server.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_holds_nothing_up() {
    // Bound and dropped: nobody listens there.
    let away = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let endpoint = format!("http://{away}").parse().unwrap();
    let config = TelemetryConfig { otlp_endpoint: Some(endpoint), ..config("info", Format::Json) };
    let clock = Arc::new(ManualClock::at(Timestamp::EPOCH));
    let (subscriber, telemetry) = build(&config, speaker(), clock, Written::default().writer()).unwrap();
    let dispatch = tracing::Dispatch::new(subscriber);
    let spans = tokio::task::spawn_blocking(move || {
        tracing::dispatcher::with_default(&dispatch, || {
            for _ in 0..100_000 {
                info_span!("work").in_scope(|| ());
            }
        });
    });
    tokio::time::timeout(BOUND, spans).await.unwrap().unwrap();
    tokio::time::timeout(FLUSH_LIMIT * 2, telemetry.flush()).await.unwrap();
}
