//! The runtime as a harness sees it through the socket: a tool server of one tool, and everything else handed on to
//! the scripted model.

use std::sync::{Arc, Mutex};

use axum::Json;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use executor::volume::LockedDir;
use scripted_model::{Script, ScriptedModel};
use serde_json::{Value, json};

/// The credential of the segments here; the model and the tool server refuse any other.
pub(crate) const TOKEN: &str = "the-segment-token";

pub(crate) struct Runtime {
    pub(crate) model: ScriptedModel,
    /// The texts that came to the tool `tell_user`.
    pub(crate) told: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone)]
struct Shared {
    client: reqwest::Client,
    model: String,
    told: Arc<Mutex<Vec<String>>>,
}

impl Runtime {
    pub(crate) async fn start(script: Script) -> Self {
        let model = ScriptedModel::start_local(script).await.unwrap();
        model.require_bearer(TOKEN);
        Self { model, told: Arc::default() }
    }

    /// Serves one sandbox's socket.
    pub(crate) fn serve(&self, dir: &LockedDir) {
        let listener = tokio::net::UnixListener::from_std(dir.listen().unwrap()).unwrap();
        let client = service::http::client().unwrap();
        let shared = Shared { client, model: self.model.url(), told: Arc::clone(&self.told) };
        let routes = Router::new().route("/mcp", post(tools)).fallback(forward).with_state(shared);
        tokio::spawn(async move { axum::serve(listener, routes).await });
    }
}

async fn tools(State(shared): State<Shared>, headers: HeaderMap, Json(call): Json<Value>) -> Response {
    if headers.get(header::AUTHORIZATION).is_none_or(|value| value != &format!("Bearer {TOKEN}")) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let tool = json!({
        "name": "tell_user",
        "description": "Tells the user something.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    });
    let result = match call["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": call["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "xpander", "version": "0"},
        }),
        Some("tools/list") => json!({"tools": [tool]}),
        Some("tools/call") => {
            let text = call["params"]["arguments"]["text"].as_str().unwrap_or_default();
            shared.told.lock().unwrap().push(text.to_owned());
            json!({"content": [{"type": "text", "text": "told"}]})
        }
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    Json(json!({"jsonrpc": "2.0", "id": call["id"], "result": result})).into_response()
}

async fn forward(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    headers.remove(header::HOST);
    let request = shared.client.request(method, format!("{}{uri}", shared.model)).headers(headers).body(body);
    match request.send().await {
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
        Ok(answer) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = answer.status();
            *response.headers_mut() = answer.headers().clone();
            *response.body_mut() = Body::from_stream(answer.bytes_stream());
            response
        }
    }
}
