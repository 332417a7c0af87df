//! A hot segment: the task round [`domain::segment`]. It carries what happens to the pure segment (the log, texts, the
//! harness, the agent's calls, time) and carries out what that says. Nothing is decided here.

mod asking;
mod calls;
mod inputs;
mod live;
mod notes;
mod record;
mod start;
mod translate;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::{Outgoing, Port, Reader, Seen, Start, Taken};
use contract::Subject;
use contract::messages::assign::Assignment;
use contract::messages::record::Output;
use contract::messages::segment::SegmentReport;
use contract::topology::PROCESS;
use domain::ids::SegmentId;
use domain::process::{Card, Phase, Report, State, Step};
use domain::segment::{Ask, CallNo, Contents, Effect, Identity, Segment, SegmentPolicy, Signal};
use service::telemetry::{continue_from, traceparent_of};
use tokio::sync::mpsc;
use tracing::Instrument;
use uuid::Uuid;

use crate::Executor;
use crate::drain::Drain;
use crate::harness::HarnessEvent;
use crate::harness::claude_code::{Claude, ClaudeError};

use asking::Waiting;
use calls::CallDesk;
use inputs::Inputs;
use live::Live;
use record::Recorder;
use start::{Begun, Started};
use translate::Translator;

/// What comes back from what was begun: a handful per segment.
const BACK_MAX: usize = 64;

/// An assignment that was not claimed is given again after this long.
const UNCLAIMED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long the harness may take to end its session before it is killed; it takes milliseconds.
const SESSION_END_WITHIN: Duration = Duration::from_secs(10);

/// What was begun in a task of its own has come to this.
#[derive(Debug)]
enum Back {
    Started(Box<Begun>),
    Withdrawn {
        frame: Uuid,
        given_back: bool,
    },
    Recorded {
        frame: Uuid,
    },
    /// The card of a call is in the record.
    Carded {
        call: CallNo,
        card: Card,
    },
    /// The harness does not do what it is asked; it is killed and the session resumed.
    Ill {
        what: String,
    },
}

struct Task {
    executor: Arc<Executor>,
    assignment: Assignment,
    segment: Segment,
    log: Reader,
    /// Until the process is claimed.
    taken: Option<Taken>,
    inputs: Inputs,
    recorder: Recorder,
    live: Live,
    calls: CallDesk,
    translator: Translator,
    harness: Option<Started>,
    back: mpsc::Receiver<Back>,
    back_sender: mpsc::Sender<Back>,
    /// The calls that wait for their answer.
    asked: BTreeMap<CallNo, Waiting>,
    calls_made: u64,
}

/// Runs the segment that the assignment asks for, from claim to park.
pub(crate) async fn run(executor: Arc<Executor>, assignment: Assignment, taken: Taken) {
    let span = tracing::info_span!(
        "segment",
        conversation = %assignment.key.conversation,
        process = %assignment.process,
        segment = %SegmentId::of(assignment.process, assignment.epoch),
        epoch = assignment.epoch.0,
    );
    if let Some(traceparent) = &taken.stored.envelope.traceparent {
        continue_from(&span, traceparent);
    }
    Box::pin(live_through(executor, assignment, taken)).instrument(span).await;
}

async fn live_through(executor: Arc<Executor>, assignment: Assignment, taken: Taken) {
    let subject = Subject::Process(assignment.key, assignment.process).to_string();
    let mut log = Reader::open(&executor.nats, PROCESS, subject, Start::LastOfEach);
    let Some(state) = newest(&mut log).await else {
        return taken.done().await;
    };
    let wanted = state.epoch == assignment.epoch && matches!(state.phase, Phase::Waking { .. });
    if !wanted {
        return taken.done().await;
    }
    let _held = executor.lease.hold(assignment.process, assignment.epoch);
    let me = Identity {
        executor: executor.id,
        incarnation: executor.incarnation,
        epoch: assignment.epoch,
        renewal: executor.lease.renewal(),
    };
    let policy = SegmentPolicy {
        park_after: executor.park_after,
        park_watched_after: executor.park_watched_after,
        viewer_gone_after: domain::policy::VIEWER_GONE_AFTER,
        turn_end_grace: domain::policy::TURN_END_GRACE,
        cap: executor.segment_cap,
    };
    let inputs = Inputs::open(&executor.nats, &state);
    let former = inputs::former_frames(&executor.nats, &state).await;
    let (segment, effects) = Segment::new(me, policy, state, former, executor.clock.monotonic());
    let (back_sender, back) = mpsc::channel(BACK_MAX);
    let mut task = Task {
        log,
        taken: Some(taken),
        inputs,
        recorder: Recorder::start(&executor, &assignment),
        live: Live::open(&executor.nats, &assignment, executor.id).await,
        calls: CallDesk::default(),
        translator: Translator::new(assignment.key.conversation),
        harness: None,
        back,
        back_sender,
        asked: BTreeMap::new(),
        calls_made: 0,
        executor,
        assignment,
        segment,
    };
    task.run(effects).await;
    task.recorder.finish().await;
    match (task.taken, &task.segment.log().phase) {
        (Some(taken), Phase::Waking { .. }) => taken.put_back(UNCLAIMED_AGAIN_AFTER).await,
        (Some(taken), _) => taken.done().await,
        (None, _) => {}
    }
}

/// The process's state as the log has it now.
async fn newest(log: &mut Reader) -> Option<State> {
    let mut newest = None;
    loop {
        match log.next().await {
            Seen::Message(stored) => newest = state_in(&stored).or(newest),
            Seen::CaughtUp => return newest,
        }
    }
}

fn state_in(stored: &bus::Stored) -> Option<State> {
    match stored.decode::<Step>() {
        Ok(step) => Some(step.state),
        Err(error) => {
            tracing::error!(subject = stored.subject, %error, "a step that cannot be read");
            None
        }
    }
}

// === impl Task ===

impl Task {
    async fn run(&mut self, effects: Vec<Effect>) {
        if self.carry_out(effects).await {
            return;
        }
        let mut drain = self.executor.drain.clone();
        // What began before this is told of like what begins now.
        drain.mark_changed();
        let mut held = self.executor.lease.held();
        // A lease that was let go before this is told of like one that is let go now.
        held.mark_changed();
        loop {
            let wait = self
                .segment
                .next_tick()
                .map(|at| at.saturating_sub(self.executor.clock.monotonic()))
                .unwrap_or(Duration::MAX);
            let clock = Arc::clone(&self.executor.clock);
            let spare = self.segment.could_make_room(clock.monotonic());
            let signal = tokio::select! {
                biased;
                seen = self.log.next() => match seen {
                    Seen::Message(stored) => state_in(&stored).map(|state| Signal::Log(Box::new(state))),
                    Seen::CaughtUp => None,
                },
                back = self.back.recv() => self.came_back(back).await,
                event = next_event(&mut self.harness) => self.happened(event).await,
                known = self.inputs.next() => Some(Signal::Known { input: known.0, bytes: known.1 }),
                call = self.calls.next() => self.called(call).await,
                () = self.live.serve() => Some(Signal::Watched),
                () = self.executor.room.asked(), if spare => Some(Signal::MakeRoom),
                Ok(()) = held.changed() => match *held.borrow_and_update() {
                    true => Some(Signal::Reachable),
                    false => Some(Signal::CutOff),
                },
                Ok(()) = drain.changed() => Some(match *drain.borrow_and_update() {
                    Drain::No => Signal::DrainOver,
                    Drain::Begun => Signal::Drain,
                    Drain::Now => Signal::DrainNow,
                }),
                () = clock.sleep(wait) => Some(Signal::Tick),
            };
            let Some(signal) = signal else { continue };
            if signal == Signal::Frozen {
                // It was this program that stood still; whether the lease is renewed by now is told behind it.
                held.mark_changed();
            }
            let effects = self.segment.on(signal, self.executor.clock.monotonic());
            if self.segment.log().hot().is_some()
                && let Some(taken) = self.taken.take()
            {
                taken.done().await;
            }
            if self.carry_out(effects).await {
                return;
            }
        }
    }

    /// Does what the segment says; whether that was the last of it.
    async fn carry_out(&mut self, effects: Vec<Effect>) -> bool {
        for effect in effects {
            match effect {
                Effect::Leave => return true,
                Effect::Report(report) => self.report(report),
                Effect::Start => self.start(),
                Effect::Record { frame, contents: Contents { inputs, fired } } => {
                    let stored = self.recorder.send(Output::InHarness { frame, inputs, fired }).await;
                    self.then(async move { stored.await.ok().map(|()| Back::Recorded { frame }) });
                }
                Effect::Deliver { frame, contents, wake } => {
                    let text = self.inputs.text(&contents, wake, self.segment.log());
                    let inputs = contents.inputs;
                    let span = self.inputs.span(&inputs);
                    self.ask(
                        move |claude| async move {
                            let delivered = claude.deliver(frame, &text).await;
                            tracing::info!(inputs = inputs.len(), "delivered");
                            delivered.err().map(|error| Back::Ill { what: error.to_string() })
                        },
                        span,
                    );
                }
                Effect::Withdraw { frame } => self.ask(
                    move |claude| async move {
                        Some(match claude.withdraw(frame).await {
                            Ok(given_back) => Back::Withdrawn { frame, given_back },
                            Err(error) => Back::Ill { what: error.to_string() },
                        })
                    },
                    tracing::Span::current(),
                ),
                Effect::Interrupt => self.order(|claude| async move { claude.interrupt().await }),
                Effect::EndSession => {
                    self.order(|claude| async move { claude.end_session(SESSION_END_WITHIN).await });
                }
                Effect::Freeze => {
                    self.serve(false);
                    self.order(|claude| async move { claude.freeze().await });
                }
                Effect::Thaw => {
                    self.serve(true);
                    self.order(|claude| async move { claude.thaw().await });
                }
                Effect::Kill => {
                    self.serve(false);
                    self.order(|claude| async move { claude.kill().await });
                }
                Effect::TurnStarted { turn } => drop(self.recorder.send(Output::TurnStarted { turn }).await),
                Effect::TurnEnded { turn, outcome } => {
                    let text = self.translator.take_turn_text();
                    drop(self.recorder.send(Output::TurnEnded { turn, outcome, text }).await);
                }
                Effect::Crashed { what, tried_again } => {
                    metrics::counter!("resident_process_events_total", "event" => "process.crash")
                        .increment(1);
                    tracing::warn!(what, "process.crash");
                    if !tried_again {
                        drop(self.recorder.send(Output::Notice { text: what }).await);
                    }
                }
                Effect::Answer { call, answer } => self.answer(call, answer),
            }
        }
        false
    }

    /// Sends a report; the log answers it, or it is sent again.
    fn report(&self, report: Report) {
        let said = SegmentReport { key: self.assignment.key, process: self.assignment.process, report };
        let message = Outgoing::message(&Subject::Segment(self.executor.id, said.process), &said)
            .traced(traceparent_of(&tracing::Span::current()));
        let nats = self.executor.nats.clone();
        tokio::spawn(
            async move {
                if let Err(error) = nats.publish(message).await {
                    tracing::debug!(%error, "the report was not sent; it is sent again");
                }
            }
            .in_current_span(),
        );
    }

    fn start(&self) {
        let starting = start::begin(
            Arc::clone(&self.executor),
            self.assignment.clone(),
            self.segment.log().clone(),
            self.calls.handle(Arc::clone(&self.executor.clock)),
        );
        self.then(async move { Some(Back::Started(Box::new(starting.await))) });
    }

    async fn came_back(&mut self, back: Option<Back>) -> Option<Signal> {
        match back? {
            Back::Started(begun) => match *begun {
                Begun::Runs(started) => {
                    let session = started.session.clone();
                    self.harness = Some(started);
                    Some(Signal::Ready { session })
                }
                Begun::Cannot { what } => Some(Signal::Unable { what }),
            },
            Back::Withdrawn { frame, given_back } => Some(Signal::Withdrawn { frame, given_back }),
            Back::Recorded { frame } => Some(Signal::Recorded { frame }),
            Back::Carded { call, card } => Some(Signal::Called { call, ask: Ask::Questions(card) }),
            Back::Ill { what } => {
                tracing::warn!(what, "the harness is ill; it is killed");
                self.carry_out_kill().await;
                None
            }
        }
    }

    async fn carry_out_kill(&mut self) {
        self.ask(
            |claude| async move {
                if let Err(error) = claude.kill().await {
                    tracing::error!(%error, "the harness cannot be killed");
                }
                None
            },
            tracing::Span::current(),
        );
    }

    async fn happened(&mut self, event: Option<HarnessEvent>) -> Option<Signal> {
        let Some(event) = event else {
            // Nothing comes after its end, which was told.
            self.harness = None;
            return None;
        };
        let translated = self.translator.translate(event);
        if let Some(change) = translated.live {
            self.live.tell(change).await;
        }
        for output in translated.outputs {
            drop(self.recorder.send(output).await);
        }
        if let Some(Signal::Ended { .. }) = &translated.signal
            && let Some(started) = self.harness.take()
        {
            started.close().await;
        }
        translated.signal
    }

    /// Asks the harness something, beside the loop.
    fn ask<F>(&self, what: impl FnOnce(Claude) -> F, span: tracing::Span)
    where
        F: Future<Output = Option<Back>> + Send + 'static,
    {
        let Some(started) = &self.harness else { return };
        self.then(what(started.claude.clone()).instrument(span));
    }

    /// As [`Self::ask`], where nothing comes back but that it cannot be done.
    fn order<T, F>(&self, what: impl FnOnce(Claude) -> F)
    where
        F: Future<Output = Result<T, ClaudeError>> + Send + 'static,
    {
        let ordered = |claude| {
            let done = what(claude);
            async move { done.await.err().map(|error| Back::Ill { what: error.to_string() }) }
        };
        self.ask(ordered, tracing::Span::current());
    }

    /// Whether what is inside is served.
    fn serve(&self, served: bool) {
        if let Some(started) = &self.harness {
            started.serve(served);
        }
    }

    /// Does something beside the loop; what it comes to comes back.
    fn then(&self, what: impl Future<Output = Option<Back>> + Send + 'static) {
        let back = self.back_sender.clone();
        tokio::spawn(
            async move {
                if let Some(came) = what.await {
                    // The segment may be over.
                    let _ = back.send(came).await;
                }
            }
            .in_current_span(),
        );
    }
}

/// The harness's next event; waits for ever where there is no harness.
async fn next_event(harness: &mut Option<Started>) -> Option<HarnessEvent> {
    match harness {
        Some(started) => started.events.recv().await,
        None => std::future::pending().await,
    }
}
