//! A step says what is booked now. The timer that this asks for is compared with the one that is set.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, Nats, Outgoing, Port, Reader, Seen, Start, Steps, Stored, Told};
use contract::Subject;
use contract::messages::timer::Timer;
use contract::subjects::filter;
use contract::topology::TIMERS;
use domain::Timestamp;
use domain::ids::{ProcessId, WaitId};
use domain::process::{ConversationKey, State};
use service::Runtime;

/// Where the broker is told when and on what a message is to be stored again.
const SCHEDULE: &str = "Nats-Schedule";
const SCHEDULE_TARGET: &str = "Nats-Schedule-Target";

/// How often what could not be set is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How often what is set is compared with what the broker holds.
const COMPARED_EVERY: Duration = Duration::from_secs(15);

pub(crate) struct Scheduler {
    port: Arc<dyn Port>,
    /// The timers that are set.
    pub(crate) set: HashMap<ProcessId, Set>,
    /// Processes whose timer is not what it ought to be, with what it ought to be.
    pub(crate) behind: HashMap<ProcessId, Wanted>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) key: ConversationKey,
    pub(crate) wait: WaitId,
    pub(crate) at: Timestamp,
}

#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    Timer(Timer),
    Nothing,
}

/// Follows the log until the shutdown begins.
pub(crate) async fn follow(nats: Nats, runtime: Runtime, mut steps: Steps) {
    let check = runtime.health.check("scheduler");
    let stop = runtime.shutdown.draining_token();
    let mut scheduler =
        Scheduler { port: Arc::new(nats.clone()), set: HashMap::new(), behind: HashMap::new() };
    // Both are read at once; what is behind is known when both have been.
    let mut timers = Some(Reader::open(&nats, TIMERS, filter::all_timers(), Start::LastOfEach));
    let mut steps_read = false;
    let mut compare = runtime.clock.sleep(COMPARED_EVERY);
    loop {
        let unsettled = timers.is_none() && steps_read && !scheduler.behind.is_empty();
        tokio::select! {
            () = stop.cancelled() => return,
            seen = next_of(&mut timers) => match seen {
                Seen::Message(stored) => scheduler.on_set(&stored),
                Seen::CaughtUp => timers = None,
            },
            told = steps.next() => match told {
                Told::CaughtUp => steps_read = true,
                Told::Step(step) => scheduler.on_step(&step.state, step.at),
            },
            () = runtime.clock.sleep(AGAIN_AFTER), if unsettled => {}
            () = &mut compare => {
                compare = runtime.clock.sleep(COMPARED_EVERY);
                if timers.is_none() && steps_read {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = scheduler.compare(&nats, runtime.clock.now()) => {}
                    }
                }
            }
        }
        if timers.is_none() && steps_read {
            scheduler.settle().await;
            check.ready();
        }
    }
}

async fn next_of(timers: &mut Option<Reader>) -> Seen {
    match timers {
        Some(timers) => timers.next().await,
        None => std::future::pending().await,
    }
}

// === impl Scheduler ===

impl Scheduler {
    /// A timer was set before this instance began.
    fn on_set(&mut self, stored: &Stored) {
        let Ok(Timer { key, process, wait, at }) = stored.decode() else { return };
        self.set.insert(process, Set { key, wait, at });
        match self.behind.get(&process) {
            Some(Wanted::Timer(timer)) if (timer.wait, timer.at) == (wait, at) => {
                self.behind.remove(&process);
            }
            Some(_) => {}
            // Until a step says that it is still booked.
            None => drop(self.behind.insert(process, Wanted::Nothing)),
        }
    }

    fn on_step(&mut self, state: &State, at: Timestamp) {
        let process = state.process;
        let wanted = wanted(state);
        let set = self.set.get(&process).copied();
        match (&wanted, set) {
            (Wanted::Timer(timer), Some(set)) if (timer.wait, timer.at) == (set.wait, set.at) => {
                self.behind.remove(&process);
            }
            (Wanted::Nothing, None) => drop(self.behind.remove(&process)),
            // It has rung, and is gone by itself.
            (Wanted::Nothing, Some(set)) if set.at <= at => {
                self.set.remove(&process);
                self.behind.remove(&process);
            }
            _ => drop(self.behind.insert(process, wanted)),
        }
    }

    /// Sets and takes back what is behind. What fails stays behind.
    async fn settle(&mut self) {
        let behind: Vec<_> = self.behind.iter().map(|(process, wanted)| (*process, wanted.clone())).collect();
        for (process, wanted) in behind {
            let settled = self.settle_one(process, wanted).await;
            match settled {
                Ok(()) => drop(self.behind.remove(&process)),
                Err(error) => {
                    tracing::warn!(%process, %error, "a timer waits for the broker");
                    return;
                }
            }
        }
    }

    async fn settle_one(&mut self, process: ProcessId, wanted: Wanted) -> Result<(), BusError> {
        let before = self.set.get(&process).copied();
        if let Wanted::Timer(timer) = wanted {
            let Timer { key, wait, at, .. } = timer;
            let org = key.org;
            let mut message = Outgoing::message(&Subject::Timer(org, process, wait), &timer);
            message.headers.push((SCHEDULE, format!("@at {at}")));
            message.headers.push((SCHEDULE_TARGET, Subject::Due(org, process, wait).to_string()));
            self.port.publish(message).await?;
            self.set.insert(process, Set { key, wait, at });
            if before.is_none_or(|before| before.wait == wait) {
                return Ok(());
            }
        }
        if let Some(before) = before {
            let subject = Subject::Timer(before.key.org, process, before.wait).to_string();
            self.port.purge(TIMERS, &subject, 0).await?;
            if self.set.get(&process) == Some(&before) {
                self.set.remove(&process);
            }
        }
        Ok(())
    }
}

/// The timer that a state asks for. One whose time has passed is set all the same: it rings at once.
fn wanted(state: &State) -> Wanted {
    match state.timer() {
        Some((wait, at)) => Wanted::Timer(Timer { key: state.key(), process: state.process, wait, at }),
        None => Wanted::Nothing,
    }
}
