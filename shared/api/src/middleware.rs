//! What every request goes through: a span that continues the client's trace, and problems for addresses and methods
//! that nothing serves.

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use service::telemetry::{continue_from, names};
use tracing::{Instrument, field};

use crate::problem::Problem;

/// What is shown of an address in a sentence, in characters.
const PATH_SHOWN_MAX: usize = 200;

/// What answers say unless they say otherwise: they are somebody's own, and what they say they are.
const HEADERS: [(HeaderName, HeaderValue); 2] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
];

/// The routes of all HTTP roles of a program, merged, become what is served.
pub fn finish(router: Router) -> Router {
    router.fallback(no_route).method_not_allowed_fallback(not_allowed).layer(from_fn(observe))
}

async fn observe(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!(
        "http",
        otel.name = format!("{} {route}", request.method()),
        { names::HTTP_METHOD } = %request.method(),
        { names::HTTP_ROUTE } = route,
        { names::HTTP_STATUS } = field::Empty,
    );
    if let Some(traceparent) = request.headers().get(names::TRACEPARENT).and_then(|value| value.to_str().ok())
    {
        continue_from(&span, traceparent);
    }
    let method = name_of(request.method());
    let mut response = next.run(request).instrument(span.clone()).await;
    let status = response.status();
    span.record(names::HTTP_STATUS, status.as_u16());
    let status = status.as_str().to_owned();
    metrics::counter!("resident_http_requests_total", "method" => method, "route" => route, "status" => status)
        .increment(1);
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

/// The method as a label: those that nobody serves share one.
fn name_of(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

async fn no_route(uri: Uri) -> Problem {
    Problem::NoRoute { path: shown(&uri) }
}

async fn not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::MethodNotAllowed { method: method.to_string(), path: shown(&uri) }
}

fn shown(uri: &Uri) -> String {
    uri.path().chars().take(PATH_SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::StatusCode;
    use axum::routing::{get, post};
    use tower::ServiceExt;

    use super::*;

    async fn answer(method: &str, path: &str) -> Response {
        let reads = Router::new().route("/thing", get(async || "read"));
        let writes = Router::new().route("/thing", post(async || "written"));
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        finish(reads.merge(writes)).oneshot(request).await.unwrap()
    }

    #[tokio::test]
    async fn merged_routes_are_served_and_the_rest_is_a_problem() {
        for (method, path, status) in [
            ("GET", "/thing", StatusCode::OK),
            ("HEAD", "/thing", StatusCode::OK),
            ("POST", "/thing", StatusCode::OK),
            ("PUT", "/thing", StatusCode::METHOD_NOT_ALLOWED),
            ("GET", "/nothing", StatusCode::NOT_FOUND),
        ] {
            let answer = answer(method, path).await;
            assert_eq!(answer.status(), status, "{method} {path}");
            assert_eq!(answer.headers()[header::CACHE_CONTROL], "no-store");
            assert_eq!(answer.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
            let problem = answer.headers()[header::CONTENT_TYPE] == "application/problem+json";
            assert_eq!(problem, !status.is_success(), "{method} {path}");
        }
        let allowed = answer("PUT", "/thing").await.headers()[header::ALLOW].to_str().unwrap().to_owned();
        for method in ["GET", "HEAD", "POST"] {
            assert!(allowed.contains(method), "{allowed}");
        }
    }
}
