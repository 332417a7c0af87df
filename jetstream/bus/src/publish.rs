//! Storing and reading single messages: [`Port`] on the real broker.

use async_nats::HeaderMap;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_ID, NATS_MESSAGE_TTL};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{DeleteStatus, DirectGetErrorKind, RawMessageErrorKind};
use async_nats::jetstream::{self, ErrorCode};
use async_trait::async_trait;
use bytes::Bytes;
use contract::Envelope;
use contract::envelope::{FORMAT, header};
use domain::Timestamp;
use serde_json::json;

use crate::connect::Nats;
use crate::port::{BusError, Outgoing, Port, Published, Stored};
use crate::wire::Delivered;

const EXPECTED_FILTER: &str = "Nats-Expected-Last-Subject-Sequence-Subject";
pub(crate) const KV_OPERATION: &str = "KV-Operation";
const MARKER_REASON: &str = "Nats-Marker-Reason";

#[async_trait]
impl Port for Nats {
    async fn publish(&self, message: Outgoing) -> Result<Published, BusError> {
        let headers = headers(&message);
        let ack = self
            .jetstream
            .publish_with_headers(message.subject, headers, Bytes::from(message.body))
            .await
            .map_err(|error| publish_error(&error))?
            .await
            .map_err(|error| publish_error(&error))?;
        Ok(Published { sequence: ack.sequence, duplicate: ack.duplicate })
    }

    async fn last(&self, stream: &str, filter: &str) -> Result<Option<Stored>, BusError> {
        self.get(stream, |get| get.last_by_subject(filter)).await
    }

    async fn next(&self, stream: &str, filter: &str, from: u64) -> Result<Option<Stored>, BusError> {
        self.get(stream, |get| get.sequence(from).next_by_subject(filter)).await
    }

    async fn at(&self, stream: &str, sequence: u64) -> Result<Option<Stored>, BusError> {
        self.get(stream, |get| get.sequence(sequence)).await
    }

    async fn purge(&self, stream: &str, filter: &str, keep: u64) -> Result<(), BusError> {
        let stream = self.bind(stream).await?;
        let purge = stream.purge().filter(filter);
        let done = if keep == 0 { purge.await } else { purge.keep(keep).await };
        done.map(|_| ()).map_err(|error| BusError::Unavailable(error.to_string()))
    }

    async fn delete(&self, stream: &str, sequence: u64) -> Result<(), BusError> {
        // The client's own call has the broker overwrite what it forgets, which rewrites a whole file for each message.
        let what = json!({ "seq": sequence, "no_erase": true });
        let answer = self.jetstream.request(format!("STREAM.MSG.DELETE.{stream}"), &what).await;
        match answer.map_err(|error| BusError::Unavailable(error.to_string()))? {
            Response::Ok(DeleteStatus { .. }) => Ok(()),
            Response::Err { error } => Err(BusError::Rejected(error.to_string())),
        }
    }
}

type Get = jetstream::stream::RawMessageBuilder<jetstream::stream::WithHeaders>;

impl Nats {
    /// A handle on a stream that is known to be there: the provisioner made it.
    pub(crate) async fn bind(&self, stream: &str) -> Result<jetstream::stream::Stream<()>, BusError> {
        self.jetstream
            .get_stream_no_info(stream)
            .await
            .map_err(|error| BusError::Unavailable(error.to_string()))
    }

    /// The last message of a subject, from any server that has the stream.
    pub(crate) async fn direct_last(&self, stream: &str, subject: &str) -> Result<Option<Stored>, BusError> {
        let stream = self.bind(stream).await?;
        match stream.direct_get_last_for_subject(subject).await {
            Ok(message) => Ok(Some(stored(&message))),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(BusError::Unavailable(error.to_string())),
        }
    }

    /// As [`Port::next`], with the headers that are not the envelope's.
    pub(crate) async fn next_with_headers(
        &self,
        stream: &str,
        filter: &str,
        from: u64,
    ) -> Result<Option<(Stored, HeaderMap)>, BusError> {
        let message = self.get_message(stream, |get| get.sequence(from).next_by_subject(filter)).await?;
        Ok(message.map(|message| (stored(&message), message.headers)))
    }

    async fn get(&self, stream: &str, which: impl FnOnce(Get) -> Get) -> Result<Option<Stored>, BusError> {
        Ok(self.get_message(stream, which).await?.as_ref().map(stored))
    }

    async fn get_message(
        &self,
        stream: &str,
        which: impl FnOnce(Get) -> Get,
    ) -> Result<Option<StreamMessage>, BusError> {
        let stream = self.bind(stream).await?;
        match which(stream.raw_message_builder()).send().await {
            Ok(message) => Ok(Some(message)),
            Err(error) => match error.kind() {
                RawMessageErrorKind::NoMessageFound => Ok(None),
                _ => Err(BusError::Unavailable(error.to_string())),
            },
        }
    }
}

fn headers(message: &Outgoing) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(kind) = &message.kind {
        headers.insert(header::KIND, kind.as_str());
        headers.insert(header::FORMAT, FORMAT.to_string());
    }
    if let Some(traceparent) = &message.traceparent {
        headers.insert(header::TRACEPARENT, traceparent.as_str());
    }
    if let Some(id) = &message.message_id {
        headers.insert(NATS_MESSAGE_ID, id.as_str());
    }
    if let Some(expect) = &message.expect {
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expect.last_sequence.to_string());
        if let Some(filter) = &expect.filter {
            headers.insert(EXPECTED_FILTER, filter.as_str());
        }
    }
    if let Some(seconds) = message.ttl_seconds {
        headers.insert(NATS_MESSAGE_TTL, format!("{seconds}s"));
    }
    for (name, value) in &message.headers {
        headers.insert(*name, value.as_str());
    }
    headers
}

fn publish_error(error: &PublishError) -> BusError {
    match error.kind() {
        PublishErrorKind::WrongLastSequence | PublishErrorKind::WrongLastMessageId => BusError::Conflict,
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => BusError::Unknown,
        PublishErrorKind::StreamNotFound => BusError::Unavailable("nobody stores this subject now".into()),
        PublishErrorKind::MaxAckPending => {
            BusError::Unavailable("too many writes wait for the broker".into())
        }
        PublishErrorKind::MaxPayloadExceeded => {
            BusError::Rejected("the message is larger than the broker takes".into())
        }
        PublishErrorKind::Other => refused(error),
    }
}

/// What the server said of a publish that it did not store.
fn refused(error: &PublishError) -> BusError {
    let answer =
        std::error::Error::source(error).and_then(|source| source.downcast_ref::<jetstream::Error>());
    match answer {
        Some(answer) if answer.to_string().contains("maximum messages per subject") => BusError::Occupied,
        // The disk is full, or the stream is frozen after an error of it: nothing was stored, and it may pass.
        Some(answer) if answer.error_code() == ErrorCode::STREAM_STORE_FAILED => {
            BusError::Unavailable(answer.to_string())
        }
        Some(answer) if answer.code() >= 500 => BusError::Unavailable(answer.to_string()),
        Some(answer) => BusError::Rejected(answer.to_string()),
        None => BusError::Unavailable(error.to_string()),
    }
}

fn stored(message: &StreamMessage) -> Stored {
    Stored {
        sequence: message.sequence,
        at: timestamp(message.time.unix_timestamp_nanos()),
        deleted: is_deleted(Some(&message.headers)),
        envelope: envelope(Some(&message.headers), &message.payload),
        subject: message.subject.to_string(),
    }
}

/// A message that a consumer delivered, and how many of those stored are still to come.
pub(crate) fn delivered(message: &async_nats::jetstream::Message) -> Option<Delivered> {
    let info = message.info().ok()?;
    let stored = Stored {
        sequence: info.stream_sequence,
        at: timestamp(info.published.unix_timestamp_nanos()),
        deleted: is_deleted(message.headers.as_ref()),
        envelope: envelope(message.headers.as_ref(), &message.payload),
        subject: message.subject.to_string(),
    };
    Some(Delivered { stored, behind: info.pending })
}

pub(crate) fn envelope(headers: Option<&HeaderMap>, payload: &Bytes) -> Envelope {
    let text = |name| headers.and_then(|headers| headers.get(name)).map(|value| value.as_str().to_owned());
    Envelope {
        kind: text(header::KIND).unwrap_or_default(),
        format: text(header::FORMAT).and_then(|format| format.parse().ok()).unwrap_or(0),
        traceparent: text(header::TRACEPARENT),
        body: payload.to_vec(),
    }
}

fn is_deleted(headers: Option<&HeaderMap>) -> bool {
    headers.is_some_and(|headers| headers.get(KV_OPERATION).is_some() || headers.get(MARKER_REASON).is_some())
}

fn timestamp(unix_nanos: i128) -> Timestamp {
    let millis = i64::try_from(unix_nanos / 1_000_000).unwrap_or_default();
    Timestamp::from_millis(millis).unwrap_or(Timestamp::EPOCH)
}
