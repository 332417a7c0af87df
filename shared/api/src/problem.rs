//! What is answered when something cannot be done: RFC 9457 problems. Each kind has a page in docs/errors that says what
//! happened and what to do; the detail says it for the request at hand.

use std::error::Error;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use contract::buckets::Role;
use domain::Refusal;
use domain::ids::{ConversationId, MessageId};
use serde::Serialize;
use service::telemetry::traceparent_of;
use tracing::Span;

/// What a client waits before it tries again, where trying again can help. A broker's leader changes within seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("2");

/// The text of a problem is its detail: what was wrong with this request, and what mends it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error(
        "the request names no API key that is known here; send one as x-api-key or as Authorization: Bearer"
    )]
    Unauthorized,

    #[error("this needs the role {}, and the key has {}; ask an admin for another key", name(*needs), name(*has))]
    RoleMissing { needs: Role, has: Role },

    #[error("only the person who made the agent and admins may change it; ask one of them")]
    NotYours,

    #[error("there is no such {what}; check the id, and that the key belongs to its organization")]
    NotFound { what: &'static str },

    #[error("there is no route {path}; check the address")]
    NoRoute { path: String },

    #[error("{path} does not take {method}; see the Allow header for what it takes")]
    MethodNotAllowed { method: String, path: String },

    /// The request cannot be read.
    #[error("{why}")]
    Malformed { field: Option<String>, why: String },

    /// The request can be read, and a value in it is not allowed.
    #[error("{why}")]
    Invalid { field: String, why: String },

    /// The rules of processes decline it.
    #[error("{0}")]
    Refused(Refusal),

    #[error(
        "the idempotency key was used before for something else; repeat exactly what was sent with it, or take a new key"
    )]
    KeyReused,

    #[error("{why}")]
    TooLarge { field: Option<String>, why: String },

    /// An answer that does not fit its card.
    #[error("{why}")]
    Mismatch { field: String, why: String },

    #[error("the content type is {found}; send application/json")]
    ContentType { found: String },

    #[error("{why}")]
    TooMany { why: String },

    #[error("the body was not complete in time, or the connection broke; send the request again")]
    Timeout,

    /// Nothing has been stored.
    #[error("the bus cannot be reached now and nothing was stored; try again in a moment")]
    Unavailable,

    #[error(
        "the bus did not say in time whether it stored this; repeating it with the same idempotency key is safe, \
         without one look before you repeat it"
    )]
    OutcomeUnknown,

    /// The request has taken effect, and its answer cannot be read.
    #[error(
        "{message} is accepted in {conversation}, and what comes of it cannot be read now; ask for the conversation in \
         a moment, and do not send it again"
    )]
    AnswerUnread { conversation: ConversationId, message: MessageId },

    #[error("{why}")]
    Internal { why: String },
}

/// What a kind is on the wire.
struct Kind {
    status: StatusCode,
    /// The name of its page.
    slug: &'static str,
    title: &'static str,
}

#[derive(Serialize)]
struct Wire<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
}

// === impl Problem ===

impl Problem {
    pub fn invalid(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), why: why.into() }
    }

    pub const fn not_found(what: &'static str) -> Self {
        Self::NotFound { what }
    }

    /// The bus could not be asked before anything was stored. The cause is for operators.
    pub fn unreachable(error: &(dyn Error + 'static)) -> Self {
        tracing::warn!(error, "the bus could not be asked");
        Self::Unavailable
    }

    /// Something that does not happen where all is well. The cause is for operators, the sentence for the client.
    pub fn internal(error: &(dyn Error + 'static), why: &str) -> Self {
        tracing::error!(error, "{why}");
        Self::Internal { why: why.to_owned() }
    }

    pub fn status(&self) -> StatusCode {
        self.kind().status
    }

    fn field(&self) -> Option<&str> {
        match self {
            Self::Malformed { field, .. } | Self::TooLarge { field, .. } => field.as_deref(),
            Self::Invalid { field, .. } | Self::Mismatch { field, .. } => Some(field),
            Self::KeyReused => Some("idempotency_key"),
            _ => None,
        }
    }

    fn kind(&self) -> Kind {
        let kind = |status, slug, title| Kind { status, slug, title };
        match self {
            Self::Unauthorized => kind(StatusCode::UNAUTHORIZED, "unauthorized", "No valid API key"),
            Self::RoleMissing { .. } | Self::NotYours => {
                kind(StatusCode::FORBIDDEN, "forbidden", "Not allowed with this key")
            }
            Self::NotFound { .. } | Self::NoRoute { .. } => {
                kind(StatusCode::NOT_FOUND, "not-found", "Not found")
            }
            Self::MethodNotAllowed { .. } => {
                kind(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed")
            }
            Self::Malformed { .. } => {
                kind(StatusCode::BAD_REQUEST, "malformed", "The request cannot be read")
            }
            Self::Invalid { .. } => {
                kind(StatusCode::UNPROCESSABLE_ENTITY, "invalid", "A value is not allowed")
            }
            Self::Mismatch { .. } => {
                kind(StatusCode::BAD_REQUEST, "answer-mismatch", "The answer does not fit the card")
            }
            Self::Refused(refusal) => {
                let (slug, title) = refused(refusal);
                kind(StatusCode::CONFLICT, slug, title)
            }
            Self::KeyReused => kind(
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency-conflict",
                "One idempotency key for two requests",
            ),
            Self::TooLarge { .. } => kind(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Too large"),
            Self::ContentType { .. } => {
                kind(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "Unsupported content type")
            }
            Self::TooMany { .. } => kind(StatusCode::TOO_MANY_REQUESTS, "too-many", "Too much is waiting"),
            Self::Timeout => kind(StatusCode::REQUEST_TIMEOUT, "timeout", "The request came too slowly"),
            Self::Unavailable => {
                kind(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "The bus is not reachable")
            }
            Self::OutcomeUnknown => {
                kind(StatusCode::SERVICE_UNAVAILABLE, "outcome-unknown", "Whether it was stored is unknown")
            }
            Self::AnswerUnread { .. } => kind(
                StatusCode::SERVICE_UNAVAILABLE,
                "answer-unread",
                "Accepted, and the answer cannot be read",
            ),
            Self::Internal { .. } => {
                kind(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Something is wrong on our side")
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Kind { status, slug, title } = self.kind();
        let traceparent = traceparent_of(&Span::current());
        let body = Wire {
            r#type: format!("/docs/errors/{slug}"),
            title,
            status: status.as_u16(),
            detail: self.to_string(),
            field: self.field(),
            trace_id: traceparent.as_deref().and_then(trace_id).map(str::to_owned),
        };
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, RETRY_AFTER);
            }
            _ => {}
        }
        response
    }
}

/// The refusals that an input can meet have a page each; the others never leave the bus.
fn refused(refusal: &Refusal) -> (&'static str, &'static str) {
    match refusal {
        Refusal::AgentDeleted { .. } => ("agent-deleted", "The agent was deleted"),
        Refusal::NothingToSteer => ("nothing-to-steer", "No live process to steer"),
        Refusal::AlreadyEnded { .. } => ("already-ended", "The process has ended already"),
        Refusal::NothingToStop => ("nothing-to-stop", "Nothing to stop"),
        Refusal::CardClosed { .. } => ("card-closed", "The card is closed already"),
        _ => ("conflict", "Not possible as things stand"),
    }
}

/// A role as it is written in a key.
pub(crate) const fn name(role: Role) -> &'static str {
    match role {
        Role::Member => "member",
        Role::Operator => "operator",
        Role::Admin => "admin",
    }
}

/// The second part of a W3C traceparent.
fn trace_id(traceparent: &str) -> Option<&str> {
    traceparent.split('-').nth(1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use domain::ids::{AgentId, Epoch, ExecutorId};
    use domain::process::{Exit, ExitReason, Outcome};
    use http_body_util::BodyExt;
    use serde_json::Value;

    use super::*;

    fn one_of_each() -> Vec<Problem> {
        let exit = Exit { outcome: Outcome::Completed, reason: ExitReason::FinishProcess, summary: None };
        let why = || "because".to_owned();
        vec![
            Problem::Unauthorized,
            Problem::RoleMissing { needs: Role::Operator, has: Role::Member },
            Problem::NotYours,
            Problem::not_found("agent"),
            Problem::NoRoute { path: "/nowhere".into() },
            Problem::MethodNotAllowed { method: "PUT".into(), path: "/v1/agents".into() },
            Problem::Malformed { field: Some("input.text".into()), why: why() },
            Problem::invalid("name", why()),
            Problem::Refused(Refusal::AgentDeleted { agent: AgentId::from_uuid(uuid::Uuid::nil()) }),
            Problem::Refused(Refusal::NothingToSteer),
            Problem::Refused(Refusal::AlreadyEnded { exit }),
            Problem::Refused(Refusal::NothingToStop),
            Problem::Refused(Refusal::CardClosed { card: MessageId::from_uuid(uuid::Uuid::nil()) }),
            Problem::Mismatch { field: "answers".into(), why: why() },
            Problem::Refused(Refusal::Fenced { executor: ExecutorId(0), epoch: Epoch(1) }),
            Problem::KeyReused,
            Problem::TooLarge { field: None, why: why() },
            Problem::ContentType { found: "text/plain".into() },
            Problem::TooMany { why: why() },
            Problem::Timeout,
            Problem::Unavailable,
            Problem::OutcomeUnknown,
            Problem::AnswerUnread {
                conversation: ConversationId::from_uuid(uuid::Uuid::nil()),
                message: MessageId::from_uuid(uuid::Uuid::nil()),
            },
            Problem::Internal { why: why() },
        ]
    }

    #[test]
    fn every_kind_has_a_page_that_says_what_to_do() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
        for problem in one_of_each() {
            let page = pages.join(format!("{}.md", problem.kind().slug));
            let text = std::fs::read_to_string(&page).unwrap_or_default();
            assert!(text.contains("## What to do"), "{} is missing or says nothing", page.display());
        }
    }

    #[tokio::test]
    async fn a_problem_is_json_with_its_field_and_its_page() {
        let response = Problem::invalid("name", "name is empty; give the agent one").into_response();
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["type"], "/docs/errors/invalid");
        assert_eq!(body["status"], 422);
        assert_eq!(body["field"], "name");
        assert_eq!(body["detail"], "name is empty; give the agent one");
    }

    #[test]
    fn a_client_is_told_how_to_prove_itself_and_when_to_come_back() {
        let headers = |problem: Problem| problem.into_response().headers().clone();
        assert_eq!(headers(Problem::Unauthorized)[header::WWW_AUTHENTICATE], "Bearer");
        assert!(headers(Problem::Unavailable).contains_key(header::RETRY_AFTER));
        assert!(headers(Problem::TooMany { why: "full".into() }).contains_key(header::RETRY_AFTER));
        assert!(!headers(Problem::KeyReused).contains_key(header::RETRY_AFTER));
    }
}
