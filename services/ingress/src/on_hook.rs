//! A source outside tells of an event. The signature is checked over the raw bytes before anything of them is read.

use api::Problem;
use axum::body::Bytes;
use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use bus::kv;
use bus::{Outgoing, Port};
use contract::buckets::{Head, HeadKey, Heads, Hook, Hooks};
use contract::subjects;
use domain::ids::HookId;
use hmac::{Hmac, KeyInit, Mac};
use reads::row_problem;
use serde_json::Value;
use sha2::Sha256;

use crate::Ingress;
use crate::accept::not_stored;
use crate::github::Told;

/// GitHub caps a payload at this.
pub(crate) const PAYLOAD_MAX: usize = 25 * 1024 * 1024;

const SIGNATURE: &str = "x-hub-signature-256";
const EVENT: &str = "x-github-event";
const DELIVERY: &str = "x-github-delivery";

/// The id of a delivery, in bytes; GitHub's are UUIDs.
const DELIVERY_ID_MAX: usize = 128;

/// `POST /hooks/github/{hook}`: 202 for whatever is signed, also where nobody can wait for it.
pub(crate) async fn github(
    State(ingress): State<Ingress>,
    Path(hook): Path<String>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let none = Problem::not_found("hook");
    let id: HookId = hook.parse().map_err(|_| none.clone())?;
    let row = kv::get::<Hooks>(&ingress.nats, &id).await.map_err(|error| row_problem(&error))?;
    let hook = row.value.ok_or(none)?;
    let headers = request.headers().clone();
    let body = Bytes::from_request(request, &()).await.map_err(|_| Problem::TooLarge {
        field: None,
        why: format!("the payload is longer than {PAYLOAD_MAX} bytes, or did not arrive whole"),
    })?;
    if !is_signed(&hook.secrets, &headers, &body) {
        return Err(Problem::Unauthorized);
    }
    let event = header(&headers, EVENT).ok_or_else(|| missing(EVENT))?;
    let delivery = header(&headers, DELIVERY)
        .filter(|id| !id.is_empty() && id.len() <= DELIVERY_ID_MAX)
        .ok_or_else(|| missing(DELIVERY))?;
    let payload = payload(&headers, &body)?;
    let at = ingress.runtime.clock.now();
    if let Some(told) = Told::read(event, &payload, hook.app.as_deref(), at) {
        ingress.tell(&hook, &told, delivery).await?;
    }
    Ok(StatusCode::ACCEPTED)
}

impl Ingress {
    async fn tell(&self, hook: &Hook, told: &Told, delivery: &str) -> Result<(), Problem> {
        let numbers = match (&told.numbers[..], &told.commit) {
            ([], Some(commit)) => self.pulls_of(hook, &told.repo, commit).await?,
            (numbers, _) => numbers.to_vec(),
        };
        if let (true, [number], Some(commit)) = (told.names_head(), &numbers[..], &told.commit) {
            self.remember_head(hook, &told.repo, *number, commit).await?;
        }
        for number in numbers {
            let entry = told.of(number);
            let message = Outgoing::message(&subjects::event(hook.org, &entry.key), &entry)
                .with_id(format!("{}.{delivery}.{number}", hook.org));
            self.nats.publish(message).await.map_err(|error| not_stored(&error))?;
        }
        Ok(())
    }

    /// The pull request whose head was last seen to be this commit.
    async fn pulls_of(&self, hook: &Hook, repo: &str, commit: &str) -> Result<Vec<u64>, Problem> {
        let key = |of: String| HeadKey { org: hook.org, repo: repo.to_owned(), of };
        let get = async |of: String| {
            let row = kv::get::<Heads>(&self.nats, &key(of)).await.map_err(|error| row_problem(&error))?;
            Ok::<_, Problem>(row.value)
        };
        let Some(head) = get(commit.to_owned()).await? else { return Ok(Vec::new()) };
        let last = get(head.number.to_string()).await?;
        let is_last = last.is_some_and(|last| last.commit == commit);
        Ok(is_last.then_some(head.number).into_iter().collect())
    }

    async fn remember_head(&self, hook: &Hook, repo: &str, number: u64, commit: &str) -> Result<(), Problem> {
        let head = Head { number, commit: commit.to_owned() };
        for of in [number.to_string(), commit.to_owned()] {
            let key = HeadKey { org: hook.org, repo: repo.to_owned(), of };
            let known = kv::get::<Heads>(&self.nats, &key).await.map_err(|error| row_problem(&error))?;
            if known.value.as_ref() != Some(&head) {
                kv::overwrite::<Heads>(&self.nats, &key, &head).await.map_err(|error| not_stored(&error))?;
            }
        }
        Ok(())
    }
}

/// Whether one of the active secrets signed the raw bytes.
fn is_signed(secrets: &[String], headers: &HeaderMap, body: &[u8]) -> bool {
    let Some(signature) = header(headers, SIGNATURE).and_then(|value| value.strip_prefix("sha256=")) else {
        return false;
    };
    let Some(signature) = hex(signature) else { return false };
    secrets.iter().any(|secret| {
        // A key of any length will do.
        Hmac::<Sha256>::new_from_slice(secret.as_bytes())
            .is_ok_and(|mac| mac.chain_update(body).verify_slice(&signature).is_ok())
    })
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() == 64)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The payload of a JSON or a form-encoded delivery.
fn payload(headers: &HeaderMap, body: &[u8]) -> Result<Value, Problem> {
    let form = header(headers, header::CONTENT_TYPE.as_str())
        .is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
    let parsed = if form {
        let found = form_urlencoded::parse(body).find(|(name, _)| name == "payload");
        found.map_or(Ok(Value::Null), |(_, payload)| serde_json::from_str(&payload))
    } else {
        serde_json::from_slice(body)
    };
    parsed.map_err(|error| Problem::Malformed {
        field: None,
        why: format!("the payload is signed and is no JSON: {error}; send the event as GitHub does"),
    })
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn missing(name: &'static str) -> Problem {
    Problem::Malformed {
        field: Some(name.into()),
        why: format!("the header {name} is missing; send it as GitHub does"),
    }
}
