//! Takes waking processes from this executor's queues: the lowest class first, and only with a free slot.

use std::collections::HashSet;
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
use crate::segment;

/// A segment that gives way ends its session within a second or two.
const ROOM_ASKED_EVERY: Duration = Duration::from_secs(1);

/// Claims until `stop`. The segments that run are `segments`.
pub(crate) async fn claim(
    executor: Arc<Executor>,
    nats: &Nats,
    segments: TaskTracker,
    stop: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(usize::from(executor.slots)));
    let running: Arc<Mutex<HashSet<(ProcessId, Epoch)>>> = Arc::default();
    let mut queues = Vec::new();
    for class in WAKE_CLASSES {
        // One in hand per class: what is taken and waits for a slot is served before what is still in the queue.
        let (sender, receiver) = mpsc::channel(1);
        let mut queue = Queue::new(nats, ASSIGN, assignments_durable(executor.id, class));
        let stop = stop.clone();
        tokio::spawn(async move {
            loop {
                let taken = tokio::select! {
                    () = stop.cancelled() => return,
                    taken = queue.next() => taken,
                };
                if sender.send(taken).await.is_err() {
                    return;
                }
            }
        });
        queues.push(receiver);
    }
    loop {
        let slot = tokio::select! {
            () = stop.cancelled() => return,
            slot = Arc::clone(&slots).acquire_owned() => slot,
            () = ask_for_room(&executor, &queues) => return,
        };
        let Ok(slot) = slot else { return };
        let taken = tokio::select! {
            () = stop.cancelled() => return,
            taken = lowest_class(&mut queues) => taken,
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

/// While no slot is free and a process waits for one, an idle segment that nobody watches is asked to give way, and
/// another after a while. Never returns.
async fn ask_for_room(executor: &Executor, queues: &[mpsc::Receiver<Taken>]) {
    loop {
        executor.clock.sleep(ROOM_ASKED_EVERY).await;
        if queues.iter().any(|queue| !queue.is_empty()) {
            executor.room_wanted.notify_one();
        }
    }
}

/// What is in hand of the lowest class, or what comes first.
async fn lowest_class(queues: &mut [mpsc::Receiver<Taken>]) -> Option<Taken> {
    for queue in queues.iter_mut() {
        if let Ok(taken) = queue.try_recv() {
            return Some(taken);
        }
    }
    let (taken, _, _) =
        futures_util::future::select_all(queues.iter_mut().map(|queue| queue.recv().boxed())).await;
    taken
}

fn lock(
    running: &Mutex<HashSet<(ProcessId, Epoch)>>,
) -> std::sync::MutexGuard<'_, HashSet<(ProcessId, Epoch)>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
