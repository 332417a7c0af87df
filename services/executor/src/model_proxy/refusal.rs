//! What the endpoint itself answers under `/v1`, in the provider's shape, so that a harness shows the sentence.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;

use super::REQUEST_BYTES_MAX;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the segment's token is missing, wrong or no longer good; it is good while its segment is hot")]
    Unauthenticated,
    #[error("only paths of this endpoint are served, and no other host's; send the request in origin form")]
    OtherHost,
    #[error("there is nothing here; the model is called by POST /v1/messages")]
    NotFound,
    #[error("a request may have {REQUEST_BYTES_MAX} bytes; make it shorter, then send it again")]
    TooLarge,
    #[error(
        "the model provider could not be reached; an operator should check the provider's base URL and whether the \
         executor can reach it"
    )]
    Unreachable,
    #[error(
        "the model provider has not answered for {0:?}; send the request again, and if that does not help, an \
         operator should check the provider's base URL"
    )]
    NoAnswer(Duration),
    #[error("the segment is ending; nothing is forwarded any more")]
    Ending,
}

// === impl Refusal ===

impl Refusal {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::OtherHost => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unreachable => StatusCode::BAD_GATEWAY,
            Self::NoAnswer(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::Ending => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Unauthenticated => "authentication_error",
            Self::OtherHost => "invalid_request_error",
            Self::NotFound => "not_found_error",
            Self::TooLarge => "request_too_large",
            Self::Unreachable | Self::NoAnswer(_) | Self::Ending => "api_error",
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({"type": "error", "error": {"type": self.kind(), "message": self.to_string()}});
        (self.status(), Json(body)).into_response()
    }
}
