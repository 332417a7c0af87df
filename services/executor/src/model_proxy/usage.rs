//! The tokens of an answer, read from its bytes as they pass by. Pure; an answer that says nothing, or says it in a
//! way unknown here, has no usage, and is passed on all the same.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::Deserialize;

use super::sse::SseReader;

/// Several times the longest output that a model writes.
const BODY_BYTES_MAX: usize = 4 << 20;

/// Tokens by the price they have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
}

/// Reads one answer.
#[derive(Debug)]
pub(super) enum Meter {
    Events {
        reader: SseReader,
        counts: Option<Counts>,
    },
    Body(Vec<u8>),
    /// Nothing can be read, and nothing put in: another type, an encoding, or too long.
    Opaque,
}

/// What one place of an answer says. Later ones count from the beginning too, so they take the place of earlier ones.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

/// A whole message: the body of an unstreamed answer, or what a streamed one begins with.
#[derive(Deserialize)]
struct Message {
    usage: Option<Counts>,
}

/// The first event holds a message, the last but one the final counts; no other has either.
#[derive(Deserialize)]
struct Event {
    message: Option<Message>,
    usage: Option<Counts>,
}

// === impl Meter ===

impl Meter {
    /// For an answer with these headers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let encoded = headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity");
        let content_type =
            headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        match essence.to_ascii_lowercase().as_str() {
            _ if encoded => Self::Opaque,
            "text/event-stream" => Self::Events { reader: SseReader::new(), counts: None },
            "application/json" => Self::Body(Vec::new()),
            _ => Self::Opaque,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Events { reader, counts } => reader.push(bytes, |data| {
                let Ok(event) = serde_json::from_slice::<Event>(data) else { return };
                let said = event.message.and_then(|message| message.usage).or(event.usage);
                if let Some(said) = said {
                    *counts = Some(said.over(counts.unwrap_or_default()));
                }
            }),
            Self::Body(body) if body.len() + bytes.len() <= BODY_BYTES_MAX => body.extend(bytes),
            Self::Body(_) => *self = Self::Opaque,
            Self::Opaque => {}
        }
    }

    /// What was said until now. An answer that was cut off has said less than it cost.
    pub(super) fn usage(&self) -> Option<Usage> {
        let counts = match self {
            Self::Events { counts, .. } => *counts,
            Self::Body(body) => {
                serde_json::from_slice::<Message>(body).ok().and_then(|message| message.usage)
            }
            Self::Opaque => None,
        };
        counts.map(Counts::into_usage)
    }

    /// Whether a comment may be put in now.
    pub(super) fn between_events(&self) -> bool {
        matches!(self, Self::Events { reader, .. } if reader.between_events())
    }
}

// === impl Counts ===

impl Counts {
    fn over(self, earlier: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.or(earlier.input_tokens),
            output_tokens: self.output_tokens.or(earlier.output_tokens),
            cache_read_input_tokens: self.cache_read_input_tokens.or(earlier.cache_read_input_tokens),
            cache_creation_input_tokens: self
                .cache_creation_input_tokens
                .or(earlier.cache_creation_input_tokens),
        }
    }

    fn into_usage(self) -> Usage {
        Usage {
            input: self.input_tokens.unwrap_or_default(),
            output: self.output_tokens.unwrap_or_default(),
            cache_read: self.cache_read_input_tokens.unwrap_or_default(),
            cache_write: self.cache_creation_input_tokens.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const STREAM: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":10,"cache_read_input_tokens":300,"cache_creation_input_tokens":20,"output_tokens":1}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\"usage\":{\"output_tokens\":9999}"}}

: keep-alive

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":57,"cache_read_input_tokens":null}}

event: message_stop
data: {"type":"message_stop"}

"#;
    const STREAM_USAGE: Usage = Usage { input: 10, output: 57, cache_read: 300, cache_write: 20 };

    fn meter(content_type: &'static str) -> Meter {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Meter::of(&headers)
    }

    #[test]
    fn a_stream_is_counted_wherever_it_is_cut() {
        for at in 0..=STREAM.len() {
            let mut meter = meter("text/event-stream; charset=utf-8");
            let (head, tail) = STREAM.as_bytes().split_at(at);
            meter.push(head);
            meter.push(tail);
            assert_eq!(meter.usage(), Some(STREAM_USAGE), "cut at {at}");
        }
    }

    #[test]
    fn a_stream_that_broke_off_has_said_what_it_said() {
        let mut meter = meter("text/event-stream");
        assert_eq!(meter.usage(), None);
        let (head, _) = STREAM.split_at(STREAM.find("event: message_delta").unwrap());
        meter.push(head.as_bytes());
        assert_eq!(meter.usage(), Some(Usage { output: 1, ..STREAM_USAGE }));
    }

    #[test]
    fn a_whole_answer_is_counted_and_an_error_is_not() {
        let mut message = meter("application/json");
        for piece in [r#"{"id":"msg_1","content":[],"usage":{"input_tok"#, r#"ens":7,"output_tokens":3}}"#] {
            message.push(piece.as_bytes());
        }
        assert_eq!(message.usage(), Some(Usage { input: 7, output: 3, ..Usage::default() }));
        assert!(!message.between_events());

        let mut error = meter("application/json");
        error.push(br#"{"type":"error","error":{"type":"overloaded_error","message":"later"}}"#);
        assert_eq!(error.usage(), None);
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        let mut long = meter("application/json");
        for _ in 0..5 {
            long.push(&vec![b' '; 1 << 20]);
        }
        for mut opaque in [Meter::of(&headers), Meter::of(&HeaderMap::new()), meter("text/plain"), long] {
            assert!(matches!(opaque, Meter::Opaque), "{opaque:?}");
            opaque.push(STREAM.as_bytes());
            assert_eq!((opaque.usage(), opaque.between_events()), (None, false));
        }
    }
}
