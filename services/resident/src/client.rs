//! The HTTP API as the commands for people use it.

use domain::ids::AgentId;
use eventsource_stream::{Event, Eventsource};
use futures_util::{Stream, StreamExt};
use reqwest::{Method, RequestBuilder, Response};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use service::config::Settings;

use crate::data_dir;
use crate::failure::Failure;
use crate::settings::{ClientConfig, DataConfig};

/// A server, as the owner of a key.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    api_key: SecretString,
}

impl Client {
    pub(crate) fn new(url: &str, api_key: SecretString) -> Result<Self, Failure> {
        Ok(Self { http: service::http::client()?, url: url.trim_end_matches('/').to_owned(), api_key })
    }

    /// The server that is named in the settings, else the running dev's.
    pub(crate) fn of(settings: &Settings) -> Result<Self, Failure> {
        let config = settings.section::<ClientConfig>()?;
        let known = data_dir::installation(&settings.section::<DataConfig>()?.dir);
        let url = config.url.map(|url| url.to_string()).or_else(|| known.as_ref()?.url.clone());
        let api_key = config.api_key.or_else(|| known.map(|known| known.api_key.into()));
        match (url, api_key) {
            (Some(url), Some(api_key)) => Self::new(&url, api_key),
            _ => Err(Failure::NoServer),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        json(self.send(Method::GET, path, None).await?).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        json(self.send(Method::POST, path, Some(body)).await?).await
    }

    /// Posts, and follows the events of the answer.
    pub(crate) async fn stream(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<impl Stream<Item = Result<Event, Failure>> + Unpin + use<>, Failure> {
        Ok(events(self.send(Method::POST, path, Some(body)).await?))
    }

    /// Follows the events of an address, from behind the one with this id where it is named.
    pub(crate) async fn watch(
        &self,
        path: &str,
        after: Option<&str>,
    ) -> Result<impl Stream<Item = Result<Event, Failure>> + Unpin + use<>, Failure> {
        let mut request = self.request(Method::GET, path);
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        Ok(events(self.answer(request).await?))
    }

    /// The agent that was named, else the first that the key may use.
    pub(crate) async fn agent(&self, named: Option<AgentId>) -> Result<String, Failure> {
        if let Some(agent) = named {
            return Ok(agent.to_string());
        }
        let agents = self.get("/v1/agents").await?;
        agents["items"][0]["id"].as_str().map(str::to_owned).ok_or(Failure::NoAgent)
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Response, Failure> {
        let request = self.request(method, path);
        self.answer(match body {
            Some(body) => request.json(body),
            None => request,
        })
        .await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        request.header("x-api-key", self.api_key.expose_secret())
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let answer = request
            .send()
            .await
            .map_err(|source| Failure::Unreachable { url: self.url.clone(), source: source.without_url() })?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let problem: Value = answer.json().await.unwrap_or_default();
        let text = |field: &str| problem[field].as_str().map(str::to_owned);
        Err(Failure::Problem {
            title: text("title").unwrap_or_else(|| status.to_string()),
            detail: text("detail").unwrap_or_else(|| "the server says no more".into()),
        })
    }
}

fn events(answer: Response) -> impl Stream<Item = Result<Event, Failure>> + Unpin + use<> {
    let bytes = answer.bytes_stream().map(|bytes| bytes.map_err(std::io::Error::other));
    Box::pin(bytes.eventsource().map(|event| event.map_err(|error| Failure::Strange(error.to_string()))))
}

async fn json(answer: Response) -> Result<Value, Failure> {
    answer.json().await.map_err(|error| Failure::Strange(error.without_url().to_string()))
}
