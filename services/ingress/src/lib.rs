//! Ingress: the outside in, for writes. A request is checked, becomes an entry of the record, and is answered 2xx only
//! once the broker has it; what was accepted is never refused for room. Agents are kept here too.
//!
//! It decides nothing about processes: that is the steerer's, and what can be refused is answered from the log. Reads
//! are the console's; a gateway tells the two apart by the method alone.

mod accept;
mod config;
mod github;
mod on_agents;
mod on_answers;
mod on_hook;
mod on_invoke;
mod on_message;
mod on_processes;
mod on_stop;
mod verdict;

use api::Access;
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef};
use axum::routing::{patch, post};
use bus::{Fanout, Nats};
use service::Runtime;

pub use config::IngressConfig;

/// What every handler has.
#[derive(Debug, Clone)]
struct Ingress {
    nats: Nats,
    fanout: Fanout,
    access: Access,
    runtime: Runtime,
    config: IngressConfig,
}

/// Starts to follow the record and gives the routes. They are merged with those of the other HTTP roles and then
/// handed to [`api::middleware::finish`].
pub fn start(nats: Nats, runtime: Runtime, config: IngressConfig) -> Router {
    let fanout = Fanout::start(&nats, runtime.shutdown.draining_token());
    let check = runtime.health.check("ingress");
    let readable = fanout.clone();
    tokio::spawn(async move {
        readable.ready().await;
        check.ready();
    });
    let access = Access::new(reads::directory(&nats), runtime.clock.clone());
    routes().with_state(Ingress { nats, fanout, access, runtime, config })
}

fn routes() -> Router<Ingress> {
    const AGENT: &str = "/v1/agents/{agent_id}";
    let of_agent = |rest: &str| format!("{AGENT}{rest}");
    let of_conversation = |rest: &str| format!("{AGENT}/conversations/{{conversation_id}}{rest}");
    Router::new()
        .route("/v1/agents", post(on_agents::create))
        .route(AGENT, patch(on_agents::change).delete(on_agents::delete))
        .route(&of_agent("/invoke"), post(on_invoke::invoke))
        .route(&of_agent("/invoke/async"), post(on_invoke::invoke_async))
        .route(&of_agent("/invoke/stream"), post(on_invoke::invoke_stream))
        .route(&of_agent("/conversations/invoke"), post(on_invoke::invoke))
        .route(&of_agent("/conversations/invoke/stream"), post(on_invoke::invoke_stream))
        .route(&of_conversation("/messages"), post(on_message::send))
        .route(&of_conversation("/answers"), post(on_answers::answer))
        .route(
            "/hooks/github/{hook}",
            post(on_hook::github).layer(DefaultBodyLimit::max(on_hook::PAYLOAD_MAX)),
        )
        .route("/v1/processes/{process_id}/retry", post(on_processes::retry))
        .route("/v1/processes/{process_id}/fail", post(on_processes::fail))
        .route(&of_conversation("/stop"), post(on_stop::stop))
        .route(&of_conversation("/archive"), post(on_stop::archive))
}

impl FromRef<Ingress> for Access {
    fn from_ref(ingress: &Ingress) -> Self {
        ingress.access.clone()
    }
}
