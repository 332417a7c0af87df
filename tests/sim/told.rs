//! A value that others wait for. Those who wait are woken in the order in which they began to, so that a run can be
//! repeated; the runtime's own `watch` draws lots.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Told<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy + PartialEq> Told<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    pub(crate) fn get(&self) -> T {
        *self.lock()
    }

    /// Returns what it was.
    pub(crate) fn set(&self, value: T) -> T {
        let before = std::mem::replace(&mut *self.lock(), value);
        if before != value {
            self.changed.notify_waiters();
        }
        before
    }

    pub(crate) async fn wait_for(&self, is: impl Fn(T) -> bool) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = self.get();
            if is(now) {
                return now;
            }
            changed.await;
        }
    }

    /// Waits until it is another than was seen.
    pub(crate) async fn changed(&self, seen: &mut T) {
        let before = *seen;
        *seen = self.wait_for(|now| now != before).await;
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
