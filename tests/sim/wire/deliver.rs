//! What a connection to the modelled broker delivers: in order to a reader, and to a queue until it is answered.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bus::Wire as _;
use bus::{Acknowledge, Answer, Delivered, Rung};
use futures_util::Stream;
use tokio::sync::mpsc;

use super::Line;

impl Line {
    pub(super) async fn deliver(
        self,
        connection: u64,
        stream: String,
        filter: String,
        first: Vec<u64>,
        mut from: u64,
        sender: mpsc::Sender<Result<Delivered, String>>,
    ) {
        let mut first = first.into_iter().peekable();
        while self.delivers(connection).await {
            let mut changed = self.model.changed.get();
            let next = match first.next() {
                Some(sequence) => {
                    let behind = first.len() as u64 + self.model.store().count_from(&stream, &filter, from);
                    // It may have made room for a later one.
                    let Some(stored) = self.model.store().at(&stream, sequence) else { continue };
                    Some((stored, behind))
                }
                None => {
                    let store = self.model.store();
                    store.next(&stream, &filter, from).map(|stored| {
                        from = stored.sequence + 1;
                        (stored, store.count_from(&stream, &filter, from))
                    })
                }
            };
            let Some((stored, behind)) = next else {
                tokio::select! {
                    biased;
                    () = sender.closed() => return,
                    () = self.model.changed.changed(&mut changed) => {}
                    () = self.another(connection) => return,
                }
                continue;
            };
            self.model.travel().await;
            if self.model.chance(0.005) {
                let _ = sender.send(Err("the reader's consumer is gone".into())).await;
                return;
            }
            if !self.delivers(connection).await
                || sender.send(Ok(Delivered { stored, behind })).await.is_err()
            {
                return;
            }
        }
    }

    pub(super) async fn work(
        self,
        connection: u64,
        stream: &'static str,
        durable: String,
        sender: mpsc::Sender<Result<Rung, String>>,
    ) {
        while self.delivers(connection).await {
            // What nobody asks for stays where it is.
            let Ok(room) = sender.reserve().await else { return };
            let mut changed = self.model.changed.get();
            let now = self.model.clock.now();
            let taken = self.model.store().take(stream, &durable, now);
            let (stored, behind) = match taken {
                Ok(taken) => taken,
                Err(again) => {
                    let later = again.map_or(Duration::MAX, |at| at.since(now).max(Duration::from_millis(1)));
                    tokio::select! {
                        biased;
                        () = sender.closed() => return,
                        () = self.model.changed.changed(&mut changed) => {}
                        () = tokio::time::sleep(later) => {}
                        () = self.another(connection) => return,
                    }
                    continue;
                }
            };
            self.model.travel().await;
            // Lost on its way; it comes again, behind its successors.
            if self.model.chance(0.02) {
                continue;
            }
            if !self.delivers(connection).await {
                return;
            }
            let answer =
                Answering { line: self.clone(), stream, durable: durable.clone(), sequence: stored.sequence };
            room.send(Ok(Rung { delivered: Delivered { stored, behind }, answer: Box::new(answer) }));
        }
    }

    pub(super) async fn another(&self, connection: u64) {
        self.connection.count.wait_for(|now| now != connection).await;
    }
}

struct Answering {
    line: Line,
    stream: &'static str,
    durable: String,
    sequence: u64,
}

#[async_trait]
impl Acknowledge for Answering {
    async fn with(self: Box<Self>, answer: Answer) -> Result<(), String> {
        self.line.lives().await;
        self.line.model.travel().await;
        self.line.lives().await;
        if !self.line.is_connected() || self.line.model.chance(0.03) {
            return Ok(());
        }
        let again = match answer {
            Answer::Done => None,
            Answer::Again(after) => Some(self.line.model.clock.now().plus(after)),
        };
        self.line.model.store().answered(self.stream, &self.durable, self.sequence, again);
        self.line.model.ring();
        Ok(())
    }
}

pub(super) struct Channel<T>(pub(super) mpsc::Receiver<T>);

impl<T> Stream for Channel<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(context)
    }
}
