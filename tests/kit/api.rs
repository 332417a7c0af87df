//! The HTTP API as a test uses it: reads go to the console, writes to ingress, as a gateway would route them.

use std::time::Duration;

use eventsource_stream::Eventsource;
use futures_util::{Stream, StreamExt};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::wait::eventually;

/// A task of the real harness takes a few seconds; a busy machine several times that.
const TASK_WITHIN: Duration = Duration::from_secs(120);

#[derive(Debug, Clone)]
pub struct Api {
    http: reqwest::Client,
    console: String,
    ingress: String,
    key: String,
}

/// An answer, whatever its status.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Value,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub id: Option<u64>,
    pub name: String,
    pub data: Value,
}

/// The events of a stream that is open.
pub struct Events {
    stream: std::pin::Pin<Box<dyn Stream<Item = Event> + Send>>,
    pub seen: Vec<Event>,
}

// === impl Api ===

impl Api {
    pub fn new(console: &str, ingress: &str, key: &str) -> Self {
        Self {
            http: service::http::client().expect("a client"),
            console: console.into(),
            ingress: ingress.into(),
            key: key.into(),
        }
    }

    /// Its key, for a program that is to be the same user.
    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let base =
            if method == Method::GET || method == Method::HEAD { &self.console } else { &self.ingress };
        self.http.request(method, format!("{base}{path}")).header("x-api-key", &self.key)
    }

    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status();
        let body = answer.bytes().await.expect("a body");
        Answer { status, body: serde_json::from_slice(&body).unwrap_or_default() }
    }

    pub async fn get(&self, path: &str) -> Value {
        let answer = self.send(Method::GET, path, None).await;
        assert!(answer.status.is_success(), "GET {path}: {answer:?}");
        answer.body
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.send(Method::POST, path, Some(&body)).await;
        assert!(answer.status.is_success(), "POST {path}: {answer:?}");
        answer.body
    }

    /// A fresh agent's id.
    pub async fn agent(&self) -> String {
        let body =
            json!({ "name": "Builder", "instructions": "You build things.", "harness": "claude-code" });
        self.post("/v1/agents", body).await["id"].as_str().expect("an id").to_owned()
    }

    /// Opens a conversation with a message; its id.
    pub async fn open(&self, agent: &str, text: &str) -> String {
        let record = self
            .post(&format!("/v1/agents/{agent}/invoke/async"), json!({ "input": { "text": text } }))
            .await;
        record["conversation_id"].as_str().expect("an id").to_owned()
    }

    /// Says something; the message's id.
    pub async fn say(&self, agent: &str, conversation: &str, text: &str, mode: &str) -> String {
        let path = format!("/v1/agents/{agent}/conversations/{conversation}/messages");
        let accepted = self.post(&path, json!({ "text": text, "mode": mode })).await;
        accepted["message_id"].as_str().expect("an id").to_owned()
    }

    pub async fn record(&self, agent: &str, conversation: &str) -> Value {
        self.get(&format!("/v1/agents/{agent}/conversations/{conversation}")).await
    }

    /// Waits until the record is as wanted.
    pub async fn until(
        &self,
        what: &str,
        agent: &str,
        conversation: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(what, TASK_WITHIN, async || {
            let record = self.record(agent, conversation).await;
            if wanted(&record) { Ok(record) } else { Err(record["process"].clone()) }
        })
        .await
    }

    pub async fn until_status(&self, agent: &str, conversation: &str, status: &str) -> Value {
        self.until(status, agent, conversation, |record| record["status"] == status).await
    }

    pub async fn receipt(&self, agent: &str, conversation: &str, message: &str) -> Value {
        self.get(&format!("/v1/agents/{agent}/conversations/{conversation}/messages/{message}")).await
    }

    pub async fn until_receipt(
        &self,
        agent: &str,
        conversation: &str,
        message: &str,
        receipt: &str,
    ) -> Value {
        eventually(receipt, TASK_WITHIN, async || {
            let found = self.receipt(agent, conversation, message).await;
            if found["receipt"] == receipt { Ok(found) } else { Err(found) }
        })
        .await
    }

    /// Follows a conversation, from behind `after` where it is given.
    pub async fn follow(&self, agent: &str, conversation: &str, after: Option<u64>) -> Events {
        let path = format!("/v1/agents/{agent}/conversations/{conversation}/stream");
        let mut request = self.request(Method::GET, &path);
        if let Some(after) = after {
            request = request.header("last-event-id", after.to_string());
        }
        Events::of(request).await
    }

    /// Opens a conversation and follows it.
    pub async fn stream(&self, agent: &str, text: &str) -> Events {
        let path = format!("/v1/agents/{agent}/invoke/stream");
        Events::of(self.request(Method::POST, &path).json(&json!({ "input": { "text": text } }))).await
    }
}

// === impl Events ===

impl Events {
    async fn of(request: RequestBuilder) -> Self {
        let answer = request.send().await.expect("an answer");
        assert!(answer.status().is_success(), "{}", answer.status());
        let mut last = String::new();
        let events = answer.bytes_stream().eventsource().filter_map(move |event| {
            let event = event.ok().map(|event| {
                // A reader keeps the last id it was told; an event that brings none shows that one.
                let own = std::mem::replace(&mut last, event.id.clone()) != event.id;
                Event {
                    id: event.id.parse().ok().filter(|_| own),
                    name: event.event,
                    data: serde_json::from_str(&event.data).unwrap_or_default(),
                }
            });
            std::future::ready(event)
        });
        Self { stream: Box::pin(events), seen: Vec::new() }
    }

    /// The next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Event> {
        let event = tokio::time::timeout(TASK_WITHIN, self.stream.next())
            .await
            .unwrap_or_else(|_| panic!("no event for {TASK_WITHIN:?} after {:?}", self.names()))?;
        self.seen.push(event.clone());
        Some(event)
    }

    /// Reads on until an event is wanted.
    pub async fn until(&mut self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            let event = self.next().await;
            let event = event.unwrap_or_else(|| panic!("the stream ended before {what}: {:?}", self.names()));
            if wanted(&event) {
                return event;
            }
        }
    }

    pub fn names(&self) -> Vec<&str> {
        self.seen.iter().map(|event| event.name.as_str()).collect()
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("seen", &self.names()).finish_non_exhaustive()
    }
}
