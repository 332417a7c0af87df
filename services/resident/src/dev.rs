//! `resident dev`: everything on one machine, with a broker of its own, a key, an agent, and a demo model where no
//! provider is set.

use bus::Nats;
use bus::kv;
use contract::buckets::{
    Access, Agent, AgentKey, Agents, Key, Keys, PermissionMode, Role as KeyRole, SecretHash,
};
use domain::ids::{AgentId, KeyId, OrgId, UserId};
use domain::process::Harness;
use executor::Provider;
use scripted_model::{Script, ScriptedModel};
use secrecy::ExposeSecret;
use service::config::{Settings, Url};
use service::health::Condition;
use tokio::net::TcpListener;

use crate::broker;
use crate::data_dir::{self, DataDir, Installation};
use crate::failure::Failure;
use crate::serve::{self, Role, Roles};
use crate::settings::{BrokerConfig, DataConfig};

/// The agent that is there from the first start.
const AGENT_NAME: &str = "Builder";
const AGENT_INSTRUCTIONS: &str = "You are a careful software engineer. Work in your working tree, keep the person \
                                  informed with short notes, and finish when the task is done.";

/// A development installation that runs.
#[derive(Debug)]
pub(crate) struct Dev {
    pub(crate) roles: Roles,
    pub(crate) installation: Installation,
    pub(crate) nats_url: String,
    pub(crate) data_dir: DataDir,
    /// Whether the demo model answers.
    pub(crate) demo: bool,
    /// Why no task can run yet, with the command that mends it.
    pub(crate) unable: Option<String>,
    server: Option<bus::broker::Server>,
    _model: Option<ScriptedModel>,
}

/// Starts everything and returns when it is ready, or when only the sandbox is missing.
pub(crate) async fn start(settings: &Settings) -> Result<Dev, Failure> {
    let data = settings.section::<DataConfig>()?;
    let data_dir = DataDir::take(&data.dir)?;
    let listener = serve::listener(settings).await?;
    let runtime = serve::runtime(settings)?;
    runtime.shutdown.on_signals()?;
    let config = settings.section::<BrokerConfig>()?;
    let server = match &config.url {
        Some(_) => None,
        None => Some(broker::start_child(settings).await?),
    };
    let nats_url = server.as_ref().map_or_else(|| broker::url(&config), |server| server.url().to_owned());
    let operator = broker::provision(settings, &nats_url).await?;
    let installation = settle(&operator, data_dir::installation(data_dir.path())).await?;
    let (provider, model) = match serve::provider(settings)? {
        Some(provider) => (provider, None),
        None => demo_model().await?,
    };
    let demo = model.is_some();
    let mut roles = serve::start(settings, &Role::ALL, &nats_url, listener, Some(provider), runtime).await?;
    let unable = wait_ready(&mut roles).await?;
    let installation =
        Installation { url: Some(roles.url.clone()), nats_url: Some(nats_url.clone()), ..installation };
    data_dir.remember(&installation)?;
    Ok(Dev { roles, installation, nats_url, data_dir, demo, unable, server, _model: model })
}

/// A missing sandbox is no reason not to start: processes park and say what mends it.
async fn wait_ready(roles: &mut Roles) -> Result<Option<String>, Failure> {
    let health = roles.runtime.health.clone();
    let started = health.when(|checks| {
        let others = checks.iter().filter(|(name, _)| **name != executor::SANDBOX_CHECK);
        let ready = others.into_iter().all(|(_, condition)| *condition == Condition::Ready);
        match checks.get(executor::SANDBOX_CHECK) {
            Some(Condition::Ready) if ready => Some(None),
            Some(Condition::Failed(unable)) if ready => Some(Some(unable.clone())),
            _ => None,
        }
    });
    roles.while_running(started).await
}

async fn demo_model() -> Result<(Provider, Option<ScriptedModel>), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Failure::Loopback)?;
    let model = ScriptedModel::start(listener, Script::demo()).map_err(Failure::DemoModel)?;
    let base_url: Url = model.url().parse().map_err(|_| Failure::Strange(model.url()))?;
    Ok((Provider { base_url, api_key: None }, Some(model)))
}

/// The organization, the person, the key and the agent of this installation; made at its first start.
async fn settle(operator: &Nats, known: Option<Installation>) -> Result<Installation, Failure> {
    let installation = match known {
        Some(known) => known,
        None => Installation {
            org: OrgId::from_uuid(service::fresh::uuid()),
            user: UserId::from_uuid(service::fresh::uuid()),
            agent: AgentId::from_uuid(service::fresh::uuid()),
            api_key: format!("res_{}", service::fresh::token()?.expose_secret()),
            url: None,
            nats_url: None,
        },
    };
    let Installation { org, user, agent, api_key, .. } = &installation;
    add_key(operator, *org, *user, KeyRole::Admin, api_key).await?;
    let name = AgentKey { org: *org, agent: *agent };
    let present = kv::get::<Agents>(operator, &name).await;
    if !matches!(present, Ok(kv::Versioned { value: Some(_), .. })) {
        let builder = default_agent(*org, *user, *agent);
        kv::overwrite::<Agents>(operator, &name, &builder).await.map_err(Failure::Agent)?;
    }
    Ok(installation)
}

/// Stores a key under the hash of its secret.
pub(crate) async fn add_key(
    operator: &Nats,
    org: OrgId,
    user: UserId,
    role: KeyRole,
    secret: &str,
) -> Result<KeyId, Failure> {
    let id = KeyId::from_uuid(service::fresh::uuid());
    let key = Key { id, org, user, role, created_at: crate::commands::now() };
    kv::overwrite::<Keys>(operator, &SecretHash::of(secret), &key).await.map_err(Failure::Key)?;
    Ok(id)
}

fn default_agent(org: OrgId, user: UserId, id: AgentId) -> Agent {
    let now = crate::commands::now();
    Agent {
        id,
        org,
        name: AGENT_NAME.to_owned(),
        description: "Writes and changes software.".to_owned(),
        instructions: AGENT_INSTRUCTIONS.to_owned(),
        harness: Harness::ClaudeCode,
        model: None,
        permission_mode: PermissionMode::Full,
        gated_commands: Vec::new(),
        access: Access::Org,
        created_by: user,
        created_at: now,
        updated_at: now,
        deleted_at: None,
    }
}

// === impl Dev ===

impl Dev {
    /// Works until it is asked to stop or something it needs ends; the broker goes last.
    pub(crate) async fn ended(self) -> Result<(), Failure> {
        let Self { roles, data_dir, mut server, .. } = self;
        let shutdown = roles.runtime.shutdown.clone();
        let log = data_dir.path().join("broker/nats-server.log");
        let mut running = Box::pin(roles.ended());
        let result = match &mut server {
            None => running.await,
            Some(child) => tokio::select! {
                result = &mut running => result,
                status = child.ended() => {
                    tracing::error!(status, "nats-server ended; the program stops");
                    shutdown.end();
                    let _ = running.await;
                    return Err(Failure::BrokerEnded { status, log });
                }
            },
        };
        if let Some(server) = server {
            server.stop().await;
        }
        result
    }
}
