//! Agents: made by members, changed and deleted by who made them and by admins. A deleted one keeps its row, so that its
//! conversations can still be read.

use std::error::Error;

use api::{AgentBody, AgentView, Caller, Ids, JsonBody, Problem};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse};
use bus::kv::{self, Revision};
use bus::{BusError, Outgoing, Port};
use contract::Subject;
use contract::buckets::{Agent, AgentKey, Agents};
use contract::messages::audit::{AuditEntry, Audited};
use contract::subjects::AuditOf;
use domain::ids::AgentId;
use reads::row_problem;
use service::fresh;

use crate::Ingress;
use crate::accept::not_stored;

/// Changes of one agent at the same instant: every one that loses is another's success.
const ATTEMPTS_MAX: usize = 8;

/// The change has happened; its line in the audit is worth a few tries.
const AUDIT_TRIES_MAX: usize = 3;

/// `POST /v1/agents`
pub(crate) async fn create(
    State(ingress): State<Ingress>,
    caller: Caller,
    JsonBody(body): JsonBody<AgentBody>,
) -> Result<impl IntoResponse, Problem> {
    let id = AgentId::from_uuid(fresh::uuid());
    let agent = body.create(id, &caller, ingress.runtime.clock.now())?;
    let revision = ingress.put(&agent, Revision(0)).await.map_err(|error| not_stored(&error))?;
    ingress.audit(&caller, &agent, Audited::AgentCreated { agent: id }, revision).await;
    let location = HeaderValue::try_from(format!("/v1/agents/{id}")).ok();
    let headers = AppendHeaders(location.map(|location| (header::LOCATION, location)));
    Ok((StatusCode::CREATED, headers, Json(AgentView::from(agent))))
}

/// `PATCH /v1/agents/{agent_id}`
pub(crate) async fn change(
    State(ingress): State<Ingress>,
    caller: Caller,
    Ids(id): Ids<AgentId>,
    JsonBody(body): JsonBody<AgentBody>,
) -> Result<Json<AgentView>, Problem> {
    let now = ingress.runtime.clock.now();
    let changed =
        ingress.replace(&caller, id, Audited::AgentChanged { agent: id }, |agent| body.change(agent, now));
    changed.await.map(|agent| Json(AgentView::from(agent)))
}

/// `DELETE /v1/agents/{agent_id}`
pub(crate) async fn delete(
    State(ingress): State<Ingress>,
    caller: Caller,
    Ids(id): Ids<AgentId>,
) -> Result<StatusCode, Problem> {
    let now = ingress.runtime.clock.now();
    let gone = |agent: &Agent| Ok(Agent { updated_at: now, deleted_at: Some(now), ..agent.clone() });
    ingress.replace(&caller, id, Audited::AgentDeleted { agent: id }, gone).await?;
    Ok(StatusCode::NO_CONTENT)
}

// === impl Ingress ===

impl Ingress {
    async fn replace(
        &self,
        caller: &Caller,
        id: AgentId,
        what: Audited,
        change: impl Fn(&Agent) -> Result<Agent, Problem>,
    ) -> Result<Agent, Problem> {
        self.access.agent(caller, id).await?;
        let key = AgentKey { org: caller.org, agent: id };
        let mut lost = BusError::Conflict;
        for _ in 0..ATTEMPTS_MAX {
            let row = kv::get::<Agents>(&self.nats, &key).await.map_err(|error| row_problem(&error))?;
            let present = row.value.filter(|agent| agent.deleted_at.is_none());
            let agent = present.ok_or(Problem::not_found("agent"))?;
            if !caller.owns(&agent) {
                return Err(Problem::NotYours);
            }
            let changed = change(&agent)?;
            match self.put(&changed, row.revision).await {
                Ok(revision) => {
                    self.audit(caller, &changed, what, revision).await;
                    return Ok(changed);
                }
                Err(error @ BusError::Conflict) => lost = error,
                Err(error) => return Err(not_stored(&error)),
            }
        }
        Err(not_stored(&lost))
    }

    async fn put(&self, agent: &Agent, revision: Revision) -> Result<Revision, BusError> {
        let key = AgentKey { org: agent.org, agent: agent.id };
        kv::put::<Agents>(&self.nats, &key, agent, revision).await
    }

    async fn audit(&self, caller: &Caller, agent: &Agent, what: Audited, revision: Revision) {
        let entry = AuditEntry { at: agent.updated_at, by: Some(caller.user), what };
        let line = Outgoing::message(&Subject::Audit(agent.org, AuditOf::Agent), &entry)
            .with_id(format!("{}-{}", agent.id, revision.0));
        for _ in 0..AUDIT_TRIES_MAX {
            match self.nats.publish(line.clone()).await {
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn Error, "a line of the audit is not stored");
                }
            }
        }
        tracing::error!(agent = %agent.id, by = %caller.user, ?entry, "the audit lacks a line");
    }
}
