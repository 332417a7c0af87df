//! Single processes, and the fleet's list for operators.

use api::{Caller, FleetFilter, FleetProcess, Ids, List, Params, Problem};
use axum::Json;
use axum::extract::State;
use bus::Port;
use contract::Subject;
use contract::buckets::{Fleet, FleetKey, Role, filter};
use contract::topology::PROCESS;
use domain::ids::ProcessId;
use domain::process::{PublicProcess, Step};
use reads::{conversation_of, decoded, rows};

use crate::Console;

/// `GET /v1/processes/{process_id}`
pub(crate) async fn one(
    State(console): State<Console>,
    caller: Caller,
    Ids(process): Ids<ProcessId>,
) -> Result<Json<PublicProcess>, Problem> {
    let none = Problem::not_found("process");
    let key = conversation_of(&console.nats, &FleetKey { org: caller.org, process }).await?;
    let log = Subject::Process(key.ok_or(none.clone())?, process).to_string();
    let last = console.nats.last(PROCESS, &log).await.map_err(|error| Problem::unreachable(&error))?;
    let state = decoded::<Step>(&last.ok_or(none.clone())?)?.state;
    match console.access.agent_or_deleted(&caller, state.agent).await {
        Ok(_) => Ok(Json(state.public())),
        Err(Problem::NotFound { .. }) => Err(none),
        Err(problem) => Err(problem),
    }
}

/// `GET /fleet/processes`
pub(crate) async fn fleet(
    State(console): State<Console>,
    caller: Caller,
    Params(wanted): Params<FleetFilter>,
) -> Result<Json<List<FleetProcess>>, Problem> {
    caller.needs(Role::Operator)?;
    let rows = rows::<Fleet>(&console.nats, &filter::of_org(caller.org)).await?;
    wanted.page(rows).map(Json)
}
