//! Room that waiting processes ask for. Segments that could do without their slot take the requests, each one.

use tokio::sync::Semaphore;

#[derive(Debug)]
pub(crate) struct Room(Semaphore);

impl Room {
    pub(crate) fn new() -> Self {
        Self(Semaphore::new(0))
    }

    /// This much is asked for now, whatever was before.
    pub(crate) fn ask(&self, slots: usize) {
        self.0.forget_permits(usize::MAX);
        self.0.add_permits(slots);
    }

    /// Waits for a request and takes it. Cancelling loses nothing.
    pub(crate) async fn asked(&self) {
        match self.0.acquire().await {
            Ok(request) => request.forget(),
            // It is never closed.
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn what_is_asked_for_is_taken_once_and_can_be_taken_back() {
        let room = Room::new();
        assert!(room.asked().now_or_never().is_none());
        room.ask(2);
        assert!(room.asked().now_or_never().is_some());
        room.ask(1);
        assert!(room.asked().now_or_never().is_some());
        assert!(room.asked().now_or_never().is_none());
        room.ask(1);
        room.ask(0);
        assert!(room.asked().now_or_never().is_none());
    }
}
