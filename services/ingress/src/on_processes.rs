//! What operators do with a process that needs attention.

use api::{Caller, FailBody, Ids, JsonBody, Problem, RetryBody, Saying};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bus::Port;
use contract::Subject;
use contract::buckets::{FleetKey, Role};
use contract::messages::record::InputKind;
use contract::topology::PROCESS;
use domain::ids::ProcessId;
use domain::process::{PublicProcess, Step};
use reads::{conversation_of, decoded};

use crate::Ingress;
use crate::accept::Place;

type Answer = Result<(StatusCode, Json<Option<PublicProcess>>), Problem>;

/// `POST /v1/processes/{process_id}/retry`
pub(crate) async fn retry(
    State(ingress): State<Ingress>,
    caller: Caller,
    Ids(process): Ids<ProcessId>,
    JsonBody(RetryBody {}): JsonBody<RetryBody>,
) -> Answer {
    ingress.operate(&caller, process, Saying::control(InputKind::Retry)).await
}

/// `POST /v1/processes/{process_id}/fail`
pub(crate) async fn fail(
    State(ingress): State<Ingress>,
    caller: Caller,
    Ids(process): Ids<ProcessId>,
    JsonBody(body): JsonBody<FailBody>,
) -> Answer {
    ingress.operate(&caller, process, body.saying()?).await
}

impl Ingress {
    /// `None` where how the process stands with it is not known yet.
    async fn operate(&self, caller: &Caller, process: ProcessId, saying: Saying) -> Answer {
        caller.needs(Role::Operator)?;
        let none = Problem::not_found("process");
        let key = conversation_of(&self.nats, &FleetKey { org: caller.org, process }).await?;
        let key = key.ok_or(none.clone())?;
        let log = Subject::Process(key, process).to_string();
        let last = self.nats.last(PROCESS, &log).await.map_err(|error| Problem::unreachable(&error))?;
        let state = decoded::<Step>(&last.ok_or(none)?)?.state;
        let agent = self.access.agent_or_deleted(caller, state.agent).await?;
        let accepted = self.accept(caller, &agent, Place::existing(key), saying).await?;
        let step = self.verdict(&accepted).await?;
        Ok((StatusCode::ACCEPTED, Json(step.map(|step| step.state.public()))))
    }
}
