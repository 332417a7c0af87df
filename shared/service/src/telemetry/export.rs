//! Sending traces to a collector. A collector that is slow, away or wrong costs its traces and nothing else: the queue
//! is bounded and drops, each attempt has an end, and the log says so once in a while.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::context::FutureExt;
use opentelemetry_otlp::{ExporterBuildError, Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter};
use tokio::runtime::{Handle, TryCurrentError};

use crate::clock::Clock;
use crate::config::Url;
use crate::http;

/// Some seconds of a busy program's spans, at about 1 kB each; what does not fit is dropped.
const QUEUE_SPANS: usize = 4096;
/// A request of about half a megabyte, which every collector takes.
const BATCH_SPANS: usize = 512;
/// Soon enough to be seen by whoever looks, seldom enough to fill a request.
const BATCH_DELAY: Duration = Duration::from_secs(2);
/// With its retries; meanwhile the queue fills.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(10);
/// One line a minute tells an operator enough about a collector that is away.
const NOTICE_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    #[error("the exporter needs a tokio runtime; set telemetry up within one")]
    NoRuntime(#[source] TryCurrentError),
    #[error("building the collector's client failed; see why below")]
    Client(#[source] http::ClientError),
    #[error(
        "building the exporter for {endpoint} failed; give the collector's base URL, such as http://127.0.0.1:4318"
    )]
    Build { endpoint: Url, source: ExporterBuildError },
}

/// Runs an exporter on the runtime, as the processor's own thread has none for it, and keeps its failures quiet.
#[derive(Debug)]
struct OnRuntime<E> {
    exporter: Arc<E>,
    runtime: Handle,
    notices: Notices,
}

/// Failures since the last line about them.
#[derive(Debug)]
struct Notices {
    endpoint: String,
    clock: Arc<dyn Clock>,
    state: Mutex<NoticeState>,
}

#[derive(Debug, Default)]
struct NoticeState {
    last_at: Option<Duration>,
    spans_lost: usize,
}

/// The queue and the thread that empties it. Within a tokio runtime.
pub(super) fn processor(endpoint: &Url, clock: Arc<dyn Clock>) -> Result<BatchSpanProcessor, ExporterError> {
    let runtime = Handle::try_current().map_err(ExporterError::NoRuntime)?;
    let traces = format!("{}/v1/traces", endpoint.as_str().trim_end_matches('/'));
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(http::client().map_err(ExporterError::Client)?)
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(ATTEMPT_LIMIT)
        .with_endpoint(traces)
        .build()
        .map_err(|source| ExporterError::Build { endpoint: endpoint.clone(), source })?;
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE_SPANS)
        .with_max_export_batch_size(BATCH_SPANS)
        .with_scheduled_delay(BATCH_DELAY)
        .build();
    let notices = Notices { endpoint: shown(endpoint), clock, state: Mutex::default() };
    let exporter = OnRuntime { exporter: Arc::new(exporter), runtime, notices };
    Ok(BatchSpanProcessor::new(exporter, batches))
}

/// Without what may be a credential.
fn shown(endpoint: &Url) -> String {
    endpoint.origin().ascii_serialization()
}

// === impl OnRuntime ===

impl<E: SpanExporter + 'static> SpanExporter for OnRuntime<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let exporter = Arc::clone(&self.exporter);
        // What the delivery does is not itself traced.
        let quiet = Context::current().with_telemetry_suppressed();
        let attempt = async move {
            let delivered = tokio::time::timeout(ATTEMPT_LIMIT, exporter.export(batch)).await;
            delivered.unwrap_or(Err(OTelSdkError::Timeout(ATTEMPT_LIMIT)))
        };
        let ended = self.runtime.spawn(attempt.with_context(quiet)).await;
        let outcome = ended.unwrap_or_else(|error| Err(OTelSdkError::InternalFailure(error.to_string())));
        if let Err(error) = &outcome {
            self.notices.failed(spans, error);
        }
        outcome
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        // It is set before the first export, when nothing else holds the exporter.
        if let Some(exporter) = Arc::get_mut(&mut self.exporter) {
            exporter.set_resource(resource);
        }
    }
}

// === impl Notices ===

impl Notices {
    fn failed(&self, spans: usize, error: &OTelSdkError) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.spans_lost += spans;
        if state.last_at.is_some_and(|last_at| now < last_at + NOTICE_INTERVAL) {
            return;
        }
        let spans_lost = std::mem::take(&mut state.spans_lost);
        state.last_at = Some(now);
        drop(state);
        tracing::warn!(
            endpoint = self.endpoint,
            spans_lost,
            %error,
            "traces could not be delivered and are lost; look at the collector"
        );
    }
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::clock::ManualClock;
    use crate::telemetry::Speaker;
    use crate::telemetry::lines::{Lines, Style};
    use crate::telemetry::tests::Written;

    #[test]
    fn failures_are_told_once_in_a_while_with_what_was_lost_since() {
        let clock = Arc::new(ManualClock::at(Timestamp::EPOCH));
        let notices =
            Notices { endpoint: "http://a".into(), clock: Arc::clone(&clock) as _, state: Mutex::default() };
        let written = Written::default();
        let speaker = Speaker { role: "test".into(), instance: "1".into() };
        let lines = Lines::new(Style::Json, speaker, Arc::clone(&clock) as _, written.writer());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            let error = OTelSdkError::InternalFailure("refused".into());
            for _ in 0..100 {
                notices.failed(2, &error);
            }
            clock.advance(NOTICE_INTERVAL);
            notices.failed(2, &error);
        });
        let lost: Vec<u64> = written
            .lines()
            .iter()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["spans_lost"].as_u64().unwrap()
            })
            .collect();
        assert_eq!(lost, [2, 200]);
    }
}
