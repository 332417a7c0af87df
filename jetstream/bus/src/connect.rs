//! The connection of one user.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Event};
use contract::broker::{API_PREFIX, inbox_prefix};
use contract::topology::{OPERATOR, SERVER_VERSION_MIN};
use tokio::sync::watch;

/// A dead connection is noticed after two of these.
const PING_EVERY: Duration = Duration::from_secs(3);

/// How long a connection attempt may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// How long the broker may take to acknowledge a write or to answer a read. Its leader changes in up to eight seconds;
/// whoever waits for a person gives up sooner and says so.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Between two attempts to connect again: quick at first, so that a restarted broker is back in use at once.
const RECONNECT_FIRST: Duration = Duration::from_millis(50);
const RECONNECT_LAST: Duration = Duration::from_secs(2);

/// Messages of one core subscription that wait to be read. Deltas beyond it are dropped, which a reader sees as a gap.
const SUBSCRIPTION_CAPACITY: usize = 8_192;

/// Who connects: the user's name and the seed of its key.
#[derive(Clone)]
pub struct Credentials {
    pub user: String,
    pub seed: String,
}

/// A connection to the broker; cheap to clone.
#[derive(Clone)]
pub struct Nats {
    pub(crate) client: Client,
    pub(crate) jetstream: Context,
    pub(crate) connections: watch::Receiver<u64>,
    user: Arc<str>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "cannot connect to the broker at {url} as {user}: {source}. Is nats-server running there with our configuration?"
    )]
    Connect {
        url: String,
        user: String,
        #[source]
        source: async_nats::ConnectError,
    },
    #[error(
        "the broker at {url} is nats-server {found}; this program needs {}.{}.{} or newer. Run `make tools` or install a newer one",
        SERVER_VERSION_MIN.0, SERVER_VERSION_MIN.1, SERVER_VERSION_MIN.2
    )]
    TooOld { url: String, found: String },
}

impl Nats {
    pub async fn connect(url: &str, credentials: &Credentials, name: &str) -> Result<Self, ConnectError> {
        let (connected, connections) = watch::channel(0_u64);
        let before = connections.clone();
        let user = credentials.user.clone();
        let client = ConnectOptions::with_nkey(credentials.seed.clone())
            .name(name)
            .custom_inbox_prefix(inbox_prefix(&credentials.user))
            .connection_timeout(CONNECT_WITHIN)
            .ping_interval(PING_EVERY)
            .request_timeout(Some(ANSWER_WITHIN))
            .subscription_capacity(SUBSCRIPTION_CAPACITY)
            .reconnect_delay_callback(move |attempt| {
                if attempt <= 1 && *before.borrow() == 0 {
                    return Duration::ZERO;
                }
                let doubled = RECONNECT_FIRST.saturating_mul(1 << u32::try_from(attempt.min(8)).unwrap_or(8));
                // Spread, so that a fleet does not come back in one instant.
                doubled.min(RECONNECT_LAST).mul_f64(0.75 + rand::random::<f64>() / 2.0)
            })
            .event_callback(move |event| {
                match event {
                    Event::Connected => connected.send_modify(|count| *count += 1),
                    Event::Disconnected => tracing::warn!(user, "the broker is gone; connecting again"),
                    other => tracing::debug!(user, event = %other, "broker connection"),
                }
                std::future::ready(())
            })
            .connect(url)
            .await
            .map_err(|source| ConnectError::Connect {
                url: url.to_owned(),
                user: credentials.user.clone(),
                source,
            })?;
        // The first connection is told of a little later; a reader would take it for another one and open anew.
        let mut told = connections.clone();
        let _untold = tokio::time::timeout(CONNECT_WITHIN, told.wait_for(|count| *count > 0)).await;
        let (major, minor, patch) = SERVER_VERSION_MIN;
        let found = client.server_info().version;
        if !client.is_server_compatible(major as i64, minor as i64, patch as i64) {
            return Err(ConnectError::TooOld { url: url.to_owned(), found });
        }
        // The operator's account holds the streams; every other reaches their API by import.
        let prefix = if credentials.user == OPERATOR { "$JS.API" } else { API_PREFIX };
        let jetstream = jetstream::context::ContextBuilder::new()
            .api_prefix(prefix)
            .timeout(ANSWER_WITHIN)
            .ack_timeout(ANSWER_WITHIN)
            .build(client.clone());
        Ok(Self { client, jetstream, connections, user: credentials.user.as_str().into() })
    }

    /// The name of the user that connected.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Whether the broker answers right now.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Waits until the last core publishes have reached the broker.
    pub async fn flush(&self) {
        if let Err(error) = self.client.flush().await {
            tracing::debug!(%error, "flush");
        }
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("user", &self.user).finish_non_exhaustive()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}
