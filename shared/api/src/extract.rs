//! What a handler takes from a request, each with the project's own problems where it cannot be had.

use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;

use crate::limits::{BODY_MAX, DISCARDED_MAX, scan};
use crate::problem::Problem;

/// What is shown of a content type in a sentence, in characters.
const SHOWN_MAX: usize = 64;

/// A JSON body. An empty one stands for `{}`.
#[derive(Debug, Clone, Copy)]
pub struct JsonBody<T>(pub T);

/// The ids in the path. A malformed one names nothing.
#[derive(Debug, Clone, Copy)]
pub struct Ids<T>(pub T);

/// The query parameters.
#[derive(Debug, Clone, Copy)]
pub struct Params<T>(pub T);

// === impl JsonBody ===

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let announced = parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        if announced
            .and_then(|length| length.parse().ok())
            .is_some_and(|length: usize| length > DISCARDED_MAX)
        {
            return Err(too_large());
        }
        let body = read(body).await?;
        if body.is_empty() {
            return parse(b"{}").map(Self);
        }
        content_type(&parts.headers)?;
        parse(&body).map(Self)
    }
}

async fn read(body: Body) -> Result<Vec<u8>, Problem> {
    let mut stream = body.into_data_stream();
    let (mut taken, mut length) = (Vec::new(), 0);
    while let Some(piece) = stream.next().await {
        let piece: Bytes = piece.map_err(|_| Problem::Timeout)?;
        length += piece.len();
        if length <= BODY_MAX {
            taken.extend_from_slice(&piece);
        } else {
            taken = Vec::new();
        }
        if length > DISCARDED_MAX {
            break;
        }
    }
    if length > BODY_MAX { Err(too_large()) } else { Ok(taken) }
}

fn too_large() -> Problem {
    Problem::TooLarge { field: None, why: format!("the body is longer than {BODY_MAX} bytes; send less") }
}

fn content_type(headers: &HeaderMap) -> Result<(), Problem> {
    let found =
        headers.get(header::CONTENT_TYPE).map_or(Ok(""), |value| value.to_str()).unwrap_or("unreadable");
    let mut parts = found.split(';').map(str::trim);
    let json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    let utf8 = parts.all(|parameter| match parameter.split_once('=') {
        Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
            value.trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    });
    if json && utf8 {
        return Ok(());
    }
    let found = if found.is_empty() { "missing" } else { found };
    Err(Problem::ContentType { found: found.chars().take(SHOWN_MAX).collect() })
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    scan(body).map_err(|flaw| Problem::Malformed { why: flaw.sentence(), field: flaw.field })?;
    // A list would pass for an object whose fields are given in their order.
    if matches!(body.trim_ascii_start().first(), Some(b'[')) {
        return Err(Problem::invalid("body", "the body is a list; send an object"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| wrong(&error))?;
    json.end().map_err(|error| not_json(&error))?;
    Ok(value)
}

/// What the parser found, as a problem that names the field.
fn wrong(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let inner = error.inner();
    if !inner.is_data() {
        return not_json(inner);
    }
    let text = inner.to_string();
    let sentence = text.split(" at line ").next().unwrap_or(&text);
    let path = error.path().to_string();
    let parent = if path == "." { String::new() } else { format!("{path}.") };
    match quoted(sentence) {
        Some(name) if sentence.starts_with("missing field") => {
            let field = format!("{parent}{name}");
            Problem::invalid(&field, format!("{field} is missing; it is required"))
        }
        // The path ends at the unknown field already.
        Some(name) if sentence.starts_with("unknown field") => {
            let known = sentence.split_once(", ").map_or("none is expected", |(_, known)| known);
            let above = path.strip_suffix(name).unwrap_or(&parent);
            let field = format!("{}{name}", if above == "." { "" } else { above });
            Problem::invalid(&field, format!("{field} is no field here; {known}"))
        }
        _ if path == "." => {
            Problem::invalid("body", format!("the body is not what this route takes: {sentence}"))
        }
        _ => Problem::invalid(&path, format!("{path} is not allowed: {sentence}")),
    }
}

fn not_json(error: &serde_json::Error) -> Problem {
    Problem::Malformed { field: None, why: format!("the body is no JSON: {error}") }
}

/// The name between the first two backticks.
fn quoted(sentence: &str) -> Option<&str> {
    sentence.split('`').nth(1)
}

// === impl Ids ===

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Ids<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let ids: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, state).await;
        ids.map(|Path(ids)| Self(ids)).map_err(|_| Problem::not_found("resource"))
    }
}

// === impl Params ===

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let params: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, state).await;
        params.map(|Query(params)| Self(params)).map_err(|rejection| Problem::Malformed {
            field: quoted(&rejection.body_text()).map(str::to_owned),
            why: format!("the query parameters cannot be read: {}", rejection.body_text()),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only that it is read counts")]
    struct Strict {
        name: String,
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only that it is read counts")]
    struct Inner {
        count: u8,
    }

    async fn body(content_type: Option<&str>, body: impl Into<Body>) -> Result<Strict, Problem> {
        let mut request = Request::post("/");
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let request = request.body(body.into()).unwrap();
        JsonBody::from_request(request, &()).await.map(|JsonBody(body)| body)
    }

    const JSON: Option<&str> = Some("application/json");

    #[tokio::test]
    async fn a_wrong_value_is_named_with_its_field() {
        for (text, field) in [
            (r"{}", "name"),
            ("", "name"),
            (r#"{"name": 5}"#, "name"),
            (r#"{"name": "a", "inner": {}}"#, "inner.count"),
            (r#"{"name": "a", "inner": {"count": "many"}}"#, "inner.count"),
            (r#"{"name": "a", "inner": {"count": 300}}"#, "inner.count"),
            (r#"{"name": "a", "inner": {"count": 3, "cuont": 4}}"#, "inner.cuont"),
            (r#"{"name": "a", "nmae": "b"}"#, "nmae"),
            (r#"["a", null]"#, "body"),
            ("5", "body"),
        ] {
            match body(JSON, text).await {
                Err(Problem::Invalid { field: found, why }) => {
                    assert_eq!(found, field, "{text}: {why}");
                    assert!(!why.contains("line"), "{why}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_json_is_malformed() {
        for text in ["{", r#"{"name": "a"} x"#, "{'name': 1}", r#"{"name": "a"#, r#"{"name": "\ud800"}"#] {
            assert!(matches!(body(JSON, text).await, Err(Problem::Malformed { .. })), "{text}");
        }
    }

    #[tokio::test]
    async fn only_json_is_taken() {
        let text = r#"{"name": "a"}"#;
        for good in
            ["application/json", "Application/JSON; charset=UTF-8", "application/json;charset=\"utf-8\""]
        {
            assert!(body(Some(good), text).await.is_ok(), "{good}");
        }
        for bad in [
            None,
            Some("text/plain"),
            Some("application/x-www-form-urlencoded"),
            Some("application/json; charset=latin1"),
            Some("application/jsonx"),
        ] {
            let found = body(bad, text).await;
            assert!(matches!(found, Err(Problem::ContentType { .. })), "{bad:?}: {found:?}");
        }
    }

    #[tokio::test]
    async fn a_body_is_read_to_the_bound() {
        let sized = |length: usize| format!(r#"{{"name": "{}"}}"#, "a".repeat(length - 12));
        assert!(body(JSON, sized(BODY_MAX)).await.is_ok());
        assert!(matches!(body(JSON, sized(BODY_MAX + 1)).await, Err(Problem::TooLarge { .. })));
        let pieces = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>("a".repeat(1 << 20)));
        assert!(matches!(body(JSON, Body::from_stream(pieces)).await, Err(Problem::TooLarge { .. })));
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_a_timeout() {
        let pieces = futures_util::stream::iter([Ok("{"), Err(std::io::Error::other("gone"))]);
        assert!(matches!(body(JSON, Body::from_stream(pieces)).await, Err(Problem::Timeout)));
    }
}
