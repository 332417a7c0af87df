//! A step says what is booked now. The timer that this asks for is compared with the one that is set.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError, Outgoing, Port, Seen, Steps, Told};
use contract::Subject;
use contract::messages::timer::Timer;
use contract::topology::TIMERS;
use domain::Timestamp;
use domain::ids::{ProcessId, WaitId};
use domain::process::{ConversationKey, State};
use service::Runtime;
use service::clock::Every;

use crate::missing::Comparing;

/// Where the broker is told when and on what a message is to be stored again.
const SCHEDULE: &str = "Nats-Schedule";
const SCHEDULE_TARGET: &str = "Nats-Schedule-Target";

/// How often what could not be set is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How often what is set is compared with what the broker holds.
const COMPARED_EVERY: Duration = Duration::from_secs(15);

pub(crate) struct Scheduler {
    pub(crate) port: Arc<dyn Port>,
    /// The timers that are set.
    pub(crate) set: BTreeMap<ProcessId, Set>,
    /// Processes whose timer is not what it ought to be, with what it ought to be.
    pub(crate) behind: BTreeMap<ProcessId, Wanted>,
    /// Whether everything that the log held at the start has been read.
    steps_read: bool,
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
pub(crate) async fn follow(bus: Bus, runtime: Runtime, mut steps: Steps) {
    let check = runtime.health.check("scheduler");
    let stop = runtime.shutdown.draining_token();
    let mut scheduler =
        Scheduler { port: bus.port(), set: BTreeMap::new(), behind: BTreeMap::new(), steps_read: false };
    let mut compare = Every::new(&runtime.clock, COMPARED_EVERY);
    let mut comparing: Option<Comparing> = None;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = compare.next() => {
                if scheduler.steps_read && comparing.is_none() {
                    comparing = tokio::select! {
                        biased;
                        () = stop.cancelled() => return,
                        begun = scheduler.begin_if_unequal(&bus) => begun,
                    };
                }
            }
            told = steps.next() => match told {
                Told::CaughtUp => {
                    scheduler.steps_read = true;
                    check.ready();
                    // What an earlier instance has set is not known yet.
                    comparing.get_or_insert_with(|| scheduler.begin(&bus, Duration::ZERO));
                }
                Told::Step(step) => scheduler.on_step(&step.state, step.at),
            },
            seen = next_of(&mut comparing) => {
                if let Some(mut compared) = comparing.take_if(|comparing| comparing.saw(seen)) {
                    scheduler.end(&mut compared, runtime.clock.now()).await;
                }
            }
            () = runtime.clock.sleep(AGAIN_AFTER), if scheduler.steps_read && !scheduler.behind.is_empty() => {}
        }
        if scheduler.steps_read {
            scheduler.settle().await;
        }
    }
}

async fn next_of(comparing: &mut Option<Comparing>) -> Seen {
    match comparing {
        Some(comparing) => comparing.next().await,
        None => std::future::pending().await,
    }
}

// === impl Scheduler ===

impl Scheduler {
    fn on_step(&mut self, state: &State, at: Timestamp) {
        let process = state.process;
        let wanted = wanted(state);
        if !self.steps_read {
            // An earlier instance has set it, or the comparison sets it.
            if let Wanted::Timer(Timer { key, wait, at, .. }) = wanted {
                self.set.insert(process, Set { key, wait, at });
            }
            return;
        }
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
