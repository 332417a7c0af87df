//! What a program tells about itself: one line per event on stderr, and traces that cross every hop. Without an
//! exporter configured, traces still have ids, so that lines of several programs can be put together.
//!
//! Nothing here writes a header or a body. What is secret never becomes a field: its type does not show itself.

mod export;
mod lines;
pub mod names;
mod traceparent;

use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Subscriber};
use tracing_subscriber::filter::{FilterFn, Targets, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;

use crate::clock::Clock;
use crate::config::{Key, Kind, Misread, Section, Url, Values};

pub use export::ExporterError;
pub use traceparent::{continue_from, link_to, traceparent_of};

use lines::{Lines, Style};

/// How long a program waits at its end for the last spans to be delivered: a collector that is there takes them in one
/// request, and one that is away is not worth the time of a roll.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);

/// Libraries that tell each request or connection at `info`. They speak from `warn` on, unless the setting names them.
const QUIET: [&str; 2] = ["async_nats", "rmcp"];

#[derive(Debug, Clone)]
pub struct TelemetryConfig {
    pub level: String,
    pub format: Format,
    pub otlp_endpoint: Option<Url>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text where stderr is a terminal, else JSON.
    Auto,
    Json,
    Text,
}

/// Who speaks.
#[derive(Debug, Clone)]
pub struct Speaker {
    /// What the program does: `steerer`, or `dev`.
    pub role: String,
    /// Which of those that do it.
    pub instance: String,
}

/// Held by `main` to the end. Dropped, it still flushes, but then it blocks its thread.
#[derive(Debug)]
#[must_use = "traces are delivered only while this is held, and the last ones by `flush`"]
pub struct Telemetry {
    provider: SdkTracerProvider,
}

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("the exporter of traces could not be set up; mend or remove telemetry.otlp_endpoint")]
    Exporter(#[source] ExporterError),
    #[error("telemetry was set up a second time in one process; call `init` once, in main")]
    Twice(#[source] tracing::subscriber::SetGlobalDefaultError),
}

/// Sets up lines and traces for the whole process. Within a tokio runtime, which then carries the exporter.
pub fn init(
    config: &TelemetryConfig,
    speaker: Speaker,
    clock: Arc<dyn Clock>,
) -> Result<Telemetry, TelemetryError> {
    let (subscriber, telemetry) = build(config, speaker, clock, stderr).map_err(TelemetryError::Exporter)?;
    tracing::subscriber::set_global_default(subscriber).map_err(TelemetryError::Twice)?;
    Ok(telemetry)
}

fn build<W>(
    config: &TelemetryConfig,
    speaker: Speaker,
    clock: Arc<dyn Clock>,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync, Telemetry), ExporterError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let resource = Resource::builder()
        .with_service_name(speaker.role.clone())
        .with_attribute(KeyValue::new(names::SERVICE_NAMESPACE, "resident"))
        .with_attribute(KeyValue::new(names::SERVICE_INSTANCE_ID, speaker.instance.clone()))
        .build();
    let mut provider = SdkTracerProvider::builder().with_resource(resource);
    if let Some(endpoint) = &config.otlp_endpoint {
        provider = provider.with_span_processor(export::processor(endpoint, Arc::clone(&clock))?);
    }
    let provider = provider.build();
    let style = match config.format {
        Format::Json => Style::Json,
        Format::Text => Style::Text,
        Format::Auto if stderr().is_terminal() => Style::Text,
        Format::Auto => Style::Json,
    };
    let traces = tracing_opentelemetry::layer().with_tracer(provider.tracer("resident")).with_threads(false);
    let subscriber = Registry::default()
        .with(filter(&config.level))
        .with(traces)
        .with(Lines::new(style, speaker, clock, writer));
    Ok((subscriber, Telemetry { provider }))
}

/// Events by the setting. Spans down to INFO whatever it says, so that a quiet log does not break traces.
fn filter(level: &str) -> FilterFn<impl Fn(&tracing::Metadata<'_>) -> bool + use<>> {
    let targets = directives(level).unwrap_or_else(|| Targets::new().with_default(Level::INFO));
    let most_verbose = targets.iter().map(|(_, level)| level).chain(targets.default_level()).max();
    let hint = most_verbose.unwrap_or(LevelFilter::OFF).max(LevelFilter::INFO);
    filter_fn(move |metadata| {
        (metadata.is_span() && *metadata.level() <= Level::INFO)
            || targets.would_enable(metadata.target(), metadata.level())
    })
    .with_max_level_hint(hint)
}

/// `info` or `info,executor=debug`: a level for all, then more for some.
fn directives(text: &str) -> Option<Targets> {
    let mut parts = text.split(',');
    let all = level(parts.next()?)?;
    let quiet = QUIET.map(|target| (target, all.min(LevelFilter::WARN)));
    let targets = Targets::new().with_default(all).with_targets(quiet);
    parts.try_fold(targets, |targets, part| {
        let (target, wanted) = part.split_once('=')?;
        let named =
            !target.is_empty() && target.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
        named.then_some(targets.with_target(target, level(wanted)?))
    })
}

fn level(word: &str) -> Option<LevelFilter> {
    match word {
        "off" => Some(LevelFilter::OFF),
        "error" => Some(LevelFilter::ERROR),
        "warn" => Some(LevelFilter::WARN),
        "info" => Some(LevelFilter::INFO),
        "debug" => Some(LevelFilter::DEBUG),
        "trace" => Some(LevelFilter::TRACE),
        _ => None,
    }
}

// === impl TelemetryConfig ===

impl Section for TelemetryConfig {
    const NAME: &'static str = "telemetry";
    const KEYS: &'static [Key] = &[
        Key::new(
            "level",
            Kind::Checked {
                allowed: "off, error, warn, info, debug or trace, and after it, for single modules, such as \
                          info,executor=debug",
                example: "info,executor=debug",
                check: |text| directives(text).is_some(),
            },
            "Which events become a line",
        )
        .default("info"),
        Key::new(
            "format",
            Kind::OneOf(&["auto", "json", "text"]),
            "How a line looks; auto is text where stderr is a terminal, else json",
        )
        .default("auto"),
        Key::new(
            "otlp_endpoint",
            Kind::url(&["http", "https"]),
            "The base URL of an OTLP/HTTP collector that traces are sent to; without it they are sent nowhere",
        )
        .optional(),
    ];

    fn read(values: &Values<'_>) -> Result<Self, Misread> {
        let formats = [("auto", Format::Auto), ("json", Format::Json), ("text", Format::Text)];
        Ok(Self {
            level: values.get("level")?,
            format: values.choose("format", &formats)?,
            otlp_endpoint: values.get("otlp_endpoint")?,
        })
    }
}

// === impl Telemetry ===

impl Telemetry {
    /// Delivers what is not yet delivered, as far as that is possible in a short while. The last thing a program does.
    pub async fn flush(self) {
        let provider = self.provider;
        // A failure has been told by the exporter already, and there is nothing left to do about it.
        let _ = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_LIMIT)).await;
    }
}

#[cfg(test)]
mod tests;
