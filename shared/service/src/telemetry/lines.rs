//! The log: each event as one line with the fields of the spans it happens in, its trace, and who speaks.

use std::error::Error;
use std::fmt;
use std::io::Write;
use std::sync::{Arc, OnceLock};

use opentelemetry::trace::{SpanContext, TraceContextExt};
use serde_json::{Map, Value};
use tracing::dispatcher::WeakDispatch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::Speaker;
use crate::clock::Clock;

/// A field longer than this is cut: a line is for people and search, not a store.
const FIELD_BYTES_MAX: usize = 4096;

#[derive(Debug, Clone, Copy)]
pub(super) enum Style {
    Json,
    Text,
}

/// The layer that writes them.
pub(super) struct Lines<W> {
    style: Style,
    speaker: Speaker,
    clock: Arc<dyn Clock>,
    writer: W,
    /// Where this layer stands, to ask the layer beside it for a span's trace: the current one is out of reach while
    /// an event is handled.
    dispatch: OnceLock<WeakDispatch>,
}

/// The fields of a span or an event.
#[derive(Debug, Clone, Default)]
struct Fields(Map<String, Value>);

// === impl Lines ===

impl<W> Lines<W> {
    pub(super) fn new(style: Style, speaker: Speaker, clock: Arc<dyn Clock>, writer: W) -> Self {
        Self { style, speaker, clock, writer, dispatch: OnceLock::new() }
    }

    fn trace(&self, span: &Id) -> Option<SpanContext> {
        let dispatch = self.dispatch.get()?.upgrade()?;
        let context = tracing_opentelemetry::get_otel_context(span, &dispatch)?;
        Some(context.span().span_context().clone()).filter(SpanContext::is_valid)
    }

    /// What the line itself says stands over a field of the same name.
    fn json(&self, event: &Event<'_>, Fields(mut fields): Fields, trace: Option<&SpanContext>) -> String {
        let mut say = |name: &str, value: String| fields.insert(name.into(), value.into());
        say("timestamp", self.clock.now().to_string());
        say("level", event.metadata().level().to_string());
        say("target", event.metadata().target().into());
        say("service", self.speaker.role.clone());
        say("instance", self.speaker.instance.clone());
        if let Some(trace) = trace {
            say("trace_id", trace.trace_id().to_string());
            say("span_id", trace.span_id().to_string());
        }
        Value::Object(fields).to_string()
    }

    fn text(&self, event: &Event<'_>, Fields(mut fields): Fields, trace: Option<&SpanContext>) -> String {
        let message = fields.remove(MESSAGE).map(|message| plain(&message)).unwrap_or_default();
        let level = event.metadata().level().to_string();
        let mut line = format!("{} {level:5} {} {message}", self.clock.now(), self.speaker.role);
        for (name, value) in &fields {
            line.extend([" ", name, "=", &plain(value)]);
        }
        if let Some(trace) = trace {
            line.extend([
                " trace_id=",
                &trace.trace_id().to_string(),
                " span_id=",
                &trace.span_id().to_string(),
            ]);
        }
        line
    }
}

impl<S, W> Layer<S> for Lines<W>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        // Set once; a second subscriber with the same layer cannot be.
        let _ = self.dispatch.set(dispatch.downgrade());
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        if let Some(span) = ctx.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        if let Some(span) = ctx.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let mut fields = Fields::default();
        let mut trace = None;
        if let Some(span) = ctx.event_span(event) {
            trace = self.trace(&span.id());
            for span in span.scope().from_root() {
                if let Some(Fields(of_span)) = span.extensions().get() {
                    fields.0.extend(of_span.clone());
                }
            }
        }
        event.record(&mut fields);
        let mut line = match self.style {
            Style::Json => self.json(event, fields, trace.as_ref()),
            Style::Text => self.text(event, fields, trace.as_ref()),
        };
        line.push('\n');
        // Without a place to write there is no place to tell it either.
        let _ = self.writer.make_writer_for(event.metadata()).write_all(line.as_bytes());
    }
}

/// What `tracing` calls the text of an event.
const MESSAGE: &str = "message";

/// A value for the eye: quoted only where it would run into its neighbours, and never more than one line.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if !text.chars().any(char::is_control) => text.clone(),
        other => other.to_string(),
    }
}

// === impl Fields ===

impl Fields {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        // Fields that begin so are orders to the layer of traces.
        if !field.name().starts_with("otel.") {
            self.0.insert(field.name().into(), value.into());
        }
    }

    fn text(&mut self, field: &Field, mut text: String) {
        if text.len() > FIELD_BYTES_MAX {
            text.truncate(text.floor_char_boundary(FIELD_BYTES_MAX));
            text.push('…');
        }
        self.set(field, text);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    /// The whole chain, as a text does not repeat its source.
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(error) = source {
            text.extend([": ", &error.to_string()]);
            source = error.source();
        }
        self.text(field, text);
    }
}
