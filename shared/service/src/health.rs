//! Whether the program lives, whether it can do its work, and its numbers, over HTTP. What makes a role ready is the
//! role's own knowledge; it says so through its checks.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::shutdown::Shutdown;

/// All checks of one program. Clones share them.
#[derive(Debug, Clone)]
pub struct Health {
    checks: Arc<watch::Sender<BTreeMap<&'static str, Condition>>>,
    shutdown: Shutdown,
}

/// The hand of the part that a check is about.
#[derive(Debug, Clone)]
pub struct Check {
    name: &'static str,
    health: Health,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Starting,
    Ready,
    /// Why, and what to do about it.
    Failed(String),
}

/// Why the program is not ready: the check's name and a sentence.
type Reason = (&'static str, String);

// === impl Health ===

impl Health {
    /// A program that drains is not ready, whatever its checks say.
    pub fn new(shutdown: Shutdown) -> Self {
        Self { checks: Arc::default(), shutdown }
    }

    /// A new check, which is starting. All are made before the first request is served.
    pub fn check(&self, name: &'static str) -> Check {
        let check = Check { name, health: self.clone() };
        check.set(Condition::Starting);
        check
    }

    /// Resolves when every check is ready.
    pub async fn ready(&self) {
        self.when(|checks| checks.values().all(|condition| *condition == Condition::Ready).then_some(()))
            .await;
    }

    /// Resolves with what `decide` makes of the checks, as soon as it makes anything of them.
    pub async fn when<T>(
        &self,
        mut decide: impl FnMut(&BTreeMap<&'static str, Condition>) -> Option<T>,
    ) -> T {
        let mut checks = self.checks.subscribe();
        loop {
            if let Some(decided) = decide(&checks.borrow_and_update()) {
                return decided;
            }
            // It fails only without a sender, and `self` holds it.
            let _ = checks.changed().await;
        }
    }

    /// `/healthz`, `/readyz` and `/metrics`.
    pub fn router(&self, metrics: Metrics) -> Router {
        Router::new()
            .route("/healthz", get(async || "the process lives\n"))
            .route("/readyz", get(readyz))
            .with_state(self.clone())
            .route("/metrics", get(async move || metrics_page(&metrics)))
    }

    fn reasons(&self) -> Vec<Reason> {
        let draining =
            self.shutdown.is_draining().then(|| ("shutdown", "the program drains; ask another".to_owned()));
        let checks = self.checks.borrow();
        let failing = checks.iter().filter_map(|(name, condition)| match condition {
            Condition::Ready => None,
            Condition::Starting => Some((*name, "starting; ask again soon".to_owned())),
            Condition::Failed(sentence) => Some((*name, sentence.clone())),
        });
        draining.into_iter().chain(failing).collect()
    }
}

// === impl Check ===

impl Check {
    pub fn ready(&self) {
        self.set(Condition::Ready);
    }

    pub fn failed(&self, sentence: impl Into<String>) {
        self.set(Condition::Failed(sentence.into()));
    }

    /// A change is also a line in the log, once.
    pub fn set(&self, condition: Condition) {
        self.health.checks.send_if_modified(|checks| {
            let changed = checks.get(self.name) != Some(&condition);
            if changed {
                match &condition {
                    Condition::Starting => tracing::debug!(check = self.name, "starting"),
                    Condition::Ready => tracing::info!(check = self.name, "ready"),
                    Condition::Failed(sentence) => tracing::warn!(check = self.name, "not ready: {sentence}"),
                }
                checks.insert(self.name, condition);
            }
            changed
        });
    }
}

async fn readyz(State(health): State<Health>) -> Response {
    let reasons = health.reasons();
    if reasons.is_empty() {
        return "ready\n".into_response();
    }
    let detail: Vec<String> = reasons.iter().map(|(name, sentence)| format!("{name}: {sentence}")).collect();
    let checks: Vec<_> =
        reasons.iter().map(|(name, sentence)| json!({"name": name, "detail": sentence})).collect();
    let problem = json!({
        "type": "/docs/errors/not-ready",
        "title": "Not ready",
        "status": StatusCode::SERVICE_UNAVAILABLE.as_u16(),
        "detail": detail.join("; "),
        "checks": checks,
    });
    let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
    (StatusCode::SERVICE_UNAVAILABLE, content_type, problem.to_string()).into_response()
}

fn metrics_page(metrics: &Metrics) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.render()).into_response()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;
    use crate::clock::RealClock;

    async fn get(router: &Router, path: &str) -> (StatusCode, String, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let content_type = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 16).await.unwrap();
        (status, content_type, String::from_utf8(body.into()).unwrap())
    }

    #[tokio::test]
    async fn ready_is_only_what_is_ready_in_every_check_and_not_draining() {
        let shutdown = Shutdown::new(Duration::from_secs(1), Arc::new(RealClock::start()));
        let health = Health::new(shutdown.clone());
        let (bus, sandbox) = (health.check("bus"), health.check("sandbox"));
        let metrics = Metrics::install();
        metrics::counter!("things_total", "kind" => "done").increment(1);
        let router = health.router(metrics);

        sandbox.failed("user namespaces are refused; run the command in docs/operations.md");
        let (status, content_type, body) = get(&router, "/readyz").await;
        let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status.as_u16(), content_type.as_str()), (503, "application/problem+json"));
        assert_eq!(problem["status"], 503);
        assert_eq!(problem["checks"][0], json!({"name": "bus", "detail": "starting; ask again soon"}));
        assert_eq!(
            problem["checks"][1],
            json!({"name": "sandbox", "detail": "user namespaces are refused; run the command in docs/operations.md"})
        );
        assert_eq!(get(&router, "/healthz").await.0, StatusCode::OK);
        assert!(tokio::time::timeout(Duration::from_millis(20), health.ready()).await.is_err());

        bus.ready();
        sandbox.ready();
        assert_eq!(get(&router, "/readyz").await.0, StatusCode::OK);
        tokio::time::timeout(Duration::from_secs(10), health.ready()).await.unwrap();
        let (status, content_type, body) = get(&router, "/metrics").await;
        assert_eq!((status.as_u16(), content_type.as_str()), (200, "text/plain; version=0.0.4"));
        assert!(body.contains("things_total{kind=\"done\"} 1\n"), "{body}");

        shutdown.begin();
        let (status, _, body) = get(&router, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("shutdown: the program drains"), "{body}");
    }
}
