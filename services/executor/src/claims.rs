//! Takes waking processes from this executor's queues: the lowest class first, and only with a free slot.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bus::{Nats, Queue, Taken};
use contract::messages::assign::Assignment;
use contract::topology::{ASSIGN, WAKE_CLASSES, assignments_durable};
use domain::ids::{Epoch, ProcessId};
use futures_util::FutureExt;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Executor;
use crate::drain::Drain;
use crate::segment;

/// Segments that were asked to give way may have got something to do meanwhile; then others are asked. One that does
/// ends its session within a second or two.
const ROOM_ASKED_EVERY: Duration = Duration::from_secs(1);

/// The queue of a class, with one piece of work in hand: what is taken and waits for a slot is served before what is still
/// in the queue.
struct Line {
    in_hand: mpsc::Receiver<Taken>,
    /// What was behind the last that was taken.
    behind: Arc<AtomicU64>,
}

/// Claims until `stop`. The segments that run are `segments`.
pub(crate) async fn claim(
    executor: Arc<Executor>,
    nats: &Nats,
    segments: TaskTracker,
    stop: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(usize::from(executor.slots)));
    let running: Arc<Mutex<HashSet<(ProcessId, Epoch)>>> = Arc::default();
    let mut held = executor.lease.held();
    let mut drain = executor.drain.clone();
    let mut lines = Vec::new();
    for class in WAKE_CLASSES {
        let (sender, in_hand) = mpsc::channel(1);
        let line = Line { in_hand, behind: Arc::default() };
        let behind = Arc::clone(&line.behind);
        let mut queue = Queue::new(nats, ASSIGN, assignments_durable(executor.id, class));
        let stop = stop.clone();
        tokio::spawn(async move {
            loop {
                let taken = tokio::select! {
                    () = stop.cancelled() => return,
                    taken = queue.next() => taken,
                };
                behind.store(taken.behind, Ordering::Relaxed);
                if sender.send(taken).await.is_err() {
                    return;
                }
            }
        });
        lines.push(line);
    }
    loop {
        let slot = tokio::select! {
            () = stop.cancelled() => return,
            slot = Arc::clone(&slots).acquire_owned() => slot,
            () = ask_for_room(&executor, &lines) => return,
        };
        let Ok(slot) = slot else { return };
        tokio::select! {
            () = stop.cancelled() => return,
            _ = held.wait_for(|held| *held) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            _ = drain.wait_for(|drain| *drain == Drain::No) => {}
        }
        executor.room.ask(0);
        let taken = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Ok(()) = drain.changed() => continue,
            taken = lowest_class(&mut lines) => taken,
        };
        let Some(taken) = taken else { return };
        let assignment = match taken.stored.decode::<Assignment>() {
            Ok(assignment) => assignment,
            Err(error) => {
                tracing::error!(subject = taken.stored.subject, %error, "an assignment that cannot be read is left");
                taken.done().await;
                continue;
            }
        };
        let name = (assignment.process, assignment.epoch);
        if !lock(&running).insert(name) {
            // Rung again while it runs here.
            taken.done().await;
            continue;
        }
        let (executor, running) = (Arc::clone(&executor), Arc::clone(&running));
        segments.spawn(async move {
            Box::pin(segment::run(executor, assignment, taken)).await;
            lock(&running).remove(&name);
            drop(slot);
        });
    }
}

/// While no slot is free, as many idle segments that nobody watches are asked to give way as processes wait for one.
/// Never returns.
async fn ask_for_room(executor: &Executor, lines: &[Line]) {
    loop {
        let waiting: u64 = lines.iter().map(Line::waiting).sum();
        executor.room.ask(usize::try_from(waiting).unwrap_or(usize::MAX).min(usize::from(executor.slots)));
        executor.clock.sleep(ROOM_ASKED_EVERY).await;
    }
}

/// What is in hand of the lowest class, or what comes first.
async fn lowest_class(lines: &mut [Line]) -> Option<Taken> {
    for line in lines.iter_mut() {
        if let Ok(taken) = line.in_hand.try_recv() {
            return Some(taken);
        }
    }
    let (taken, _, _) =
        futures_util::future::select_all(lines.iter_mut().map(|line| line.in_hand.recv().boxed())).await;
    taken
}

impl Line {
    /// How many wait, as far as is known here.
    fn waiting(&self) -> u64 {
        if self.in_hand.is_empty() { 0 } else { self.behind.load(Ordering::Relaxed).saturating_add(1) }
    }
}

fn lock(
    running: &Mutex<HashSet<(ProcessId, Epoch)>>,
) -> std::sync::MutexGuard<'_, HashSet<(ProcessId, Epoch)>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
