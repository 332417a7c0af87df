//! The way from a harness to its model: the segment's token comes in, the provider's key goes out, and what both say
//! is passed on as it comes. The sandbox never has the key, the provider never sees the token.
//!
//! It knows one wire, Anthropic Messages, and of that only where the tokens are counted. Who may call is decided
//! before, in [`crate::endpoint`].

mod call;
mod headers;
mod refusal;
mod relay;
mod sse;
mod usage;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue};
use http_body_util::{LengthLimitError, Limited};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::mpsc;
use tokio::time::timeout;

use call::OpenCall;
use relay::Relay;
use usage::Meter;

pub use call::ModelCall;
pub use usage::Usage;

pub(crate) use headers::API_KEY;
pub(crate) use refusal::Refusal;

/// The provider's own limit on a request.
const REQUEST_BYTES_MAX: usize = 32 << 20;
/// A harness gives a silent stream up after a minute or more.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A provider sends signs of life several times a minute.
const SILENCE_MAX: Duration = Duration::from_secs(5 * 60);
/// The longest that the provider itself works on an answer that is not streamed.
const ANSWER_WITHIN: Duration = Duration::from_secs(10 * 60);

/// Where models are.
#[derive(Debug, Clone)]
pub struct Provider {
    /// Paths are put behind it: `https://api.anthropic.com`, or a gateway's with a path of its own.
    pub base_url: Url,
    /// None for one that asks for none, as the demo model.
    pub api_key: Option<SecretString>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    #[error("the provider's base URL must begin with http:// or https://; correct it in the settings")]
    BaseUrl,
    #[error("the provider's key cannot be sent in a header; see that it was pasted whole and on one line")]
    Key,
}

/// How long silence is borne on an answer's way.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// A stream of events that is silent for this long gets a comment.
    pub keep_alive: Duration,
    /// An answer that stands still for this long is given up: the comments would hide from the harness that it does.
    pub silence: Duration,
    /// From the request to the beginning of its answer, which is all of it where it is not streamed.
    pub answer: Duration,
}

/// Forwards the model calls of one segment. Cloning it gives another handle.
#[derive(Debug, Clone)]
pub struct ModelProxy {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: reqwest::Client,
    base_url: Url,
    key: Option<HeaderValue>,
    told: mpsc::Sender<ModelCall>,
    patience: Patience,
}

/// What the provider is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Question {
    Message,
    TokenCount,
}

// === impl ModelProxy ===

impl ModelProxy {
    /// With what tells of its calls: whoever takes it must read it, or no further call begins.
    pub fn new(
        client: reqwest::Client,
        provider: Provider,
        patience: Patience,
    ) -> Result<(Self, mpsc::Receiver<ModelCall>), ProviderError> {
        let Provider { base_url, api_key } = provider;
        if !matches!(base_url.scheme(), "http" | "https") {
            return Err(ProviderError::BaseUrl);
        }
        let key = api_key.map(|key| HeaderValue::from_str(key.expose_secret())).transpose();
        let mut key = key.map_err(|_| ProviderError::Key)?;
        if let Some(key) = &mut key {
            key.set_sensitive(true);
        }
        let (told, hears) = call::channel();
        let shared = Shared { client, base_url, key, told, patience };
        Ok((Self { shared: Arc::new(shared) }, hears))
    }

    /// The provider's answer, or a refusal in its shape.
    pub(crate) async fn forward(&self, question: Question, request: Request) -> Response {
        self.answer(question, request).await.unwrap_or_else(IntoResponse::into_response)
    }

    async fn answer(&self, question: Question, request: Request) -> Result<Response, Refusal> {
        if announced(request.headers()) > REQUEST_BYTES_MAX as u64 {
            return Err(Refusal::TooLarge);
        }
        let mut call = match question {
            Question::Message => {
                OpenCall::begin(&self.shared.told).await.map_err(|call::NobodyListens| Refusal::Ending)?
            }
            Question::TokenCount => OpenCall::untold(),
        };
        let answer = match self.ask(question, request).await {
            Ok(answer) => answer,
            Err(refusal) => {
                call.answered(refusal.status());
                return Err(refusal);
            }
        };
        call.answered(answer.status());
        call.meter = Meter::of(answer.headers());
        let mut response = Response::new(Body::empty());
        *response.status_mut() = answer.status();
        *response.headers_mut() = headers::to_client(answer.headers());
        *response.body_mut() = Relay::new(answer, call, self.shared.patience).into_body();
        Ok(response)
    }

    async fn ask(&self, question: Question, request: Request) -> Result<reqwest::Response, Refusal> {
        let Shared { client, key, patience, .. } = &*self.shared;
        let (parts, body) = request.into_parts();
        let asked = client
            .post(self.url(question, parts.uri.query()))
            .headers(headers::to_provider(&parts.headers, key.as_ref()))
            .body(reqwest::Body::wrap_stream(
                Body::new(Limited::new(body, REQUEST_BYTES_MAX)).into_data_stream(),
            ));
        match timeout(patience.answer, asked.send()).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if is_too_long(&error) => Err(Refusal::TooLarge),
            Ok(Err(error)) => {
                // Without the URL: it may have a password in it.
                let error = error.without_url();
                let host = self.shared.base_url.host_str().unwrap_or_default();
                tracing::warn!(
                    error = &error as &(dyn Error + 'static),
                    host,
                    "the model provider could not be reached; check its base URL and the way to it"
                );
                Err(Refusal::Unreachable)
            }
            Err(_) => Err(Refusal::NoAnswer(patience.answer)),
        }
    }

    fn url(&self, question: Question, query: Option<&str>) -> Url {
        let mut url = self.shared.base_url.clone();
        let path = format!("{}{}", url.path().trim_end_matches('/'), question.path());
        url.set_path(&path);
        url.set_query(query);
        url
    }
}

// === impl Question ===

impl Question {
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Message => "/v1/messages",
            Self::TokenCount => "/v1/messages/count_tokens",
        }
    }
}

// === impl Patience ===

impl Default for Patience {
    fn default() -> Self {
        Self { keep_alive: KEEP_ALIVE, silence: SILENCE_MAX, answer: ANSWER_WITHIN }
    }
}

/// The length that a request says it has; what has no length is counted as it comes.
fn announced(headers: &HeaderMap) -> u64 {
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or_default()
}

fn is_too_long(error: &reqwest::Error) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        if error.is::<LengthLimitError>() {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(base_url: &str, key: Option<&str>) -> Result<ModelProxy, ProviderError> {
        let api_key = key.map(|key| key.to_owned().into());
        let provider = Provider { base_url: base_url.parse().unwrap(), api_key };
        let client = service::http::client().unwrap();
        ModelProxy::new(client, provider, Patience::default()).map(|(proxy, _)| proxy)
    }

    #[test]
    fn paths_stand_behind_the_base_url_and_the_query_is_kept() {
        for (base_url, query, expected) in [
            ("https://api.example", Some("beta=true"), "https://api.example/v1/messages?beta=true"),
            ("https://api.example/", None, "https://api.example/v1/messages"),
            ("http://gw.example:8080/anthropic/", None, "http://gw.example:8080/anthropic/v1/messages"),
            ("http://gw.example?old=1", Some("a=b%2Fc"), "http://gw.example/v1/messages?a=b%2Fc"),
        ] {
            let proxy = proxy(base_url, None).unwrap();
            assert_eq!(proxy.url(Question::Message, query).as_str(), expected);
        }
    }

    #[test]
    fn a_provider_that_cannot_be_asked_is_refused_at_once() {
        assert!(matches!(proxy("file:///tmp/x", None), Err(ProviderError::BaseUrl)));
        assert!(matches!(proxy("https://api.example", Some("two\nlines")), Err(ProviderError::Key)));
    }

    #[test]
    fn the_key_is_not_printed() {
        let proxy = proxy("https://api.example", Some("sk-ant-secret")).unwrap();
        assert!(!format!("{proxy:?}").contains("sk-ant"), "{proxy:?}");
    }
}
