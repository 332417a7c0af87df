//! Processes that nobody has needed for long. What is idle since when follows from the last step of each, so a start reads
//! it anew; how long that may be, an operator sets.

use std::collections::BTreeMap;
use std::time::Duration;

use bus::{AppendError, Bus, Log, Steps, Told};
use domain::ids::ProcessId;
use domain::process::{Cause, ConversationKey, State};
use domain::{Refusal, Timestamp};
use service::Runtime;
use service::clock::Every;

use crate::SchedulerConfig;

/// How often the idle are looked at, at the most; a day's notice does not need the minute.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Processes that are acted on at one look: the log is not read meanwhile, and timers are set by it too. The others are
/// due at the next look as well.
const ACTED_ON_MAX: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Idle {
    key: ConversationKey,
    since: Timestamp,
    nudged: bool,
    /// It was woken for its summary.
    finishing: bool,
}

/// Follows the log until the shutdown begins.
pub(crate) async fn follow(bus: Bus, runtime: Runtime, config: SchedulerConfig, mut steps: Steps) {
    let check = runtime.health.check("scheduler idle");
    let stop = runtime.shutdown.draining_token();
    let log = Log::new(bus.port());
    let mut idle: BTreeMap<ProcessId, Idle> = BTreeMap::new();
    // Tests set seconds.
    let shortest = config.nudge_after.min(config.self_finish_after).min(config.last_wake);
    let every = (shortest / 4).min(LOOK_EVERY);
    let mut caught_up = false;
    let mut look = Every::new(&runtime.clock, every);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = look.next() => {
                if caught_up {
                    let now = runtime.clock.now();
                    let due = idle.iter().filter_map(|(process, idle)| Some((*process, idle.key, due(idle, &config, now)?)));
                    for (process, key, cause) in due.take(ACTED_ON_MAX) {
                        act(&log, process, key, cause, now).await;
                    }
                }
            }
            told = steps.next() => match told {
                Told::CaughtUp => {
                    caught_up = true;
                    check.ready();
                }
                Told::Step(step) => match of(&step.state) {
                    Some(now) => drop(idle.insert(step.state.process, now)),
                    None => drop(idle.remove(&step.state.process)),
                },
            },
        }
    }
}

/// What is to be remembered of a process; `None` while something happens to it.
fn of(state: &State) -> Option<Idle> {
    let finishing = state.finishing.filter(|_| state.is_live());
    let since = finishing.or_else(|| state.idle_since())?;
    Some(Idle { key: state.key(), since, nudged: state.nudged, finishing: finishing.is_some() })
}

/// What is due for it.
fn due(idle: &Idle, config: &SchedulerConfig, now: Timestamp) -> Option<Cause> {
    let (since, spent) = (idle.since, now.since(idle.since));
    let finish_after = if idle.finishing { config.last_wake } else { config.self_finish_after };
    if spent >= finish_after {
        return Some(Cause::SelfFinish { since });
    }
    (!idle.finishing && !idle.nudged && spent >= config.nudge_after).then_some(Cause::Nudge { since })
}

async fn act(log: &Log, process: ProcessId, key: ConversationKey, cause: Cause, now: Timestamp) {
    match log.append(key, cause, None, || now).await {
        // Something has happened to it since; its step is on the way here.
        Ok(_) | Err(AppendError::Refused(Refusal::NotIdle)) => {}
        Err(error) => tracing::warn!(%process, %error, "an idle process is looked at again"),
    }
}
