//! What is told of a model call while it is made. Each call is told twice, also when its client or its provider is
//! gone half-way: whoever listens knows at any time how many are in flight.

use http::StatusCode;
use tokio::sync::mpsc::{self, OwnedPermit};

use super::usage::{Meter, Usage};
use crate::endpoint::CONNECTIONS_MAX;

/// Each call in flight holds the place of its end, so that telling it never waits; the other half is for beginnings.
const TOLD_MAX: usize = 2 * CONNECTIONS_MAX;

/// Calls of the agent and of its sub-agents alike. Counting tokens is no model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelCall {
    Started,
    Ended {
        /// What the harness was answered; none where it went away before that.
        status: Option<u16>,
        /// As far as it was said when the answer ended. None where nothing was: an error, or no answer.
        usage: Option<Usage>,
    },
}

/// Whoever listened is gone, and with it the segment.
#[derive(Debug)]
pub(super) struct NobodyListens;

/// One call on its way. Dropped, it has ended.
#[derive(Debug)]
pub(super) struct OpenCall {
    /// None for what is no model call.
    end: Option<OwnedPermit<ModelCall>>,
    status: Option<StatusCode>,
    pub(super) meter: Meter,
}

pub(super) fn channel() -> (mpsc::Sender<ModelCall>, mpsc::Receiver<ModelCall>) {
    mpsc::channel(TOLD_MAX)
}

// === impl OpenCall ===

impl OpenCall {
    pub(super) async fn begin(told: &mpsc::Sender<ModelCall>) -> Result<Self, NobodyListens> {
        // The end's place first: with beginnings in all places there would be none left for the ends.
        let end = told.clone().reserve_owned().await.map_err(|_| NobodyListens)?;
        told.send(ModelCall::Started).await.map_err(|_| NobodyListens)?;
        Ok(Self { end: Some(end), status: None, meter: Meter::Opaque })
    }

    pub(super) fn untold() -> Self {
        Self { end: None, status: None, meter: Meter::Opaque }
    }

    pub(super) fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let status = self.status.map(|status| status.as_u16());
            end.send(ModelCall::Ended { status, usage: self.meter.usage() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn as_many_calls_as_there_are_connections_can_all_end_unheard() {
        let (told, mut hears) = channel();
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            open.push(OpenCall::begin(&told).await.unwrap());
        }
        drop(open);
        drop(told);
        let mut in_flight = 0;
        while let Some(call) = hears.recv().await {
            in_flight += if call == ModelCall::Started { 1 } else { -1 };
        }
        assert_eq!((in_flight, hears.capacity()), (0, TOLD_MAX));
    }

    #[tokio::test]
    async fn without_a_listener_no_call_begins() {
        let (told, hears) = channel();
        drop(hears);
        OpenCall::begin(&told).await.unwrap_err();
    }
}
