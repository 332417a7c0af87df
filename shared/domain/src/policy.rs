//! The product's numbers. What an operator may change is a setting whose default stands here; the rest are bounds.

use std::time::Duration;

/// How many inputs may wait for a process. Ingress refuses the next one; what was accepted is never refused for room.
pub const UNDELIVERED_MAX: usize = 1_000;

/// How many of them may be held back for the end of a turn (mode `queue`).
pub const HELD_MAX: usize = 32;

/// The text of one message, in bytes of UTF-8.
pub const MESSAGE_TEXT_MAX: usize = 256 * 1024;

/// The summary of `finish_process`, in bytes: it stands in the state, which is to stay small.
pub const SUMMARY_MAX: usize = 8 * 1024;

/// What the task's pill shows of a note, in characters; the whole note is in the record.
pub const NOTE_SHOWN_MAX: usize = 500;

/// What is kept of an error's text in the log, in characters.
pub const ERROR_SHOWN_MAX: usize = 500;

/// What stands in the state of a wait's reason, in characters.
pub const WAIT_REASON_SHOWN_MAX: usize = 500;

/// A wait for a time lies at least this far ahead; below it parking costs more than it saves.
pub const WAIT_LEAD_MIN: Duration = Duration::from_secs(1);

/// Waits that are over and that the agent has not read of. One is booked at a time, so only an agent that books on
/// without ever ending its turn comes here.
pub const FIRED_MAX: usize = 2;

/// Events given to a process since it last parked, so that a next wait does not fire on them.
pub const EVENTS_GIVEN_MAX: usize = 64;

/// How long an event from outside is kept for waits that are booked later.
pub const EVENTS_KEPT: Duration = Duration::from_secs(14 * 24 * 3600);

/// How long the commit of a pull request is known by it. Checks of an older one find nobody.
pub const HEADS_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

/// What is kept of an outsider's text, in characters; the whole of it is at the source.
pub const EVENT_TEXT_MAX: usize = 1_000;

/// Questions open at once in a process. A person answers a handful; the state is to stay small.
pub const QUESTIONS_OPEN_MAX: usize = 16;

/// Commands and sub-agents beside the turn that the state names.
pub const RUNNING_SHOWN_MAX: usize = 32;

/// Of those that were killed with their segment, how many the agent is told of.
pub const KILLED_SHOWN_MAX: usize = 8;

/// What the state keeps of a command's text, in characters.
pub const RUNNING_LABEL_MAX: usize = 120;

/// A background command holds its process for this long from its start; then it goes on, and no longer holds anything.
pub const BACKGROUND_HOLDS_FOR: Duration = Duration::from_secs(240 * 60);

/// How long the harness may take to end its turn once its process has ended or its wait is booked.
pub const TURN_END_GRACE: Duration = Duration::from_secs(15);

/// An idle segment that nobody watches parks after this long.
pub const PARK_AFTER_ABSENCE: Duration = Duration::from_secs(2 * 60);

/// A viewer shows itself every 30 s, and one time may be lost.
pub const VIEWER_GONE_AFTER: Duration = Duration::from_secs(75);

/// An idle segment parks after this long, whoever watches: a page that was left open is no work.
pub const PARK_WATCHED_AFTER: Duration = Duration::from_secs(30 * 60);

/// A process that nobody has needed for this long asks once whether it is still needed.
pub const NUDGE_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);

/// A process that nobody has needed for this long finishes itself.
pub const SELF_FINISH_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long it may take over its last summary.
pub const LAST_WAKE: Duration = Duration::from_secs(10 * 60);

/// How long a process rests after its harness has crashed, by the crashes since its last good turn. One more, and a
/// person has to look.
pub const CRASH_BACK_OFF: [Duration; 4] =
    [Duration::from_secs(10), Duration::from_secs(30), Duration::from_secs(120), Duration::from_secs(600)];

/// A segment that has been hot for this long goes at its next boundary and comes back behind those that wait.
pub const SEGMENT_CAP: Duration = Duration::from_secs(2 * 3600);

/// A boundary that has not come this long after is not waited for any longer.
pub const SEGMENT_CAP_GRACE: Duration = Duration::from_secs(10 * 60);

/// How often an executor renews its lease.
pub const LEASE_RENEW_EVERY: Duration = Duration::from_secs(4);

/// The registry takes a segment for lost when its executor's lease has not changed for this long. It is longer than
/// [`EXECUTOR_FREEZES_AFTER`] by more than two renewals, so that the old harness rests before a new one starts.
pub const LEASE_LOST_AFTER: Duration = Duration::from_secs(34);

/// An executor stops its own segments this long after it sent the last renewal that was acknowledged.
pub const EXECUTOR_FREEZES_AFTER: Duration = Duration::from_secs(20);

/// What was frozen for this long is ended, so that a machine that is cut off for good does not keep it.
pub const FROZEN_KILLED_AFTER: Duration = Duration::from_secs(10 * 60);

/// Steps of a process's history that stay in the log once it rests; what is older is in the record.
pub const HISTORY_STEPS_KEPT: u64 = 200;

/// How long an idempotency key or delivery id is remembered.
pub const DELIVERY_REMEMBERED: Duration = Duration::from_secs(72 * 3600);
