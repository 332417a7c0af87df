//! A hot segment of the modelled executor: the same pure `domain::segment` as the real one, the modelled harness and the
//! modelled broker round it.

use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError, Outgoing, Reader, Seen, Start, Stored, Taken};
use contract::Subject;
use contract::messages::assign::Assignment;
use contract::messages::record::{InputEntry, InputKind, Output, OutputEntry};
use contract::messages::segment::SegmentReport;
use contract::subjects::filter;
use contract::topology::{PROCESS, RECORD};
use domain::ids::RecordSeq;
use domain::policy;
use domain::process::{Phase, Report, State, Step};
use domain::segment::{Ask, Contents, Effect, Identity, Segment, SegmentPolicy, Signal};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::executor::Life;
use crate::harness::{Harness, Order, Told};

const POLICY: SegmentPolicy = SegmentPolicy {
    park_after: Duration::from_secs(20),
    park_watched_after: Duration::from_secs(60),
    viewer_gone_after: policy::VIEWER_GONE_AFTER,
    turn_end_grace: policy::TURN_END_GRACE,
    cap: Duration::from_secs(90),
};

const UNCLAIMED_AGAIN_AFTER: Duration = Duration::from_secs(1);
const RECORD_AGAIN_AFTER: Duration = Duration::from_millis(300);

struct Task {
    life: Arc<Life>,
    assignment: Assignment,
    segment: Segment,
    taken: Option<Taken>,
    orders: Option<mpsc::UnboundedSender<Order>>,
    told: Option<mpsc::UnboundedReceiver<Told>>,
    /// What the record has acknowledged comes back here.
    back: mpsc::UnboundedReceiver<Signal>,
    back_sender: mpsc::UnboundedSender<Signal>,
    outputs: u64,
}

pub(crate) async fn run(life: Arc<Life>, assignment: Assignment, taken: Taken) {
    let subject = Subject::Process(assignment.key, assignment.process).to_string();
    let mut log = Reader::open(&life.bus, PROCESS, subject, Start::LastOfEach);
    let mut newest = None;
    while let Seen::Message(stored) = log.next().await {
        newest = Some(state_in(&stored));
    }
    let wanted =
        |state: &State| state.epoch == assignment.epoch && matches!(state.phase, Phase::Waking { .. });
    let Some(state) = newest.filter(wanted) else { return taken.done().await };
    let _held = life.hold(assignment.process, assignment.epoch);
    let me = Identity {
        executor: life.id,
        incarnation: life.incarnation,
        epoch: assignment.epoch,
        renewal: life.renewal(),
    };
    let first = state.undelivered.first().copied();
    let mut inputs = first
        .map(|first| Reader::open(&life.bus, RECORD, filter::inputs(assignment.key), Start::At(first.0)));
    let former = former_frames(&life.bus, &state).await;
    let (segment, effects) = Segment::new(me, POLICY, state, former, life.world.monotonic());
    let (back_sender, back) = mpsc::unbounded_channel();
    let (orders, told) = (None, None);
    let mut task =
        Task { life, assignment, segment, taken: Some(taken), orders, told, back, back_sender, outputs: 0 };
    task.live(&mut log, &mut inputs, effects).await;
    match (task.taken, &task.segment.log().phase) {
        (Some(taken), Phase::Waking { .. }) => taken.put_back(UNCLAIMED_AGAIN_AFTER).await,
        (Some(taken), _) => taken.done().await,
        (None, _) => {}
    }
}

impl Task {
    async fn live(&mut self, log: &mut Reader, inputs: &mut Option<Reader>, effects: Vec<Effect>) {
        if self.carry_out(effects) {
            return;
        }
        // Told once in the beginning, whatever it is.
        let mut held = !self.life.held.get();
        let mut stood_still = self.life.stood_still.get();
        loop {
            let now = self.life.world.monotonic();
            let wait = self.segment.next_tick().map_or(Duration::MAX, |at| at.saturating_sub(now));
            if inputs.is_none() && !self.segment.log().undelivered.is_empty() {
                let first = self.segment.log().undelivered[0];
                let subject = filter::inputs(self.assignment.key);
                *inputs = Some(Reader::open(&self.life.bus, RECORD, subject, Start::At(first.0)));
            }
            let signal = tokio::select! {
                biased;
                seen = log.next() => match seen {
                    Seen::Message(stored) => Some(Signal::Log(Box::new(state_in(&stored)))),
                    Seen::CaughtUp => None,
                },
                Some(back) = self.back.recv() => Some(back),
                told = next_of(&mut self.told) => self.told(told),
                known = known(inputs) => known,
                () = self.life.stood_still.changed(&mut stood_still) => {
                    held = !self.life.held.get();
                    Some(Signal::Frozen)
                }
                () = self.life.held.changed(&mut held) => {
                    Some(if held { Signal::Reachable } else { Signal::CutOff })
                }
                () = tokio::time::sleep(wait) => Some(Signal::Tick),
            };
            self.life.goes_on().await;
            let Some(signal) = signal else { continue };
            let effects = self.segment.on(signal, self.life.world.monotonic());
            if self.segment.log().hot().is_some()
                && let Some(taken) = self.taken.take()
            {
                taken.done().await;
            }
            if self.carry_out(effects) {
                return;
            }
        }
    }

    fn told(&mut self, told: Option<Told>) -> Option<Signal> {
        match told {
            Some(Told::Signal(signal)) => {
                if matches!(signal, Signal::Ended { .. }) {
                    (self.orders, self.told) = (None, None);
                }
                Some(signal)
            }
            Some(Told::Card { call, card, output }) => {
                self.record(output, Signal::Called { call, ask: Ask::Questions(card) });
                None
            }
            None => {
                self.told = None;
                None
            }
        }
    }

    /// Whether that was the last of it.
    fn carry_out(&mut self, effects: Vec<Effect>) -> bool {
        for effect in effects {
            match effect {
                Effect::Leave => return true,
                Effect::Report(report) => self.report(report),
                Effect::Start => {
                    let (orders, told) = Harness::start(
                        &self.life.world,
                        self.assignment.key,
                        self.assignment.epoch,
                        self.life.ends.clone(),
                    );
                    self.life.owns(orders.clone());
                    (self.orders, self.told) = (Some(orders), Some(told));
                }
                Effect::Record { frame, contents: Contents { inputs, fired } } => {
                    self.record(Output::InHarness { frame, inputs, fired }, Signal::Recorded { frame });
                }
                Effect::Deliver { frame, contents, .. } => self.order(Order::Deliver { frame, contents }),
                Effect::Withdraw { frame } => self.order(Order::Withdraw { frame }),
                Effect::Interrupt => self.order(Order::Interrupt),
                Effect::EndSession => self.order(Order::EndSession),
                Effect::Kill => self.order(Order::Kill),
                Effect::Freeze => self.order(Order::Freeze),
                Effect::Thaw => self.order(Order::Thaw),
                Effect::Answer { call, answer } => self.order(Order::Answered { call, answer }),
                Effect::TurnStarted { .. } | Effect::TurnEnded { .. } | Effect::Crashed { .. } => {}
            }
        }
        false
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(order);
        }
    }

    fn report(&self, report: Report) {
        let said = SegmentReport { key: self.assignment.key, process: self.assignment.process, report };
        let message = Outgoing::message(&Subject::Segment(self.life.id, said.process), &said);
        let port = self.life.bus.port();
        // What fails is sent again by the segment.
        tokio::spawn(async move { port.publish(message).await });
    }

    /// Writes to the record until it is there; then `then` comes back.
    fn record(&mut self, what: Output, then: Signal) {
        self.outputs += 1;
        let Assignment { key, process, epoch, .. } = self.assignment.clone();
        let entry = OutputEntry { at: self.life.world.now(), process, epoch, what };
        let name = format!("{process}-{epoch}-{}-{}", self.life.incarnation.0, self.outputs);
        let message = Outgoing::message(&Subject::RecordOut(key, self.life.id), &entry).with_id(name);
        let (port, back) = (self.life.bus.port(), self.back_sender.clone());
        tokio::spawn(async move {
            while let Err(error) = port.publish(message.clone()).await {
                assert!(!matches!(error, BusError::Rejected(_)), "{error}");
                tokio::time::sleep(RECORD_AGAIN_AFTER).await;
            }
            let _ = back.send(then);
        });
    }
}

async fn next_of(told: &mut Option<mpsc::UnboundedReceiver<Told>>) -> Option<Told> {
    match told {
        Some(told) => told.recv().await,
        None => std::future::pending().await,
    }
}

/// The next text that is at hand.
async fn known(inputs: &mut Option<Reader>) -> Option<Signal> {
    let Some(reader) = inputs else { return std::future::pending().await };
    loop {
        let Seen::Message(stored) = reader.next().await else { continue };
        let entry: InputEntry = stored.decode().expect("an input");
        if matches!(entry.what, InputKind::Message { .. } | InputKind::Answer { .. }) {
            return Some(Signal::Known { input: RecordSeq(stored.sequence), bytes: 10 });
        }
    }
}

fn state_in(stored: &Stored) -> State {
    stored.decode::<Step>().expect("a step").state
}

async fn former_frames(bus: &Bus, state: &State) -> Vec<(Uuid, Contents)> {
    let (Some(first), Some(volume)) = (state.undelivered.first(), state.volume) else { return Vec::new() };
    let outputs = Subject::RecordOut(state.key(), volume).to_string();
    let mut reader = Reader::open(bus, RECORD, outputs, Start::At(first.0));
    let mut frames = Vec::new();
    while let Seen::Message(stored) = reader.next().await {
        if let Ok(OutputEntry { what: Output::InHarness { frame, inputs, fired }, .. }) = stored.decode() {
            frames.push((frame, Contents { inputs, fired }));
        }
    }
    frames
}
