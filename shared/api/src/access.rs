//! Who asks, and what they may see. The organization always comes from the key, never from the request; what belongs to
//! another one does not exist for the caller.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use contract::buckets::{Access as AgentAccess, Agent, AgentKey, Key, Role, SecretHash};
use domain::ids::{AgentId, ConversationId, KeyId, OrgId, UserId};
use domain::process::ConversationKey;
use service::clock::Clock;

use crate::problem::Problem;

/// A key that was removed is refused after this long at the latest.
const KEY_TRUSTED_FOR: Duration = Duration::from_secs(5);

/// Keys remembered. All are forgotten when it is full: one more read each.
const KEYS_MAX: usize = 4_096;

/// Conversations whose agent is remembered; it never changes.
const CONVERSATIONS_MAX: usize = 65_536;

/// What access is decided on, from the bus. A problem is answered as it is.
#[async_trait]
pub trait Directory: fmt::Debug + Send + Sync {
    async fn key(&self, secret: &SecretHash) -> Result<Option<Key>, Problem>;

    async fn agent(&self, key: AgentKey) -> Result<Option<Agent>, Problem>;

    /// Whose conversation it is; `None` where nothing was ever said in it.
    async fn agent_of(&self, key: ConversationKey) -> Result<Option<AgentId>, Problem>;
}

/// Decides who may see what; cheap to clone.
#[derive(Debug, Clone)]
pub struct Access {
    directory: Arc<dyn Directory>,
    clock: Arc<dyn Clock>,
    /// Each with when it was read. A key that is not known is never remembered.
    keys: Remembered<SecretHash, (Key, Duration)>,
    conversations: Remembered<ConversationKey, AgentId>,
}

/// The owner of the key that came with the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub key: KeyId,
    pub org: OrgId,
    pub user: UserId,
    pub role: Role,
}

/// A map that forgets everything when it is full.
#[derive(Debug)]
struct Remembered<K, V> {
    entries: Arc<Mutex<HashMap<K, V>>>,
    max: usize,
}

// === impl Access ===

impl Access {
    pub fn new(directory: Arc<dyn Directory>, clock: Arc<dyn Clock>) -> Self {
        Self {
            directory,
            clock,
            keys: Remembered::new(KEYS_MAX),
            conversations: Remembered::new(CONVERSATIONS_MAX),
        }
    }

    async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let hash = SecretHash::of(secret(headers).ok_or(Problem::Unauthorized)?);
        let now = self.clock.monotonic();
        let remembered = self.keys.get(&hash).filter(|(_, read)| now.saturating_sub(*read) < KEY_TRUSTED_FOR);
        if let Some((key, _)) = remembered {
            return Ok(Caller::of(&key));
        }
        let key = self.directory.key(&hash).await?.ok_or(Problem::Unauthorized)?;
        let caller = Caller::of(&key);
        self.keys.insert(hash, (key, now));
        Ok(caller)
    }

    /// An agent that the caller may see, deleted ones included: their conversations can still be read.
    pub async fn agent_or_deleted(&self, caller: &Caller, agent: AgentId) -> Result<Agent, Problem> {
        let found = self.directory.agent(AgentKey { org: caller.org, agent }).await?;
        found.filter(|agent| caller.sees(agent)).ok_or(Problem::not_found("agent"))
    }

    /// An agent that the caller may use.
    pub async fn agent(&self, caller: &Caller, agent: AgentId) -> Result<Agent, Problem> {
        let found = self.agent_or_deleted(caller, agent).await?;
        if found.deleted_at.is_some() { Err(Problem::not_found("agent")) } else { Ok(found) }
    }

    /// A conversation of the agent, which the caller was found to see.
    pub async fn conversation(
        &self,
        agent: &Agent,
        conversation: ConversationId,
    ) -> Result<ConversationKey, Problem> {
        let key = ConversationKey { org: agent.org, conversation };
        let whose = match self.conversations.get(&key) {
            Some(whose) => Some(whose),
            None => {
                self.directory.agent_of(key).await?.inspect(|whose| self.conversations.insert(key, *whose))
            }
        };
        match whose {
            Some(whose) if whose == agent.id => Ok(key),
            _ => Err(Problem::not_found("conversation")),
        }
    }
}

fn secret(headers: &HeaderMap) -> Option<&str> {
    let value = |name: &str| headers.get(name)?.to_str().ok();
    let bearer = || {
        let (scheme, secret) = value(header::AUTHORIZATION.as_str())?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(secret)
    };
    value("x-api-key").or_else(bearer).map(str::trim).filter(|secret| !secret.is_empty())
}

// === impl Caller ===

impl Caller {
    fn of(key: &Key) -> Self {
        Self { key: key.id, org: key.org, user: key.user, role: key.role }
    }

    pub fn needs(&self, role: Role) -> Result<(), Problem> {
        if self.role >= role { Ok(()) } else { Err(Problem::RoleMissing { needs: role, has: self.role }) }
    }

    pub fn sees(&self, agent: &Agent) -> bool {
        agent.org == self.org && (agent.access == AgentAccess::Org || self.owns(agent))
    }

    /// Whether the caller may change it.
    pub fn owns(&self, agent: &Agent) -> bool {
        agent.created_by == self.user || self.role >= Role::Admin
    }
}

impl<S> FromRequestParts<S> for Caller
where
    Access: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Access::from_ref(state).caller(&parts.headers).await
    }
}

// === impl Remembered ===

impl<K: Hash + Eq, V: Clone> Remembered<K, V> {
    fn new(max: usize) -> Self {
        Self { entries: Arc::default(), max }
    }

    fn get(&self, key: &K) -> Option<V> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn insert(&self, key: K, value: V) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.max {
            entries.clear();
        }
        entries.insert(key, value);
    }
}

impl<K, V> Clone for Remembered<K, V> {
    fn clone(&self) -> Self {
        Self { entries: Arc::clone(&self.entries), max: self.max }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::http::HeaderValue;
    use contract::buckets::PermissionMode;
    use domain::Timestamp;
    use domain::process::Harness;
    use service::clock::ManualClock;
    use uuid::Uuid;

    use super::*;

    const SECRET: &str = "s3cret";

    fn org(n: u128) -> OrgId {
        OrgId::from_uuid(Uuid::from_u128(n))
    }

    fn user(n: u128) -> UserId {
        UserId::from_uuid(Uuid::from_u128(n))
    }

    fn agent_id(n: u128) -> AgentId {
        AgentId::from_uuid(Uuid::from_u128(n))
    }

    fn caller(org_n: u128, user_n: u128, role: Role) -> Caller {
        Caller { key: KeyId::from_uuid(Uuid::from_u128(9)), org: org(org_n), user: user(user_n), role }
    }

    fn agent(access: AgentAccess, deleted: bool) -> Agent {
        Agent {
            id: agent_id(1),
            org: org(1),
            name: "a".into(),
            description: String::new(),
            instructions: String::new(),
            harness: Harness::ClaudeCode,
            model: None,
            permission_mode: PermissionMode::Full,
            gated_commands: Vec::new(),
            access,
            created_by: user(1),
            created_at: Timestamp::EPOCH,
            updated_at: Timestamp::EPOCH,
            deleted_at: deleted.then_some(Timestamp::EPOCH),
        }
    }

    #[derive(Debug)]
    struct Fixed {
        agent: Agent,
        key_exists: AtomicBool,
    }

    #[async_trait]
    impl Directory for Fixed {
        async fn key(&self, secret: &SecretHash) -> Result<Option<Key>, Problem> {
            let known = self.key_exists.load(Ordering::Relaxed) && *secret == SecretHash::of(SECRET);
            Ok(known.then(|| Key {
                id: KeyId::from_uuid(Uuid::from_u128(9)),
                org: org(1),
                user: user(1),
                role: Role::Member,
                created_at: Timestamp::EPOCH,
            }))
        }

        async fn agent(&self, key: AgentKey) -> Result<Option<Agent>, Problem> {
            let here = key == AgentKey { org: self.agent.org, agent: self.agent.id };
            Ok(here.then(|| self.agent.clone()))
        }

        async fn agent_of(&self, key: ConversationKey) -> Result<Option<AgentId>, Problem> {
            let known = key.conversation == ConversationId::from_uuid(Uuid::from_u128(7));
            Ok(known.then(|| agent_id(1)))
        }
    }

    fn access(agent: Agent) -> (Access, Arc<Fixed>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp::EPOCH));
        let directory = Arc::new(Fixed { agent, key_exists: AtomicBool::new(true) });
        (Access::new(directory.clone(), clock.clone()), directory, clock)
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[tokio::test]
    async fn a_key_is_taken_from_either_header() {
        let (access, ..) = access(agent(AgentAccess::Org, false));
        for good in [
            &[("x-api-key", SECRET)][..],
            &[("authorization", "Bearer s3cret")],
            &[("authorization", "bearer  s3cret ")],
            &[("x-api-key", SECRET), ("authorization", "Basic xyz")],
        ] {
            assert_eq!(access.caller(&headers(good)).await.unwrap().user, user(1), "{good:?}");
        }
        for bad in [
            &[][..],
            &[("x-api-key", "")],
            &[("x-api-key", "other")],
            &[("authorization", "s3cret")],
            &[("authorization", "Basic s3cret")],
            &[("x-api-key", "s3cret\t1")],
        ] {
            assert_eq!(access.caller(&headers(bad)).await, Err(Problem::Unauthorized), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn a_removed_key_is_refused_once_it_is_no_longer_trusted() {
        let (access, directory, clock) = access(agent(AgentAccess::Org, false));
        let headers = headers(&[("x-api-key", SECRET)]);
        assert!(access.caller(&headers).await.is_ok());
        directory.key_exists.store(false, Ordering::Relaxed);
        clock.advance(KEY_TRUSTED_FOR - Duration::from_millis(1));
        assert!(access.caller(&headers).await.is_ok());
        clock.advance(Duration::from_millis(1));
        assert_eq!(access.caller(&headers).await, Err(Problem::Unauthorized));
    }

    #[tokio::test]
    async fn what_the_caller_may_not_see_does_not_exist() {
        let (maker, other) = (caller(1, 1, Role::Member), caller(1, 2, Role::Operator));
        let (admin, foreign) = (caller(1, 3, Role::Admin), caller(2, 1, Role::Admin));
        let none = Err(Problem::not_found("agent"));
        for (visibility, seen_by_other) in [(AgentAccess::Org, true), (AgentAccess::Private, false)] {
            let agent = agent(visibility, false);
            let (access, ..) = access(agent.clone());
            assert_eq!(access.agent(&maker, agent.id).await, Ok(agent.clone()));
            assert_eq!(access.agent(&admin, agent.id).await, Ok(agent.clone()));
            assert_eq!(access.agent(&foreign, agent.id).await, none);
            assert_eq!(access.agent(&other, agent.id).await.is_ok(), seen_by_other);
            assert!(!other.owns(&agent) && maker.owns(&agent) && admin.owns(&agent));
        }
    }

    #[tokio::test]
    async fn a_deleted_agent_can_be_looked_back_at_and_not_used() {
        let (access, ..) = access(agent(AgentAccess::Org, true));
        let maker = caller(1, 1, Role::Member);
        assert!(access.agent_or_deleted(&maker, agent_id(1)).await.is_ok());
        assert_eq!(access.agent(&maker, agent_id(1)).await, Err(Problem::not_found("agent")));
    }

    #[tokio::test]
    async fn a_conversation_is_found_under_its_own_agent_only() {
        let (access, ..) = access(agent(AgentAccess::Org, false));
        let (mine, mut others) = (agent(AgentAccess::Org, false), agent(AgentAccess::Org, false));
        others.id = agent_id(2);
        let conversation = |n| ConversationId::from_uuid(Uuid::from_u128(n));
        assert_eq!(access.conversation(&mine, conversation(7)).await.unwrap().conversation, conversation(7));
        let none = Err(Problem::not_found("conversation"));
        assert_eq!(access.conversation(&others, conversation(7)).await, none);
        assert_eq!(access.conversation(&mine, conversation(8)).await, none);
    }

    #[test]
    fn a_later_role_may_all_that_an_earlier_one_may() {
        assert!(caller(1, 1, Role::Admin).needs(Role::Operator).is_ok());
        let missing = Problem::RoleMissing { needs: Role::Operator, has: Role::Member };
        assert_eq!(caller(1, 1, Role::Member).needs(Role::Operator), Err(missing));
    }
}
