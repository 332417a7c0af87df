//! Agents, as far as the caller may see them.

use api::{AgentView, Caller, Ids, List, PageParams, Params, Problem, StrictPageParams};
use axum::Json;
use axum::extract::State;
use contract::buckets::{Agents, filter};
use domain::ids::AgentId;
use reads::rows;

use crate::Console;

/// `GET /v1/agents`
pub(crate) async fn list(
    State(console): State<Console>,
    caller: Caller,
    Params(params): Params<StrictPageParams>,
) -> Result<Json<List<AgentView>>, Problem> {
    let mut agents = rows::<Agents>(&console.nats, &filter::of_org(caller.org)).await?;
    agents.retain(|agent| agent.deleted_at.is_none() && caller.sees(agent));
    let views = agents.into_iter().map(AgentView::from).collect();
    let place = |agent: &AgentView| (agent.created_at.as_millis(), agent.id.to_string());
    PageParams::from(params).page(views, place).map(Json)
}

/// `GET /v1/agents/{agent_id}`
pub(crate) async fn one(
    State(console): State<Console>,
    caller: Caller,
    Ids(agent): Ids<AgentId>,
) -> Result<Json<AgentView>, Problem> {
    console.access.agent(&caller, agent).await.map(|agent| Json(AgentView::from(agent)))
}
