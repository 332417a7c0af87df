//! The console: what can be read of agents, conversations, processes and the fleet, and the live streams. An open stream
//! says that somebody watches; nothing else is written here. Writes are ingress's.

mod on_agents;
mod on_conversations;
mod on_processes;
mod on_stream;
mod queue;

use std::sync::Arc;

use api::Access;
use axum::Router;
use axum::extract::FromRef;
use axum::routing::get;
use bus::{Fanout, Nats};
use service::Runtime;

use queue::Queues;

/// What every handler has.
#[derive(Debug, Clone)]
struct Console {
    nats: Nats,
    fanout: Fanout,
    access: Access,
    queues: Queues,
    runtime: Runtime,
}

/// Starts to follow the record and gives the routes. They are merged with those of the other HTTP roles and then
/// handed to [`api::middleware::finish`].
pub fn start(nats: Nats, runtime: Runtime) -> Router {
    let fanout = Fanout::start(&nats, runtime.shutdown.draining_token());
    let check = runtime.health.check("console");
    let readable = fanout.clone();
    tokio::spawn(async move {
        readable.ready().await;
        check.ready();
    });
    let access = Access::new(reads::directory(&nats), runtime.clock.clone());
    routes().with_state(Console {
        queues: Queues::new(&nats, Arc::clone(&runtime.clock)),
        nats,
        fanout,
        access,
        runtime,
    })
}

fn routes() -> Router<Console> {
    let of_conversation =
        |rest: &str| format!("/v1/agents/{{agent_id}}/conversations/{{conversation_id}}{rest}");
    Router::new()
        .route("/v1/agents", get(on_agents::list))
        .route("/v1/agents/{agent_id}", get(on_agents::one))
        .route("/v1/agents/{agent_id}/conversations", get(on_conversations::list))
        .route(&of_conversation(""), get(on_conversations::record))
        .route(&of_conversation("/run-state"), get(on_conversations::run_state))
        .route(&of_conversation("/messages/{message_id}"), get(on_conversations::receipt))
        .route(&of_conversation("/stream"), get(on_stream::open))
        .route("/v1/processes/{process_id}", get(on_processes::one))
        .route("/v1/processes/{process_id}/history", get(on_processes::steps))
        .route("/v1/processes/{process_id}/explain", get(on_processes::explain))
        .route("/fleet/processes", get(on_processes::fleet))
}

impl FromRef<Console> for Access {
    fn from_ref(console: &Console) -> Self {
        console.access.clone()
    }
}
