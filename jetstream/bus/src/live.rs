//! Core NATS: what need not be kept. A message that nobody hears is gone.

use std::str::FromStr;

use async_nats::Subscriber;
use contract::envelope::{FORMAT, encode, header};
use contract::{Message, Subject};
use futures_util::StreamExt;

use crate::connect::Nats;
use crate::port::BusError;
use crate::publish::envelope;

/// A subscription to what other users tell.
#[derive(Debug)]
pub struct Heard(Subscriber);

impl Nats {
    /// Says something to whoever hears it now.
    pub async fn tell<M: Message>(&self, subject: Subject, message: &M) {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert(header::KIND, M::KIND);
        headers.insert(header::FORMAT, FORMAT.to_string());
        let told =
            self.client.publish_with_headers(subject.to_string(), headers, encode(message).into()).await;
        if let Err(error) = told {
            tracing::debug!(%subject, %error, "not told");
        }
    }

    /// Listens to a subject or filter; the subscription outlives reconnections.
    pub async fn hear(&self, filter: impl Into<String>) -> Result<Heard, BusError> {
        let filter: String = filter.into();
        let heard =
            self.client.subscribe(filter).await.map_err(|error| BusError::Unavailable(error.to_string()))?;
        // So that what is asked next is answered to a subscription the broker knows of.
        self.flush().await;
        Ok(Heard(heard))
    }
}

impl Heard {
    /// The next message of this kind; `None` once the connection is closed for good. What cannot be read is skipped.
    pub async fn next<M: Message>(&mut self) -> Option<(Subject, M)> {
        loop {
            let message = self.0.next().await?;
            let subject = Subject::from_str(message.subject.as_str());
            let body = envelope(message.headers.as_ref(), &message.payload).decode();
            match (subject, body) {
                (Ok(subject), Ok(body)) => return Some((subject, body)),
                (Err(error), _) => tracing::debug!(%error, "skipped"),
                (_, Err(error)) => tracing::debug!(%error, "skipped"),
            }
        }
    }
}
