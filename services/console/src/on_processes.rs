//! Single processes, and the fleet's list for operators.

use api::{Caller, Explanation, FleetFilter, FleetProcess, HistoryStep, Ids, List, Params, Problem};
use axum::Json;
use axum::extract::State;
use bus::Port;
use contract::Subject;
use contract::buckets::{Fleet, FleetKey, Role, filter};
use contract::topology::PROCESS;
use domain::ids::ProcessId;
use domain::process::{ConversationKey, PublicProcess, Step};
use reads::{conversation_of, decoded, history, rows};

use crate::Console;

/// `GET /v1/processes/{process_id}`
pub(crate) async fn one(
    State(console): State<Console>,
    caller: Caller,
    Ids(process): Ids<ProcessId>,
) -> Result<Json<PublicProcess>, Problem> {
    let mut process = console.last_step(&caller, process).await?.1.state.public();
    console.queues.tell([&mut process]).await?;
    Ok(Json(process))
}

/// `GET /v1/processes/{process_id}/history`
pub(crate) async fn steps(
    State(console): State<Console>,
    caller: Caller,
    Ids(process): Ids<ProcessId>,
) -> Result<Json<List<HistoryStep>>, Problem> {
    let (key, _) = console.last_step(&caller, process).await?;
    let items = history(&console.nats, key, process).await?;
    Ok(Json(List { items, next_cursor: None }))
}

/// `GET /v1/processes/{process_id}/explain`
pub(crate) async fn explain(
    State(console): State<Console>,
    caller: Caller,
    Ids(process): Ids<ProcessId>,
) -> Result<Json<Explanation>, Problem> {
    let (_, step) = console.last_step(&caller, process).await?;
    let mut process = step.state.public();
    console.queues.tell([&mut process]).await?;
    Ok(Json(Explanation::new(process, step.at)))
}

impl Console {
    /// The last step of a process whose agent the caller sees.
    async fn last_step(
        &self,
        caller: &Caller,
        process: ProcessId,
    ) -> Result<(ConversationKey, Step), Problem> {
        let none = Problem::not_found("process");
        let key = conversation_of(&self.nats, &FleetKey { org: caller.org, process }).await?;
        let key = key.ok_or(none.clone())?;
        let log = Subject::Process(key, process).to_string();
        let last = self.nats.last(PROCESS, &log).await.map_err(|error| Problem::unreachable(&error))?;
        let step = decoded::<Step>(&last.ok_or(none.clone())?)?;
        match self.access.agent_or_deleted(caller, step.state.agent).await {
            Ok(_) => Ok((key, step)),
            Err(Problem::NotFound { .. }) => Err(none),
            Err(problem) => Err(problem),
        }
    }
}

/// `GET /fleet/processes`
pub(crate) async fn fleet(
    State(console): State<Console>,
    caller: Caller,
    Params(wanted): Params<FleetFilter>,
) -> Result<Json<List<FleetProcess>>, Problem> {
    caller.needs(Role::Operator)?;
    let mut rows = rows::<Fleet>(&console.nats, &filter::of_org(caller.org)).await?;
    console.queues.tell(rows.iter_mut().map(|row| &mut row.process)).await?;
    wanted.page(rows).map(Json)
}
