//! Runs roles in this program, each under its own user of the broker. Roles never call each other; HTTP roles share
//! one listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bus::{LogReading, Nats};
use contract::topology::{CONSOLE, INGRESS, REGISTRY, SCHEDULER, STEERER, WAKER};
use executor::{AnthropicConfig, ExecutorConfig, Provider};
use service::Runtime;
use service::clock::{Clock, RealClock};
use service::config::Settings;
use service::health::{Check, Health};
use service::http::{Limits, serve};
use service::metrics::Metrics;
use service::shutdown::Shutdown;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::broker;
use crate::failure::Failure;
use crate::programs;
use crate::settings::ServerConfig;

/// Shorter than any readiness probe's period.
const BROKER_LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Ingress,
    Steerer,
    Registry,
    Waker,
    Scheduler,
    Executor,
    Console,
}

/// The roles of a program, running.
#[derive(Debug)]
pub(crate) struct Roles {
    pub(crate) url: String,
    pub(crate) runtime: Runtime,
    /// The executor and HTTP: they drain first.
    front: JoinSet<Result<(), Failure>>,
    /// What brings their last reports into the log.
    back: JoinSet<Result<(), Failure>>,
    back_shutdown: Shutdown,
}

impl Role {
    pub(crate) const ALL: [Self; 7] = [
        Self::Ingress,
        Self::Steerer,
        Self::Registry,
        Self::Waker,
        Self::Scheduler,
        Self::Executor,
        Self::Console,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ingress => INGRESS,
            Self::Steerer => STEERER,
            Self::Registry => REGISTRY,
            Self::Waker => WAKER,
            Self::Scheduler => SCHEDULER,
            Self::Executor => "executor",
            Self::Console => CONSOLE,
        }
    }

    pub(crate) fn parse(name: &str) -> Result<Self, Failure> {
        Self::ALL
            .into_iter()
            .find(|role| role.name() == name)
            .ok_or_else(|| Failure::UnknownRole(name.to_owned()))
    }
}

/// What every program shares, from its birth.
pub(crate) fn runtime(settings: &Settings) -> Result<Runtime, Failure> {
    let clock = Arc::new(RealClock::start());
    let shutdown = Shutdown::new(settings.section::<ServerConfig>()?.grace, clock.clone());
    Ok(Runtime { clock, health: Health::new(shutdown.clone()), metrics: Metrics::install(), shutdown })
}

/// Binds the address that HTTP is served on.
pub(crate) async fn listener(settings: &Settings) -> Result<TcpListener, Failure> {
    let address = settings.section::<ServerConfig>()?.listen;
    TcpListener::bind(address).await.map_err(|source| Failure::Listen {
        address,
        origin: settings.origin("server.listen").unwrap_or_default().to_owned(),
        source,
    })
}

/// Starts the roles. `provider` is where an executor's models are.
pub(crate) async fn start(
    settings: &Settings,
    roles: &[Role],
    nats_url: &str,
    listener: TcpListener,
    provider: Option<Provider>,
    runtime: Runtime,
) -> Result<Roles, Failure> {
    let (mut front, mut back) = (JoinSet::new(), JoinSet::new());
    let grace = settings.section::<ServerConfig>()?.grace;
    let back_shutdown = Shutdown::new(grace, Arc::clone(&runtime.clock));
    let back_runtime = Runtime { shutdown: back_shutdown.clone(), ..runtime.clone() };
    let mut router = runtime.health.router(runtime.metrics.clone());
    let (broker_check, mut connected) = (runtime.health.check("broker"), Vec::new());
    // The waker and the scheduler may both read the whole log; in one program one of them reads it for both.
    let (mut log, mut log_read_by) = (LogReading::default(), None);
    for role in roles {
        if *role == Role::Executor {
            let config = settings.section::<ExecutorConfig>()?;
            let found = programs::of_executor(&config)?;
            let provider = provider.clone().ok_or(Failure::NoProvider)?;
            let nats = broker::connect(settings, nats_url, &config.id.to_string()).await?;
            connected.push(nats.clone());
            let running = executor::run(nats, runtime.clone(), config, found, provider);
            front.spawn(async move { running.await.map_err(Failure::from) });
            continue;
        }
        let nats = broker::connect(settings, nats_url, role.name()).await?;
        connected.push(nats.clone());
        match role {
            Role::Ingress => {
                router = router.merge(ingress::start(nats, runtime.clone(), settings.section()?));
            }
            Role::Console => router = router.merge(console::start(nats, runtime.clone())),
            Role::Steerer => drop(back.spawn(ended(steerer::run(nats.into(), back_runtime.clone())))),
            Role::Registry => drop(back.spawn(ended(registry::run(nats.into(), back_runtime.clone())))),
            Role::Waker => {
                log_read_by.get_or_insert_with(|| nats.clone());
                let steps = [log.follower(), log.follower()];
                back.spawn(ended(waker::run(nats.into(), back_runtime.clone(), steps)));
            }
            Role::Scheduler => {
                log_read_by.get_or_insert_with(|| nats.clone());
                let steps = [log.follower(), log.follower()];
                back.spawn(ended(scheduler::run(
                    nats.into(),
                    back_runtime.clone(),
                    settings.section()?,
                    steps,
                )));
            }
            Role::Executor => {}
        }
    }
    if let Some(nats) = log_read_by {
        log.start(&nats);
    }
    tokio::spawn(watch_broker(connected, broker_check, Arc::clone(&runtime.clock)));
    let address = listener.local_addr().map_err(|source| Failure::Listen {
        address: SocketAddr::from(([0, 0, 0, 0], 0)),
        origin: String::new(),
        source,
    })?;
    front.spawn(ended(serve(
        listener,
        api::middleware::finish(router),
        Limits::default(),
        runtime.shutdown.clone(),
    )));
    Ok(Roles { url: format!("http://{address}"), runtime, front, back, back_shutdown })
}

/// A program whose broker is away can do nothing, whatever it could do before.
async fn watch_broker(connected: Vec<Nats>, check: Check, clock: Arc<dyn Clock>) {
    loop {
        if connected.iter().all(Nats::is_connected) {
            check.ready();
        } else {
            check.failed("the broker is away, and the program connects again by itself; look at docs/operations.md, The broker is down");
        }
        clock.sleep(BROKER_LOOKED_AT_EVERY).await;
    }
}

async fn ended(role: impl Future<Output = ()>) -> Result<(), Failure> {
    role.await;
    Ok(())
}

/// Where the models of this installation are; `None` where nothing was said.
pub(crate) fn provider(settings: &Settings) -> Result<Option<Provider>, Failure> {
    let AnthropicConfig { api_key, base_url } = settings.section()?;
    let named = api_key.is_some() || settings.is_set("providers.anthropic.base_url");
    Ok(named.then_some(Provider { base_url, api_key }))
}

// === impl Roles ===

impl Roles {
    /// Returns when every role can do its work.
    pub(crate) async fn ready(&mut self) -> Result<(), Failure> {
        let health = self.runtime.health.clone();
        self.while_running(health.ready()).await
    }

    /// What `awaited` comes to, unless a role ends before.
    pub(crate) async fn while_running<T>(&mut self, awaited: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            value = awaited => Ok(value),
            Some(ended) = self.front.join_next() => Err(failure_of(ended).unwrap_or(Failure::StoppedEarly)),
            Some(ended) = self.back.join_next() => Err(failure_of(ended).unwrap_or(Failure::StoppedEarly)),
        }
    }

    /// Returns when every role has ended. One that fails takes the others with it.
    pub(crate) async fn ended(mut self) -> Result<(), Failure> {
        let mut first = None;
        let shutdown = self.runtime.shutdown.clone();
        let mut failed = |ended| {
            if let Some(failure) = failure_of(ended) {
                tracing::error!(%failure, "a role failed; the program stops");
                shutdown.begin();
                first.get_or_insert(failure);
            }
        };
        loop {
            tokio::select! {
                ended = self.front.join_next() => match ended {
                    Some(ended) => failed(ended),
                    None => break,
                },
                Some(ended) = self.back.join_next() => failed(ended),
            }
        }
        self.back_shutdown.begin();
        while let Some(ended) = self.back.join_next().await {
            failed(ended);
        }
        first.map_or(Ok(()), Err)
    }
}

fn failure_of(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Option<Failure> {
    match ended {
        Ok(result) => result.err(),
        Err(error) => Some(Failure::Strange(error.to_string())),
    }
}
