//! A harness that plays: it reads what it is given, works for a while, calls what an agent may call, and now and then
//! crashes. Its session outlives it, as a session file does, and knows which frames it has read.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use contract::messages::record::{Output, Question};
use domain::ids::{Epoch, MessageId, QuestionId, RecordSeq, WaitId};
use domain::process::{
    Card, ConversationKey, EventKey, OpenQuestion, Session, TaskKind, TurnOutcome, WaitOn, WaitRequest,
};
use domain::segment::{Ask, CallAnswer, CallNo, Contents, Signal};
use rand::Rng;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::world::World;

/// What a conversation's session file holds.
#[derive(Debug, Default)]
pub(crate) struct SessionFile {
    pub(crate) read: BTreeSet<Uuid>,
    pub(crate) heard: Vec<RecordSeq>,
    pub(crate) told: Vec<WaitId>,
}

/// What the segment's task asks for.
#[derive(Debug)]
pub(crate) enum Order {
    Deliver { frame: Uuid, contents: Contents },
    Withdraw { frame: Uuid },
    Interrupt,
    EndSession,
    Kill,
    Freeze,
    Thaw,
    Answered { call: CallNo, answer: CallAnswer },
}

/// What it tells the segment's task.
#[derive(Debug)]
pub(crate) enum Told {
    Signal(Signal),
    /// A card, which is in the record before the call is told.
    Card {
        call: CallNo,
        card: Card,
        output: Output,
    },
}

pub(crate) struct Harness {
    world: Arc<World>,
    key: ConversationKey,
    epoch: Epoch,
    orders: mpsc::UnboundedReceiver<Order>,
    told: mpsc::UnboundedSender<Told>,
    inbox: VecDeque<(Uuid, Contents)>,
    /// It would echo these without reading them, as long as it lives.
    given_back: BTreeSet<Uuid>,
    /// What is left of the turn that runs.
    turn: Option<u32>,
    frozen: bool,
    /// The call that waits for its answer.
    call: Option<CallNo>,
    calls: u64,
    finishing: bool,
    tasks: BTreeSet<String>,
}

impl Harness {
    /// Starts it; it ends with `life`.
    pub(crate) fn start(
        world: &Arc<World>,
        key: ConversationKey,
        epoch: Epoch,
        life: CancellationToken,
    ) -> (mpsc::UnboundedSender<Order>, mpsc::UnboundedReceiver<Told>) {
        let (sender, orders) = mpsc::unbounded_channel();
        let (told, receiver) = mpsc::unbounded_channel();
        let harness = Self {
            world: Arc::clone(world),
            key,
            epoch,
            orders,
            told,
            inbox: VecDeque::new(),
            given_back: BTreeSet::new(),
            turn: None,
            frozen: false,
            call: None,
            calls: 0,
            finishing: false,
            tasks: BTreeSet::new(),
        };
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = life.cancelled() => {}
                () = harness.live() => {}
            }
        });
        (sender, receiver)
    }

    async fn live(mut self) {
        let setup = self.random(50, 3_000);
        tokio::time::sleep(setup).await;
        let session = Session { id: self.key.conversation.to_string(), version: "1".into() };
        self.tell(Signal::Ready { session });
        loop {
            let something = self.turn.is_some() || !self.inbox.is_empty() || !self.tasks.is_empty();
            let busy = !self.frozen && self.call.is_none() && something;
            let pause = self.random(20, 2_500);
            tokio::select! {
                biased;
                order = self.orders.recv() => {
                    let Some(order) = order else { return };
                    if !self.obey(order) {
                        return;
                    }
                }
                crash = self.world.crash_of(self.key), if !self.frozen => return self.end(crash),
                () = tokio::time::sleep(pause), if busy => if !self.act() { return },
            }
        }
    }

    /// Whether it lives on.
    fn obey(&mut self, order: Order) -> bool {
        match order {
            Order::Deliver { frame, contents } => self.inbox.push_back((frame, contents)),
            Order::Withdraw { frame } => {
                let there = self.inbox.iter().position(|(known, _)| *known == frame);
                if let Some(at) = there {
                    self.inbox.remove(at);
                    self.given_back.insert(frame);
                }
                self.tell(Signal::Withdrawn { frame, given_back: there.is_some() });
            }
            Order::Interrupt => {
                self.call = None;
                if self.turn.take().is_some() {
                    self.tell(Signal::TurnEnded { outcome: TurnOutcome::Interrupted });
                }
            }
            Order::EndSession => return self.ended("it was asked to"),
            Order::Kill => return self.ended("it was killed"),
            Order::Freeze => self.frozen = true,
            Order::Thaw => self.frozen = false,
            Order::Answered { call, answer } => {
                if self.call == Some(call) {
                    self.call = None;
                    self.finishing |= answer == CallAnswer::Done && self.world.chance(0.9);
                }
            }
        }
        true
    }

    /// One thing it does; whether it lives on.
    fn act(&mut self) -> bool {
        self.world.acts(self.key, self.epoch);
        if self.turn.is_none() && self.inbox.is_empty() {
            // What runs beside the turns ends by itself.
            if let Some(task) = self.tasks.pop_first() {
                self.tell(Signal::TaskEnded { task });
            }
            return true;
        }
        if self.turn.is_none() {
            self.turn = Some(self.world.rng().random_range(1..5));
            self.finishing = false;
            self.tell(Signal::Running);
            return true;
        }
        if !self.inbox.is_empty() && self.world.chance(0.7) {
            return self.read();
        }
        if self.finishing {
            self.turn = Some(0);
        }
        match self.turn {
            Some(0) | None => {
                if let Some((frame, contents)) = self.inbox.pop_front() {
                    // Nothing is left unread at the end of a turn.
                    self.inbox.push_front((frame, contents));
                    return self.read();
                }
                self.turn = None;
                self.tell(Signal::TurnEnded { outcome: TurnOutcome::Completed });
            }
            Some(left) => {
                self.turn = Some(left - 1);
                if self.world.is_calm() { self.wind_up(left) } else { self.work() }
            }
        }
        true
    }

    fn read(&mut self) -> bool {
        let Some((frame, contents)) = self.inbox.pop_front() else { return true };
        let given_back = self.given_back.contains(&frame);
        self.session(|session| {
            if given_back {
                return;
            }
            if session.read.insert(frame) || frame.is_nil() {
                session.heard.extend(contents.inputs.iter().copied());
                session.told.extend(contents.fired.iter().copied());
            }
        });
        // The worst moment: it has read, and nobody knows.
        if !self.world.is_calm() && self.world.chance(0.01) {
            return self.ended("it crashed between reading and echoing");
        }
        self.tell(Signal::Consumed { frame });
        true
    }

    /// What an agent does when it has the time.
    fn work(&mut self) {
        let what = self.world.rng().random_range(0..100);
        match what {
            0..20 => self.tell(Signal::Noted { text: "on it".into() }),
            20..35 => {
                let tool = format!("tool-{}", self.calls);
                self.tell(Signal::ToolStarted { tool: tool.clone() });
                self.tell(Signal::ToolEnded { tool });
            }
            35..42 => {
                let task = format!("task-{}-{}", self.epoch, self.tasks.len());
                self.tasks.insert(task.clone());
                self.tell(Signal::TaskStarted { task, kind: TaskKind::Command, label: "sleep".into() });
            }
            42..50 => {
                if let Some(task) = self.tasks.pop_first() {
                    self.tell(Signal::TaskEnded { task });
                }
            }
            50..65 => {
                let seconds = self.world.rng().random_range(1..90);
                let until = self.world.now().plus(Duration::from_secs(seconds));
                self.ask(Ask::Wait(WaitRequest { reason: "time".into(), on: WaitOn::Time { until } }));
            }
            65..75 => {
                let number = self.world.rng().random_range(1..4);
                let timeout = self.world.rng().random_range(5..120);
                let on = WaitOn::Event {
                    event: EventKey::Github { repo: "acme/site".into(), number },
                    kinds: Vec::new(),
                    timeout: Some(self.world.now().plus(Duration::from_secs(timeout))),
                };
                self.ask(Ask::Wait(WaitRequest { reason: "event".into(), on }));
            }
            75..83 => self.question(),
            83..87 => self.ask(Ask::CancelWait),
            87..95 => self.ask(Ask::Finish { summary: "done".into() }),
            _ => {}
        }
    }

    /// What it does so that its process comes to an end.
    fn wind_up(&mut self, left: u32) {
        if let Some(task) = self.tasks.pop_first() {
            return self.tell(Signal::TaskEnded { task });
        }
        if left.is_multiple_of(2) {
            self.ask(Ask::CancelWait);
        } else {
            self.ask(Ask::Finish { summary: "done".into() });
        }
    }

    fn question(&mut self) {
        let card = MessageId::of_output(self.key.conversation, &format!("{}-{}", self.epoch, self.calls));
        let id = QuestionId::of(card, 0);
        let asked =
            Question { id, text: "which?".into(), options: Vec::new(), multiple: false, free_text: true };
        let call = self.next_call();
        let output = Output::Card { card, questions: vec![asked] };
        let card = Card { id: card, questions: vec![OpenQuestion { id, free_text: true }] };
        let _ = self.told.send(Told::Card { call, card, output });
    }

    fn ask(&mut self, ask: Ask) {
        let call = self.next_call();
        self.tell(Signal::Called { call, ask });
    }

    fn next_call(&mut self) -> CallNo {
        self.calls += 1;
        let call = CallNo(self.calls);
        self.call = Some(call);
        call
    }

    fn ended(&self, what: &str) -> bool {
        self.end(what.to_owned());
        false
    }

    fn end(&self, what: String) {
        self.tell(Signal::Ended { what });
    }

    fn tell(&self, signal: Signal) {
        let _ = self.told.send(Told::Signal(signal));
    }

    fn session<T>(&self, what: impl FnOnce(&mut SessionFile) -> T) -> T {
        what(self.world.sessions().entry(self.key.conversation).or_default())
    }

    fn random(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.world.rng().random_range(from..to))
    }
}
