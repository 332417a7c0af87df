//! The list of an agent's conversations.

use contract::buckets::Conversation;
use domain::Timestamp;
use domain::ids::{AgentId, ConversationId, UserId};
use serde::Serialize;

use crate::page::{List, PageParams};
use crate::problem::Problem;

/// One row of `GET /v1/agents/{agent_id}/conversations`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConversationItem {
    pub id: ConversationId,
    pub agent_id: AgentId,
    pub title: String,
    pub created_by: UserId,
    pub created_at: Timestamp,
    pub archived_at: Option<Timestamp>,
}

impl ConversationItem {
    /// The page of `rows` that is asked for, the newest conversation first.
    pub fn page(rows: Vec<Conversation>, params: &PageParams) -> Result<List<Self>, Problem> {
        let items: Vec<_> = rows.into_iter().map(Self::from).collect();
        params.page(items, |item| (item.created_at.as_millis(), item.id.to_string()))
    }
}

impl From<Conversation> for ConversationItem {
    fn from(row: Conversation) -> Self {
        Self {
            id: row.id,
            agent_id: row.agent,
            title: row.title,
            created_by: row.created_by,
            created_at: row.created_at,
            archived_at: row.archived_at,
        }
    }
}
