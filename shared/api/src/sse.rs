//! A stream of server-sent events: what is told on one connection, the beats that keep its viewer present, and when it
//! ends.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use contract::messages::live::Delta;
use domain::policy::TURN_END_GRACE;
use futures_util::stream;
use service::Runtime;
use service::clock::Clock;

use crate::entry::Entry;
use crate::events::{Event, Events, task_created};
use crate::record::ConversationRecord;
use crate::settled::{Settled, Waiting};

/// A comment is sent after this long without an event, so that nothing on the way takes the connection for dead.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// A viewer counts as present for two minutes after a beat; some may be lost.
const BEAT_EVERY: Duration = Duration::from_secs(30);

/// While a text has a gap: the answer to a beat may be lost like any piece.
const BEAT_EVERY_IN_GAP: Duration = Duration::from_secs(2);

/// When a client should come back after its connection broke.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How long a stream waits for the end of the turn in which its process ended: as long as the harness may take, and a
/// moment for the way.
const TURN_END_WITHIN: Duration = TURN_END_GRACE.saturating_add(Duration::from_secs(5));

/// Where a stream gets what it tells.
pub trait Source: Send + 'static {
    /// What comes next. Cancelling loses nothing.
    fn next(&mut self) -> impl Future<Output = Next> + Send;

    /// Says that somebody watches.
    fn beat(&self, wants_text: bool) -> impl Future<Output = ()> + Send;
}

#[derive(Debug)]
pub enum Next {
    Entry(Entry),
    Delta(Arc<Delta>),
    /// Everything that was there at the beginning has been given.
    CaughtUp,
    /// Nothing more comes; the client has to connect again.
    Closed,
}

/// What a stream tells.
#[derive(Debug)]
pub struct Opening {
    pub events: Events,
    /// Told at once, where it is known.
    pub task: Option<ConversationRecord>,
    pub until: Until,
}

/// When a stream ends by itself.
#[derive(Debug)]
pub enum Until {
    /// When its client goes.
    Left,
    /// When the process that has this message has ended, with its last turn, or nothing comes of the message.
    Over(Waiting),
}

struct Connection<S> {
    source: S,
    events: Events,
    until: Until,
    queue: VecDeque<Event>,
    clock: Arc<dyn Clock>,
    draining: Timer,
    beat: Timer,
    /// The first beat asks for the texts that are being written.
    greeted: bool,
    /// Runs once nothing more can come of the message.
    end: Option<Timer>,
    closed: bool,
}

type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tells until it ends, the client goes, or the program drains.
pub fn stream(opening: Opening, source: impl Source, runtime: &Runtime) -> Response {
    let Opening { events, task, until } = opening;
    let first = sse_event(&events.connected()).retry(RETRY_AFTER);
    let connection = Connection {
        source,
        events,
        until,
        queue: task.iter().map(task_created).collect(),
        clock: Arc::clone(&runtime.clock),
        draining: Box::pin(runtime.shutdown.draining()),
        beat: Box::pin(std::future::ready(())),
        greeted: false,
        end: None,
        closed: false,
    };
    let later = stream::unfold(connection, async |mut connection: Connection<_>| {
        let event = connection.next().await?;
        Some((Ok::<_, Infallible>(sse_event(&event)), connection))
    });
    let all = stream::StreamExt::chain(stream::once(std::future::ready(Ok(first))), later);
    let mut response = Sse::new(all).keep_alive(KeepAlive::new().interval(HEARTBEAT_EVERY)).into_response();
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl<S: Source> Connection<S> {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            if self.closed {
                return None;
            }
            tokio::select! {
                () = &mut self.draining => return None,
                () = over(&mut self.end) => return None,
                () = &mut self.beat => self.beat(false).await,
                next = self.source.next() => self.take(next).await,
            }
        }
    }

    async fn take(&mut self, next: Next) {
        match next {
            Next::Entry(entry) => {
                self.queue.extend(self.events.entry(&entry));
                if let Until::Over(waiting) = &mut self.until
                    && waiting.push(&entry).iter().any(Settled::is_over)
                    && self.end.is_none()
                {
                    self.end = Some(timer(&self.clock, TURN_END_WITHIN));
                }
                // A process ends within a turn, whose end is what many clients wait for.
                self.closed = self.end.is_some() && !self.events.turn_runs();
            }
            Next::Delta(delta) => {
                let heard = self.events.delta(&delta);
                self.queue.extend(heard.event);
                if heard.gap {
                    self.beat(true).await;
                }
            }
            Next::CaughtUp => {
                self.events.caught_up();
                if matches!(self.until, Until::Left) {
                    self.queue.push_back(self.events.all_told());
                }
            }
            Next::Closed => self.closed = true,
        }
    }

    async fn beat(&mut self, wants_text: bool) {
        let greets = !std::mem::replace(&mut self.greeted, true);
        self.source.beat(wants_text || greets || self.events.wants_text()).await;
        let every = if self.events.wants_text() { BEAT_EVERY_IN_GAP } else { BEAT_EVERY };
        self.beat = timer(&self.clock, every);
    }
}

fn timer(clock: &Arc<dyn Clock>, after: Duration) -> Timer {
    let clock = Arc::clone(clock);
    Box::pin(async move { clock.sleep(after).await })
}

/// Never, where there is no such timer.
async fn over(end: &mut Option<Timer>) {
    match end {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}

fn sse_event(event: &Event) -> sse::Event {
    let told = sse::Event::default().event(event.name).data(event.data.to_string());
    match event.id {
        Some(id) => told.id(id.to_string()),
        None => told,
    }
}

#[cfg(test)]
mod tests;
