//! The broker's furniture as data: streams, durable consumers, and the users with what each may say and read. The
//! provisioner makes it so; services only bind.

use std::time::Duration;

use domain::ids::{ExecutorId, OrgId};
use domain::policy;
use domain::process::WakeClass;

use crate::buckets::{
    Agents, Bucket, Conversations, Deliveries, Drains, Executors, Fleet as FleetBucket, Heads, Hooks, Keys,
    Volumes, WatermarkKey, Watermarks, stream_of, subject_of,
};
use crate::subjects::{class_token, filter};

pub const RECORD: &str = "RECORD";
pub const PROCESS: &str = "PROCESS";
pub const SEGMENT: &str = "SEGMENT";
pub const ASSIGN: &str = "ASSIGN";
pub const EVENTS: &str = "EVENTS";
pub const TIMERS: &str = "TIMERS";
pub const AUDIT: &str = "AUDIT";
pub const DEAD: &str = "DEAD";

/// The oldest server this layout was measured on.
pub const SERVER_VERSION_MIN: (u64, u64, u64) = (2, 15, 0);

/// How many readers a stream may have at once. The server's default of 1,000 counts every hot segment's.
const CONSUMERS_MAX: i32 = 20_000;

/// Long enough for a sender's quick retries; what counts after that is the `deliveries` bucket.
const RECORD_DEDUPE: Duration = Duration::from_secs(10 * 60);

/// A stream without deduplication still has a window; the shortest useful one.
const SHORT_DEDUPE: Duration = Duration::from_secs(10);

/// How long a delivery may take before another instance is rung: a step is a few milliseconds, a broker's leader
/// change some seconds.
const ACK_WAIT: Duration = Duration::from_secs(15);

/// Doorbells rung and not yet answered, over all instances of a role.
const ACKS_PENDING_MAX: i64 = 4_096;

const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    pub name: String,
    pub subjects: Vec<String>,
    pub keeps: Keeps,
    pub dedupe: Duration,
    /// It can be derived again from other streams, so on a single node its writes need not wait for the disk.
    pub derivable: bool,
    /// Whether followers may answer reads. Never for what decides.
    pub follower_reads: bool,
    pub message_ttl: bool,
    /// Messages may say when they are to be stored again, under another subject of the stream.
    pub schedules: bool,
}

/// What a stream drops, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    Everything,
    For(Duration),
    /// The last message of each subject; an older one makes room.
    LastOfEach,
    LastOfEachFor(Duration),
    /// One message of each subject; another is refused until the first is purged.
    FirstOfEach,
}

/// A durable consumer, shared by all instances of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durable {
    pub stream: &'static str,
    pub name: String,
    pub filter: String,
    pub ack_wait: Duration,
    pub acks_pending_max: i64,
}

/// A user of the broker, in an account of its own. What is not granted does not reach the streams: a server answers to
/// any reply subject that a client names, so a shared account would let one who may only read have bytes stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub grants: Vec<Grant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// Publishes into a stream or bucket.
    Publish(String),
    /// Reads single messages of a stream, from its leader.
    Get(String),
    /// Reads the last message of subjects under the filter, and nothing else of the stream.
    GetLast {
        stream: String,
        filter: String,
    },
    /// Opens readers of its own on a stream.
    Read {
        stream: String,
        filter: String,
    },
    /// Pulls from a durable consumer and acknowledges.
    Pull {
        stream: &'static str,
        durable: String,
    },
    Purge(&'static str),
    /// Deletes single messages of a stream.
    Delete(&'static str),
    /// Speaks to other users without a stream between.
    Tell {
        subject: String,
        to: Vec<String>,
    },
}

/// The roles with a user of their own, and the executors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    pub executors: Vec<ExecutorSpec>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorSpec {
    pub id: ExecutorId,
    /// The organizations it serves; none named means every one of the installation.
    pub orgs: Vec<OrgId>,
}

/// The user that may do everything in the account that holds the streams: it provisions, and serves operators.
pub const OPERATOR: &str = "operator";

pub const INGRESS: &str = "ingress";
pub const STEERER: &str = "steerer";
pub const REGISTRY: &str = "registry";
pub const WAKER: &str = "waker";
pub const SCHEDULER: &str = "scheduler";
pub const CONSOLE: &str = "console";

// === streams ===

pub fn streams() -> Vec<Stream> {
    let stream = |name: &str, subject: &str, keeps| Stream {
        name: name.into(),
        subjects: vec![subject.into()],
        keeps,
        dedupe: SHORT_DEDUPE,
        derivable: false,
        follower_reads: true,
        message_ttl: false,
        schedules: false,
    };
    vec![
        Stream { dedupe: RECORD_DEDUPE, ..stream(RECORD, "record.>", Keeps::Everything) },
        Stream { follower_reads: false, ..stream(PROCESS, "process.>", Keeps::Everything) },
        // A report is sent again until its number stands in the log.
        Stream { derivable: true, ..stream(SEGMENT, "segment.>", Keeps::For(3 * DAY)) },
        Stream { derivable: true, follower_reads: false, ..stream(ASSIGN, "assign.>", Keeps::FirstOfEach) },
        Stream {
            subjects: vec![filter::all_timers(), filter::all_due()],
            derivable: true,
            follower_reads: false,
            schedules: true,
            ..stream(TIMERS, "timer.>", Keeps::Everything)
        },
        // A source that is not answered tells again for days.
        Stream {
            dedupe: policy::DELIVERY_REMEMBERED,
            follower_reads: false,
            ..stream(EVENTS, "event.>", Keeps::For(policy::EVENTS_KEPT))
        },
        stream(AUDIT, "audit.>", Keeps::For(365 * DAY)),
        stream(DEAD, "dead.>", Keeps::For(30 * DAY)),
        bucket::<Agents>(Keeps::LastOfEach),
        bucket::<Conversations>(Keeps::LastOfEach),
        bucket::<Keys>(Keeps::LastOfEach),
        bucket::<Hooks>(Keeps::LastOfEach),
        Stream { derivable: true, ..bucket::<Heads>(Keeps::LastOfEachFor(policy::HEADS_KEPT)) },
        bucket::<Drains>(Keeps::LastOfEach),
        Stream { follower_reads: false, ..bucket::<Volumes>(Keeps::LastOfEach) },
        Stream { derivable: true, ..bucket::<FleetBucket>(Keeps::LastOfEach) },
        Stream { derivable: true, follower_reads: false, ..bucket::<Watermarks>(Keeps::LastOfEach) },
        Stream {
            follower_reads: false,
            ..bucket::<Deliveries>(Keeps::LastOfEachFor(policy::DELIVERY_REMEMBERED))
        },
        Stream {
            derivable: true,
            follower_reads: false,
            message_ttl: true,
            ..bucket::<Executors>(Keeps::LastOfEach)
        },
    ]
}

fn bucket<B: Bucket>(keeps: Keeps) -> Stream {
    Stream {
        name: stream_of::<B>(),
        subjects: vec![subject_of::<B>(">")],
        keeps,
        dedupe: SHORT_DEDUPE,
        derivable: false,
        follower_reads: true,
        message_ttl: false,
        schedules: false,
    }
}

pub const fn consumers_max() -> i32 {
    CONSUMERS_MAX
}

// === durable consumers ===

pub fn durables(fleet: &Fleet) -> Vec<Durable> {
    let durable = |stream, name: String, filter| Durable {
        stream,
        name,
        filter,
        ack_wait: ACK_WAIT,
        acks_pending_max: ACKS_PENDING_MAX,
    };
    let mut all = vec![
        durable(RECORD, STEERER.into(), filter::all_inputs()),
        durable(SEGMENT, REGISTRY.into(), filter::all_reports()),
        durable(TIMERS, WAKER.into(), filter::all_due()),
    ];
    // One per class: a consumer over all of them would deliver in the order of arrival.
    for executor in &fleet.executors {
        for class in WAKE_CLASSES {
            let name = assignments_durable(executor.id, class);
            all.push(durable(ASSIGN, name, filter::assignments(executor.id, class)));
        }
    }
    all
}

pub const WAKE_CLASSES: [WakeClass; 3] = [WakeClass::Input, WakeClass::Event, WakeClass::Resume];

pub fn assignments_durable(executor: ExecutorId, class: WakeClass) -> String {
    format!("{executor}-{}", class_token(class))
}

// === users ===

pub fn users(fleet: &Fleet) -> Vec<User> {
    let executors = || fleet.executors.iter().map(|executor| executor.id.to_string()).collect::<Vec<_>>();
    let mut all =
        vec![ingress(executors()), steerer(), registry(), waker(), scheduler(), console(executors())];
    all.extend(fleet.executors.iter().map(executor));
    all
}

fn ingress(executors: Vec<String>) -> User {
    User {
        name: INGRESS.into(),
        grants: vec![
            Grant::Publish("record.*.*.in".into()),
            Grant::Publish(subject_of::<Agents>(">")),
            Grant::Publish("audit.*.agent".into()),
            Grant::Publish(filter::all_events()),
            Grant::Publish(subject_of::<Heads>(">")),
            Grant::Get(stream_of::<Heads>()),
            Grant::Get(stream_of::<Hooks>()),
            Grant::Get(RECORD.into()),
            Grant::Get(PROCESS.into()),
            Grant::Get(stream_of::<Agents>()),
            Grant::Get(stream_of::<Deliveries>()),
            Grant::Get(stream_of::<FleetBucket>()),
            Grant::Get(stream_of::<Keys>()),
            Grant::Read { stream: RECORD.into(), filter: filter::all_records() },
            Grant::Tell { subject: "presence.>".into(), to: executors },
        ],
    }
}

fn steerer() -> User {
    User {
        name: STEERER.into(),
        grants: vec![
            Grant::Pull { stream: RECORD, durable: STEERER.into() },
            Grant::Get(RECORD.into()),
            Grant::Get(PROCESS.into()),
            Grant::Get(stream_of::<Agents>()),
            Grant::Get(stream_of::<Conversations>()),
            Grant::Get(stream_of::<Deliveries>()),
            Grant::Get(EVENTS.into()),
            Grant::Publish("process.>".into()),
            Grant::Publish(subject_of::<Deliveries>(">")),
            Grant::Publish(subject_of::<Conversations>(">")),
            Grant::Publish("dead.record".into()),
        ],
    }
}

fn registry() -> User {
    User {
        name: REGISTRY.into(),
        grants: vec![
            Grant::Pull { stream: SEGMENT, durable: REGISTRY.into() },
            Grant::Get(PROCESS.into()),
            Grant::Get(RECORD.into()),
            Grant::Get(ASSIGN.into()),
            Grant::Get(EVENTS.into()),
            Grant::Get(stream_of::<Executors>()),
            Grant::Get(stream_of::<FleetBucket>()),
            Grant::Read { stream: PROCESS.into(), filter: filter::all_logs() },
            Grant::Read { stream: stream_of::<Executors>(), filter: subject_of::<Executors>(">") },
            Grant::Publish("process.>".into()),
            Grant::Publish("record.*.*.state".into()),
            Grant::Publish(subject_of::<FleetBucket>(">")),
            Grant::Get(stream_of::<Watermarks>()),
            Grant::Publish(subject_of::<Watermarks>(WatermarkKey(REGISTRY))),
            Grant::Publish("dead.segment".into()),
            Grant::Purge(PROCESS),
        ],
    }
}

fn waker() -> User {
    User {
        name: WAKER.into(),
        grants: vec![
            Grant::Read { stream: PROCESS.into(), filter: filter::all_logs() },
            Grant::Read { stream: stream_of::<Executors>(), filter: subject_of::<Executors>(">") },
            Grant::Get(PROCESS.into()),
            Grant::Get(ASSIGN.into()),
            Grant::Read { stream: ASSIGN.into(), filter: filter::all_assignments() },
            Grant::Get(stream_of::<Volumes>()),
            Grant::Publish(filter::all_assignments()),
            Grant::Publish(subject_of::<Volumes>(">")),
            Grant::Purge(ASSIGN),
            Grant::Pull { stream: TIMERS, durable: WAKER.into() },
            Grant::Get(EVENTS.into()),
            Grant::Read { stream: EVENTS.into(), filter: filter::all_events() },
            Grant::Publish("process.>".into()),
            Grant::Publish("dead.timers".into()),
            Grant::Delete(TIMERS),
        ],
    }
}

/// It sets timers. What one rings on is the stream's; only the waker takes it from there.
fn scheduler() -> User {
    User {
        name: SCHEDULER.into(),
        grants: vec![
            Grant::Read { stream: PROCESS.into(), filter: filter::all_logs() },
            Grant::Read { stream: TIMERS.into(), filter: filter::all_timers() },
            Grant::Publish("timer.>".into()),
            Grant::Get(PROCESS.into()),
            Grant::Publish("process.>".into()),
            Grant::Purge(TIMERS),
        ],
    }
}

fn console(executors: Vec<String>) -> User {
    User {
        name: CONSOLE.into(),
        grants: vec![
            Grant::Get(RECORD.into()),
            Grant::Get(PROCESS.into()),
            Grant::Get(stream_of::<Agents>()),
            Grant::Get(stream_of::<Conversations>()),
            Grant::Get(stream_of::<FleetBucket>()),
            Grant::Get(stream_of::<Keys>()),
            Grant::Read { stream: ASSIGN.into(), filter: filter::all_assignments() },
            Grant::Read { stream: RECORD.into(), filter: filter::all_records() },
            Grant::Read { stream: stream_of::<Agents>(), filter: subject_of::<Agents>(">") },
            Grant::Read { stream: stream_of::<Conversations>(), filter: subject_of::<Conversations>(">") },
            Grant::Read { stream: stream_of::<FleetBucket>(), filter: subject_of::<FleetBucket>(">") },
            Grant::Tell { subject: "presence.>".into(), to: executors },
        ],
    }
}

/// An executor never appends: it reports, and reads the logs and inputs of the organizations it serves.
fn executor(spec: &ExecutorSpec) -> User {
    let id = spec.id;
    let mut grants = vec![
        Grant::Publish(format!("segment.{id}.>")),
        Grant::Publish(format!("record.*.*.out.{id}")),
        Grant::Publish(subject_of::<Executors>(id)),
        Grant::Read { stream: stream_of::<Drains>(), filter: subject_of::<Drains>(id) },
        Grant::Tell { subject: format!("live.*.*.{id}"), to: vec![CONSOLE.into(), INGRESS.into()] },
    ];
    grants.extend(
        WAKE_CLASSES.map(|class| Grant::Pull { stream: ASSIGN, durable: assignments_durable(id, class) }),
    );
    let scopes =
        if spec.orgs.is_empty() { vec![None] } else { spec.orgs.iter().copied().map(Some).collect() };
    for org in scopes {
        let under = |root: &str| org.map_or_else(|| format!("{root}.>"), |org| format!("{root}.{org}.>"));
        grants.push(Grant::Read { stream: PROCESS.into(), filter: under("process") });
        grants.push(Grant::Read { stream: RECORD.into(), filter: under("record") });
        grants.push(Grant::GetLast { stream: stream_of::<Agents>(), filter: under("$KV.agents") });
    }
    User { name: id.to_string(), grants }
}
