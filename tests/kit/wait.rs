//! Waiting for a condition, with a bound and the last status. Never a sleep in the hope that something has happened.

use std::fmt::Debug;
use std::time::Duration;

/// Enough for anything that takes a few round trips, on a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Waits until `check` gives `Ok`; panics with what it said last when that takes too long.
pub async fn soon<T, E: Debug>(what: &str, check: impl AsyncFnMut() -> Result<T, E>) -> T {
    eventually(what, SOON, check).await
}

/// As [`soon`], with a bound of the caller's.
pub async fn eventually<T, E: Debug>(
    what: &str,
    within: Duration,
    mut check: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let mut last = None;
    let result = tokio::time::timeout(within, async {
        loop {
            match check().await {
                Ok(value) => return value,
                Err(status) => last = Some(status),
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    })
    .await;
    match result {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come about within {within:?}; last: {last:?}"),
    }
}
