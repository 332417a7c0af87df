//! GitHub, as far as it delivers events: payloads with the fields of real ones, signed over their bytes.

use bus::{Nats, kv};
use contract::buckets::{Hook, Hooks};
use domain::ids::{HookId, OrgId};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::api::{Answer, Api};

/// A hook of an organization, and who delivers to it.
#[derive(Debug, Clone)]
pub struct Github {
    api: Api,
    pub hook: HookId,
    pub secret: String,
}

impl Github {
    /// Our own App is `our-app[bot]`.
    pub async fn connect(operator: &Nats, api: &Api, org: OrgId) -> Self {
        let (hook, secret) = (HookId::from_uuid(crate::fresh()), "the secret".to_owned());
        let row = Hook {
            id: hook,
            org,
            secrets: vec![secret.clone()],
            app: Some("our-app[bot]".into()),
            created_at: crate::now(),
        };
        kv::overwrite::<Hooks>(operator, &hook, &row).await.expect("a hook");
        Self { api: api.clone(), hook, secret }
    }

    /// Delivers an event under a fresh delivery id; it is accepted.
    pub async fn tell(&self, event: &str, payload: &Value) {
        let delivery = crate::fresh().to_string();
        let answer =
            self.deliver(event, &delivery, payload.to_string().into_bytes(), JSON, &self.secret).await;
        assert_eq!(answer.status, 202, "{answer:?}");
    }

    pub async fn deliver(
        &self,
        event: &str,
        delivery: &str,
        body: Vec<u8>,
        content_type: &str,
        secret: &str,
    ) -> Answer {
        let signed = signature(secret, &body);
        let request = self.request(event, delivery, content_type).header("x-hub-signature-256", signed);
        answered(request.body(body)).await
    }

    /// Signed with what is not taken any more.
    pub async fn unsigned(&self, event: &str, body: Vec<u8>) -> Answer {
        let request = self.request(event, "unsigned", JSON).header("x-hub-signature", "sha1=00");
        answered(request.body(body)).await
    }

    fn request(&self, event: &str, delivery: &str, content_type: &str) -> RequestBuilder {
        self.api
            .request(Method::POST, &format!("/hooks/github/{}", self.hook))
            .header("content-type", content_type)
            .header("x-github-event", event)
            .header("x-github-delivery", delivery)
    }
}

async fn answered(request: RequestBuilder) -> Answer {
    let answer = request.send().await.expect("an answer");
    let status = answer.status();
    let body = answer.bytes().await.expect("a body");
    Answer { status, body: serde_json::from_slice(&body).unwrap_or_default() }
}

pub const JSON: &str = "application/json";

pub fn signature(secret: &str, body: &[u8]) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length");
    let bytes = mac.chain_update(body).finalize().into_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={hex}")
}

// === payloads ===

pub fn comment(repo: &str, number: u64, text: &str) -> Value {
    json!({
        "action": "created",
        "repository": { "full_name": repo },
        "sender": { "login": "mallory" },
        "issue": { "number": number, "title": "Mend it", "pull_request": { "url": "https://api.github.com/x" } },
        "comment": { "body": text, "user": { "login": "mallory" }, "author_association": "NONE",
            "html_url": format!("https://github.com/{repo}/pull/{number}#issuecomment-1") },
    })
}

/// An event of the pull request itself.
pub fn pull(repo: &str, number: u64, action: &str, commit: &str) -> Value {
    json!({
        "action": action,
        "number": number,
        "repository": { "full_name": repo },
        "sender": { "login": "someone" },
        "pull_request": { "number": number, "title": "Mend it", "merged": action == "closed",
            "head": { "sha": commit }, "html_url": format!("https://github.com/{repo}/pull/{number}") },
    })
}

/// A check suite of a fork's commit: GitHub names no pull request.
pub fn check_suite(repo: &str, commit: &str) -> Value {
    json!({
        "action": "completed",
        "repository": { "full_name": repo },
        "sender": { "login": "someone" },
        "check_suite": { "head_sha": commit, "conclusion": "failure", "app": { "name": "CI" }, "pull_requests": [] },
    })
}
