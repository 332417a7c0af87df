//! Agents as clients write and read them, and what may be written.

use contract::buckets::{Access, Agent, PermissionMode};
use domain::Timestamp;
use domain::ids::{AgentId, OrgId, UserId};
use domain::process::Harness;
use serde::{Deserialize, Deserializer, Serialize};

use crate::access::Caller;
use crate::limits::{DESCRIPTION_MAX, INSTRUCTIONS_MAX, NAME_MAX};
use crate::problem::Problem;

/// What a client sets: all of it on POST (`name` is required there), what is to change on PATCH.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentBody {
    pub name: Option<String>,
    pub description: Option<String>,
    pub instructions: Option<String>,
    pub harness: Option<String>,
    /// `null` goes back to the harness's own default.
    #[serde(default, deserialize_with = "named")]
    pub model: Option<Option<String>>,
    pub permission_mode: Option<String>,
    pub gated_commands: Option<Vec<String>>,
    pub access: Option<Access>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentView {
    pub id: AgentId,
    pub organization_id: OrgId,
    pub name: String,
    pub description: String,
    pub instructions: String,
    pub harness: Harness,
    pub model: Option<String>,
    pub permission_mode: PermissionMode,
    pub gated_commands: Vec<String>,
    pub access: Access,
    pub created_by: UserId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

// === impl AgentBody ===

impl AgentBody {
    /// A new agent of the caller's.
    pub fn create(self, id: AgentId, caller: &Caller, now: Timestamp) -> Result<Agent, Problem> {
        if self.name.is_none() {
            return Err(Problem::invalid("name", "name is missing; it is required"));
        }
        let blank = Agent {
            id,
            org: caller.org,
            name: String::new(),
            description: String::new(),
            instructions: String::new(),
            harness: Harness::ClaudeCode,
            model: None,
            permission_mode: PermissionMode::Full,
            gated_commands: Vec::new(),
            access: Access::Org,
            created_by: caller.user,
            created_at: now,
            updated_at: now,
            deleted_at: None,
        };
        self.change(&blank, now)
    }

    /// The agent with what is named here.
    pub fn change(&self, agent: &Agent, now: Timestamp) -> Result<Agent, Problem> {
        let mut agent = Agent { updated_at: now, ..agent.clone() };
        if let Some(name) = &self.name {
            agent.name = within("name", name.trim(), NAME_MAX)?;
            if agent.name.is_empty() {
                return Err(Problem::invalid("name", "name is empty; give the agent one"));
            }
        }
        if let Some(description) = &self.description {
            agent.description = within("description", description, DESCRIPTION_MAX)?;
        }
        if let Some(instructions) = &self.instructions {
            if instructions.len() > INSTRUCTIONS_MAX {
                let why = format!("instructions are longer than {INSTRUCTIONS_MAX} bytes; shorten them");
                return Err(Problem::TooLarge { field: Some("instructions".into()), why });
            }
            agent.instructions.clone_from(instructions);
        }
        if self.harness.as_ref().is_some_and(|harness| harness != "claude-code") {
            return Err(Problem::invalid(
                "harness",
                "this version runs claude-code only; name that or nothing",
            ));
        }
        if let Some(model) = &self.model {
            agent.model = match model {
                Some(model) if model.trim().is_empty() => {
                    return Err(Problem::invalid(
                        "model",
                        "model is empty; name one, or null for the default",
                    ));
                }
                Some(model) => Some(within("model", model.trim(), NAME_MAX)?),
                None => None,
            };
        }
        if self.permission_mode.as_ref().is_some_and(|mode| mode != "full") {
            let why = "this version does not hold commands for approval, so full is the only permission mode";
            return Err(Problem::invalid("permission_mode", why));
        }
        if self.gated_commands.as_ref().is_some_and(|commands| !commands.is_empty()) {
            let why = "this version does not gate commands; leave the list empty rather than rely on it";
            return Err(Problem::invalid("gated_commands", why));
        }
        if let Some(access) = self.access {
            agent.access = access;
        }
        Ok(agent)
    }
}

fn within(field: &str, text: &str, max: usize) -> Result<String, Problem> {
    if text.chars().count() > max {
        return Err(Problem::invalid(field, format!("{field} is longer than {max} characters; shorten it")));
    }
    Ok(text.to_owned())
}

/// Tells a field that is `null` from one that is not there.
fn named<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

// === impl AgentView ===

impl From<Agent> for AgentView {
    fn from(agent: Agent) -> Self {
        Self {
            id: agent.id,
            organization_id: agent.org,
            name: agent.name,
            description: agent.description,
            instructions: agent.instructions,
            harness: agent.harness,
            model: agent.model,
            permission_mode: agent.permission_mode,
            gated_commands: agent.gated_commands,
            access: agent.access,
            created_by: agent.created_by,
            created_at: agent.created_at,
            updated_at: agent.updated_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::buckets::Role;
    use domain::ids::KeyId;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    fn body(body: Value) -> AgentBody {
        serde_json::from_value(body).unwrap()
    }

    fn create(value: Value) -> Result<Agent, Problem> {
        let nil = Uuid::nil();
        let caller = Caller {
            key: KeyId::from_uuid(nil),
            org: OrgId::from_uuid(nil),
            user: UserId::from_uuid(nil),
            role: Role::Member,
        };
        body(value).create(AgentId::from_uuid(nil), &caller, Timestamp::EPOCH)
    }

    #[test]
    fn a_name_is_enough() {
        let agent = create(json!({ "name": " Ann " })).unwrap();
        assert_eq!(agent.name, "Ann");
        assert_eq!(agent.access, Access::Org);
    }

    #[test]
    fn what_this_version_cannot_keep_is_not_promised() {
        for (field, value) in [
            ("harness", json!("codex")),
            ("permission_mode", json!("gated")),
            ("gated_commands", json!(["rm"])),
            ("model", json!(" ")),
            ("name", json!("  ")),
            ("name", json!("a".repeat(NAME_MAX + 1))),
            ("description", json!("a".repeat(DESCRIPTION_MAX + 1))),
        ] {
            let mut all = json!({ "name": "a" });
            all[field] = value;
            match create(all) {
                Err(Problem::Invalid { field: found, .. }) => assert_eq!(found, field),
                other => panic!("{field}: {other:?}"),
            }
        }
        assert!(matches!(create(json!({})), Err(Problem::Invalid { field, .. }) if field == "name"));
        let long = create(json!({ "name": "a", "instructions": "a".repeat(INSTRUCTIONS_MAX + 1) }));
        assert!(matches!(long, Err(Problem::TooLarge { .. })));
        let said = create(
            json!({ "name": "a", "harness": "claude-code", "permission_mode": "full", "gated_commands": [] }),
        );
        assert!(said.is_ok());
    }

    #[test]
    fn a_patch_changes_what_it_names() {
        let agent =
            create(json!({ "name": "a", "model": "m", "description": "d", "access": "private" })).unwrap();
        let later = Timestamp::EPOCH.plus(std::time::Duration::from_secs(1));
        let same = body(json!({ "description": "e" })).change(&agent, later).unwrap();
        assert_eq!(same, Agent { description: "e".into(), updated_at: later, ..agent.clone() });
        let reset = body(json!({ "model": null })).change(&agent, later).unwrap();
        assert_eq!(reset, Agent { model: None, updated_at: later, ..agent });
    }
}
