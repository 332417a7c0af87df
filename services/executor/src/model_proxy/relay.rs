//! An answer on its way through: bytes out as they come in, read by the meter, and kept alive while there are none.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::time::timeout;

use super::Patience;
use super::call::OpenCall;

/// A line that clients of server-sent events pass over.
const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// An error of the body is what ends the connection without the end of the answer, as the provider's did.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cut {
    #[error("the provider's answer broke off; send the request again")]
    ByProvider(#[source] reqwest::Error),
    #[error("the provider has sent nothing for {0:?}; send the request again")]
    Silent(Duration),
}

/// Dropped, because the answer has ended or the client has gone, it drops the provider's connection as well.
pub(super) struct Relay {
    pub(super) answer: reqwest::Response,
    pub(super) call: OpenCall,
    pub(super) patience: Patience,
    silent: Duration,
}

// === impl Relay ===

impl Relay {
    pub(super) fn new(answer: reqwest::Response, call: OpenCall, patience: Patience) -> Self {
        Self { answer, call, patience, silent: Duration::ZERO }
    }

    pub(super) fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(Some(self), async |relay| relay?.next().await))
    }

    /// The next bytes, and the relay again where more may come.
    async fn next(mut self) -> Option<(Result<Bytes, Cut>, Option<Self>)> {
        loop {
            match timeout(self.patience.keep_alive, self.answer.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    self.silent = Duration::ZERO;
                    self.call.meter.push(&bytes);
                    return Some((Ok(bytes), Some(self)));
                }
                Ok(Ok(None)) => return None,
                Ok(Err(error)) => return Some((Err(Cut::ByProvider(error.without_url())), None)),
                Err(_) => {
                    self.silent += self.patience.keep_alive;
                    if self.silent >= self.patience.silence {
                        return Some((Err(Cut::Silent(self.silent)), None));
                    }
                    if self.call.meter.between_events() {
                        return Some((Ok(KEEP_ALIVE), Some(self)));
                    }
                }
            }
        }
    }
}
