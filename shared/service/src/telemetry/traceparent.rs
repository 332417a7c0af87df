//! W3C trace context in text, as HTTP and messages carry it.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// What to send along with work that a span causes. `None` where telemetry was not set up or the span is disabled.
pub fn traceparent_of(span: &Span) -> Option<String> {
    let context = span.context();
    let span = context.span();
    let context = span.span_context();
    context.is_valid().then(|| {
        format!(
            "00-{}-{}-{:02x}",
            context.trace_id(),
            context.span_id(),
            context.trace_flags() & TraceFlags::SAMPLED
        )
    })
}

/// Makes a new span the child of what came along. Called before anything happens within the span; then, or with a
/// text that is none, or without telemetry, the span keeps the trace it has, and the answer is false.
pub fn continue_from(span: &Span, traceparent: &str) -> bool {
    parse(traceparent)
        .is_some_and(|parent| span.set_parent(Context::new().with_remote_span_context(parent)).is_ok())
}

/// Names another trace as a cause without becoming part of it: across a park, a parent would be weeks away.
pub fn link_to(span: &Span, traceparent: &str) {
    if let Some(cause) = parse(traceparent) {
        span.add_link(cause);
    }
}

/// Of a version newer than ours, what follows the flags is left out.
fn parse(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.split('-');
    let mut hex = |digits: usize| {
        parts.next().filter(|part| {
            part.len() == digits
                && part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        })
    };
    let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    if version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let context = SpanContext::new(trace, span, flags, true, TraceState::NONE);
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_standard_allows_is_taken() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(parse(good).unwrap().is_sampled());
        assert!(!parse(&good.replace("-01", "-02")).unwrap().is_sampled());
        assert!(parse(&format!("cc{}-later", &good[2..])).is_some());
        for bad in [
            "",
            "00",
            &good[..good.len() - 1],
            &good.replace("-01", "-01-later"),
            &good.replace("00-", "ff-"),
            &good.replace("0af", "0AF"),
            &good.replace("0af", "+af"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
