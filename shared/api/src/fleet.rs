//! The fleet's list as operators read it.

use contract::buckets::FleetRow;
use domain::Timestamp;
use domain::ids::{AgentId, ConversationId, Epoch, ExecutorId, ProcessId};
use domain::process::{Harness, ParkReason, Status, Substate, Wait};
use serde::{Deserialize, Serialize};

use crate::page::{List, PageParams};
use crate::problem::Problem;

/// The states that `?state=` can name.
const STATES: [&str; 7] = ["queued", "waking", "starting", "hot_working", "hot_idle", "parked", "ended"];

/// One row of `GET /fleet/processes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FleetProcess {
    pub process_id: ProcessId,
    pub conversation_id: ConversationId,
    pub agent_id: AgentId,
    pub status: Status,
    pub state: String,
    pub substate: Option<Substate>,
    /// Since when the present state is.
    pub since: Timestamp,
    pub park_reason: Option<ParkReason>,
    /// What is booked.
    pub wait: Option<Wait>,
    /// What ends the present state, in a sentence.
    pub wake: String,
    /// How many wait before it for a slot; absent unless it is waking.
    pub waiting_before: Option<usize>,
    pub volume: Option<ExecutorId>,
    pub executor: Option<ExecutorId>,
    pub harness: Harness,
    pub harness_version: Option<String>,
    /// Both are the epoch.
    pub segment: Epoch,
    pub attempt: Epoch,
    pub created_at: Timestamp,
    pub last_update_at: Timestamp,
    pub last_update: Option<String>,
    /// Nothing is charged in this version.
    pub cost: Option<u64>,
}

/// `?state=…&executor=…&agent=…&park_reason=…&limit=…&cursor=…`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetFilter {
    pub state: Option<String>,
    pub executor: Option<String>,
    pub agent: Option<String>,
    pub park_reason: Option<String>,
    pub limit: Option<String>,
    pub cursor: Option<String>,
}

impl FleetFilter {
    /// The page of those `rows` that are asked for, the one that changed last first.
    pub fn page(self, rows: Vec<FleetRow>) -> Result<List<FleetProcess>, Problem> {
        if let Some(state) = &self.state
            && !STATES.contains(&state.as_str())
        {
            let why = format!("{state:?} is no state; {} are", STATES.join(", "));
            return Err(Problem::invalid("state", why));
        }
        let executor: Option<ExecutorId> = match &self.executor {
            Some(text) => {
                Some(text.parse().map_err(|error| Problem::invalid("executor", format!("{error}")))?)
            }
            None => None,
        };
        let agent: Option<AgentId> = match &self.agent {
            Some(text) => Some(text.parse().map_err(|error| Problem::invalid("agent", format!("{error}")))?),
            None => None,
        };
        if let Some(reason) = &self.park_reason
            && !ParkReason::NAMES.contains(&reason.as_str())
        {
            let why = format!("{reason:?} is no reason to park; {} are", ParkReason::NAMES.join(", "));
            return Err(Problem::invalid("park_reason", why));
        }
        let mut items: Vec<_> = rows.into_iter().map(FleetProcess::from).collect();
        items.retain(|row| {
            self.state.as_ref().is_none_or(|state| *state == row.state)
                && executor.is_none_or(|executor| row.executor == Some(executor))
                && agent.is_none_or(|agent| row.agent_id == agent)
                && self.park_reason.as_ref().is_none_or(|wanted| {
                    row.park_reason.as_ref().is_some_and(|reason| reason.name() == wanted)
                })
        });
        let page = PageParams { limit: self.limit, cursor: self.cursor };
        page.page(items, |row| (row.last_update_at.as_millis(), row.process_id.to_string()))
    }
}

impl From<FleetRow> for FleetProcess {
    fn from(row: FleetRow) -> Self {
        let process = row.process;
        Self {
            process_id: process.id,
            conversation_id: process.conversation_id,
            agent_id: process.agent_id,
            status: process.status,
            state: process.state,
            substate: process.substate,
            since: process.since,
            park_reason: process.park_reason,
            wait: process.wait,
            wake: process.next,
            waiting_before: process.waiting_before,
            volume: process.volume,
            executor: process.executor,
            harness: process.harness,
            harness_version: process.harness_version,
            segment: process.epoch,
            attempt: process.epoch,
            created_at: process.started_at,
            last_update_at: row.changed_at,
            last_update: process.last_update.map(|note| note.text),
            cost: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::process::Stage;

    use super::*;
    use crate::testing::{at, hot, started};

    fn rows() -> Vec<FleetRow> {
        let states = [started(3), hot(5, Stage::Working), hot(7, Stage::Idle)];
        let row = |(n, state): (u64, &domain::process::State)| FleetRow {
            step: n,
            changed_at: at(n),
            process: state.public(),
        };
        (0..).zip(&states).map(row).collect()
    }

    #[test]
    fn a_filter_keeps_what_it_names() {
        let page = |state: Option<&str>, executor: Option<&str>| {
            let filter = FleetFilter {
                state: state.map(Into::into),
                executor: executor.map(Into::into),
                ..FleetFilter::default()
            };
            filter.page(rows()).map(|list| list.items.into_iter().map(|row| row.state).collect::<Vec<_>>())
        };
        assert_eq!(page(None, None).unwrap(), ["hot_idle", "hot_working", "queued"]);
        assert_eq!(page(Some("queued"), None).unwrap(), ["queued"]);
        assert_eq!(page(Some("hot_idle"), Some("exe_0")).unwrap(), ["hot_idle"]);
        assert_eq!(page(None, Some("exe_1")).unwrap(), [""; 0]);
        let of_agent = |agent: &str, park_reason: Option<&str>| {
            let filter = FleetFilter {
                agent: Some(agent.into()),
                park_reason: park_reason.map(Into::into),
                ..FleetFilter::default()
            };
            filter.page(rows()).map(|list| list.items.len())
        };
        let agent = crate::testing::agent_id().to_string();
        assert_eq!(of_agent(&agent, None).unwrap(), 3);
        assert_eq!(of_agent(&agent, Some("wait_time")).unwrap(), 0);
        assert!(
            matches!(of_agent(&agent, Some("tired")), Err(Problem::Invalid { field, .. }) if field == "park_reason")
        );
        assert!(matches!(of_agent("7", None), Err(Problem::Invalid { field, .. }) if field == "agent"));
        for (state, executor, field) in [(Some("asleep"), None, "state"), (None, Some("0"), "executor")] {
            assert!(
                matches!(page(state, executor), Err(Problem::Invalid { field: found, .. }) if found == field)
            );
        }
    }
}
