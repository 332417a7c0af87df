//! What access is decided on.

use std::sync::Arc;

use api::{Directory, Problem};
use async_trait::async_trait;
use bus::kv;
use bus::{Nats, Port};
use contract::buckets::{Agent, AgentKey, Agents, Fleet, FleetKey, Key, Keys, SecretHash};
use contract::messages::record::InputEntry;
use contract::subjects::{Subject, filter};
use contract::topology::{PROCESS, RECORD};
use domain::ids::AgentId;
use domain::process::ConversationKey;

use crate::{decoded, row_problem};

#[derive(Debug)]
struct BusDirectory(Nats);

pub fn directory(nats: &Nats) -> Arc<dyn Directory> {
    Arc::new(BusDirectory(nats.clone()))
}

/// The conversation that a process belongs to. The fleet's row tells it at once; until it is written, the log does.
pub async fn conversation_of(nats: &Nats, name: &FleetKey) -> Result<Option<ConversationKey>, Problem> {
    let row = kv::get::<Fleet>(nats, name).await.map_err(|error| row_problem(&error))?;
    if let Some(row) = row.value {
        return Ok(Some(ConversationKey { org: name.org, conversation: row.process.conversation_id }));
    }
    let last = nats.last(PROCESS, &filter::log_of(name.org, name.process)).await;
    let last = last.map_err(|error| Problem::unreachable(&error))?;
    Ok(last.and_then(|stored| match stored.subject.parse() {
        Ok(Subject::Process(key, _)) => Some(key),
        _ => None,
    }))
}

#[async_trait]
impl Directory for BusDirectory {
    async fn key(&self, secret: &SecretHash) -> Result<Option<Key>, Problem> {
        kv::get::<Keys>(&self.0, secret).await.map(|row| row.value).map_err(|error| row_problem(&error))
    }

    async fn agent(&self, key: AgentKey) -> Result<Option<Agent>, Problem> {
        kv::get::<Agents>(&self.0, &key).await.map(|row| row.value).map_err(|error| row_problem(&error))
    }

    async fn agent_of(&self, key: ConversationKey) -> Result<Option<AgentId>, Problem> {
        let last = self.0.last(RECORD, &filter::inputs(key)).await;
        match last.map_err(|error| Problem::unreachable(&error))? {
            Some(stored) => decoded::<InputEntry>(&stored).map(|said| Some(said.agent)),
            None => Ok(None),
        }
    }
}
