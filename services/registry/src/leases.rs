//! The leases of the executors, held against the segments that the log shows hot. A segment is lost when its executor's
//! lease has not changed for long enough on this clock, when the executor runs as another incarnation, or when it has
//! renewed twice since the claim without listing the segment. What is suspected from the reader is confirmed with the
//! leader before it is appended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::kv::{self, Rows};
use bus::{AppendError, Bus, Log};
use contract::buckets::{Executors, HeldSegment, HotSegment, Lease};
use domain::ids::{ExecutorId, Incarnation, Renewal};
use domain::policy::LEASE_LOST_AFTER;
use domain::process::{Cause, LossReason};
use service::Runtime;
use service::clock::{Clock, Every};
use tokio_util::sync::CancellationToken;

use crate::on_step::HotSegments;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Renewals after the claim from which on the lease must list the segment: the first may have been on its way.
const LISTED_FROM: u64 = 2;

/// When this watch last saw a lease change, on its own clock.
#[derive(Debug, Default)]
struct Changes(BTreeMap<ExecutorId, Change>);

#[derive(Debug, Clone, Copy)]
struct Change {
    state: Option<(Incarnation, Renewal)>,
    at: Duration,
}

/// Watches until `stop`.
pub(crate) async fn watch(bus: Bus, log: Log, runtime: Runtime, hot: HotSegments, stop: CancellationToken) {
    let check = runtime.health.check("registry leases");
    let clock = Arc::clone(&runtime.clock);
    let mut rows = Rows::<Executors>::open(&bus, ">");
    if let Err(error) = rows.caught_up().await {
        tracing::error!(%error, "the leases cannot be read");
    }
    check.ready();
    let mut changes = Changes::default();
    let mut leases: BTreeMap<ExecutorId, Lease> = BTreeMap::new();
    let mut connected = true;
    let mut look = Every::new(&clock, LOOK_EVERY);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = look.next() => {}
            (key, lease) = rows.changed() => {
                if let (Ok(executor), Some(lease)) = (key.parse(), lease) {
                    leases.insert(executor, lease.clone());
                }
                continue;
            }
        }
        let now = clock.monotonic();
        // While the broker was away no lease could change: time is counted anew from then.
        if !bus.is_connected() {
            connected = false;
            continue;
        }
        if !std::mem::replace(&mut connected, true) {
            changes = Changes::default();
        }
        for segment in hot.all() {
            let lease = leases.get(&segment.executor);
            let unchanged = changes.unchanged_for(segment.executor, lease, now);
            if suspicion(&segment, lease, unchanged).is_some() {
                confirm(&bus, &log, clock.as_ref(), &segment, unchanged).await;
            }
        }
    }
}

/// Reads the lease from the leader. The claim stood in the log before that, and its lease before the claim, so a lease
/// of another incarnation is a later one.
async fn confirm(bus: &Bus, log: &Log, clock: &dyn Clock, segment: &HotSegment, unchanged: Duration) {
    let lease = match kv::get::<Executors>(&**bus, &segment.executor).await {
        Ok(stored) => stored.value,
        Err(error) => return tracing::warn!(executor = %segment.executor, %error, "the lease cannot be read"),
    };
    let Some(why) = suspicion(segment, lease.as_ref(), unchanged) else { return };
    tracing::warn!(executor = %segment.executor, process = %segment.process, ?why, "segment lost");
    let cause = Cause::Lost { executor: segment.executor, epoch: segment.epoch, why };
    match log.append(segment.key, cause, None, || clock.now()).await {
        // It parked, ended or was claimed anew meanwhile.
        Ok(_) | Err(AppendError::Refused(_)) => {}
        Err(error) => tracing::warn!(process = %segment.process, %error, "the loss is not appended yet"),
    }
}

/// Why a segment would be lost, given its executor's lease and for how long that has not changed.
fn suspicion(segment: &HotSegment, lease: Option<&Lease>, unchanged: Duration) -> Option<LossReason> {
    if unchanged >= LEASE_LOST_AFTER {
        return Some(LossReason::LeaseExpired);
    }
    let lease = lease?;
    if lease.incarnation != segment.incarnation {
        return Some(LossReason::Restarted);
    }
    let held = HeldSegment { process: segment.process, epoch: segment.epoch };
    let must_list = lease.renewal.0 >= segment.renewal.0 + LISTED_FROM;
    (must_list && !lease.segments.contains(&held)).then_some(LossReason::NotListed)
}

// === impl Changes ===

impl Changes {
    /// An expired lease counts as one that has not changed.
    fn unchanged_for(&mut self, executor: ExecutorId, lease: Option<&Lease>, now: Duration) -> Duration {
        let state = lease.map(|lease| (lease.incarnation, lease.renewal));
        let change = self.0.entry(executor).or_insert(Change { state, at: now });
        if state.is_some() && change.state != state {
            *change = Change { state, at: now };
        }
        now.saturating_sub(change.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> HotSegment {
        let uuid = |n| bus_uuid(n);
        HotSegment {
            key: domain::process::ConversationKey {
                org: domain::ids::OrgId::from_uuid(uuid(1)),
                conversation: domain::ids::ConversationId::from_uuid(uuid(2)),
            },
            process: domain::ids::ProcessId::from_uuid(uuid(3)),
            epoch: domain::ids::Epoch(4),
            executor: ExecutorId(0),
            incarnation: Incarnation(uuid(5)),
            renewal: Renewal(10),
        }
    }

    fn bus_uuid(n: u128) -> uuid::Uuid {
        uuid::Uuid::from_u128(n)
    }

    fn lease(renewal: u64, lists: bool) -> Lease {
        let segment = segment();
        let held = HeldSegment { process: segment.process, epoch: segment.epoch };
        Lease {
            incarnation: segment.incarnation,
            renewal: Renewal(renewal),
            segments: lists.then_some(held).into_iter().collect(),
            slots: 1,
            orgs: Vec::new(),
            draining: false,
            unable: None,
            version: String::new(),
        }
    }

    #[test]
    fn a_lease_that_lists_the_segment_keeps_it() {
        assert_eq!(suspicion(&segment(), Some(&lease(99, true)), Duration::from_secs(33)), None);
    }

    #[test]
    fn a_segment_must_be_listed_from_the_second_renewal_after_the_claim_on() {
        assert_eq!(suspicion(&segment(), Some(&lease(11, false)), Duration::ZERO), None);
        assert_eq!(
            suspicion(&segment(), Some(&lease(12, false)), Duration::ZERO),
            Some(LossReason::NotListed)
        );
    }

    #[test]
    fn another_incarnation_has_lost_it() {
        let other = Lease { incarnation: Incarnation(bus_uuid(6)), ..lease(1, false) };
        assert_eq!(suspicion(&segment(), Some(&other), Duration::ZERO), Some(LossReason::Restarted));
    }

    #[test]
    fn only_a_lease_that_does_not_change_expires_and_a_missing_one_does_not_change() {
        let mut changes = Changes::default();
        let executor = ExecutorId(0);
        let seconds = Duration::from_secs;
        assert_eq!(changes.unchanged_for(executor, Some(&lease(1, true)), seconds(0)), seconds(0));
        assert_eq!(changes.unchanged_for(executor, Some(&lease(2, true)), seconds(20)), seconds(0));
        assert_eq!(changes.unchanged_for(executor, None, seconds(54)), seconds(34));
        assert_eq!(suspicion(&segment(), None, seconds(34)), Some(LossReason::LeaseExpired));
    }
}
