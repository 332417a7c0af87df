//! Random causes, legal or not, from two executors with two lives each.

use domain::Timestamp;
use domain::ids::{Epoch, EventSeq, MessageId, QuestionId, RecordSeq, ReportNo, WaitId};
use domain::process::{
    Card, Cause, ConversationKey, Decision, EventDigest, EventKey, Input, LossReason, Mode, OpenQuestion,
    ParkReason, Phase, SegmentEvent, Session, State, Step, StopScope, TaskKind, TurnOutcome, WaitOn,
    WaitRequest, step,
};
use proptest::collection::vec;
use proptest::prelude::*;
use tests::builders::{Life, input, key, message_as};
use tests::invariants::{check_log, fates};

/// What happens next, in terms that make sense in most states.
#[derive(Debug, Clone)]
enum Happening {
    Message(Mode),
    AgentGone,
    Stop(StopScope),
    Archive,
    Duplicate,
    Dead,
    /// An earlier input is rung again.
    Again(u64),
    Claim {
        life: usize,
        late: u64,
    },
    Report {
        life: usize,
        events: Vec<Event>,
        skew: i64,
        late: u64,
    },
    Lost {
        executor: u16,
        late: u64,
    },
    /// An event for the booked wait, or for one that is booked no more.
    Fire {
        stale: bool,
    },
    Due {
        stale: bool,
    },
    /// Nobody has needed it for long, or so the scheduler believes.
    Nudge {
        stale: bool,
    },
    SelfFinish {
        stale: bool,
    },
    /// An answer to the first open card, or to none.
    Answer {
        right: bool,
    },
    Retry,
    Fail,
    Hours(u32),
}

#[derive(Debug, Clone)]
enum Event {
    Ready,
    ConsumeSome(usize),
    TurnStarted,
    TurnEnded(TurnOutcome),
    Noted,
    Crashed,
    StoodStill,
    Wait(Option<u32>),
    CancelWait,
    Ask(usize),
    Withdraw,
    TaskStarted(u8),
    TaskEnded(u8),
    Finish,
    Park { attention: bool, unfinished: bool },
}

struct World {
    key: ConversationKey,
    log: Vec<Step>,
    seq: u64,
    now: Timestamp,
}

impl World {
    fn state(&self) -> Option<&State> {
        self.log.last().map(|step| &step.state)
    }

    fn epoch(&self, late: u64) -> Epoch {
        Epoch(self.state().map_or(0, |state| state.epoch.0.saturating_sub(late)))
    }

    fn next_report(&self, life: Life, epoch: Epoch) -> ReportNo {
        let reported = self.state().and_then(|state| state.reported.as_ref());
        reported
            .filter(|r| (r.executor, r.incarnation, r.epoch) == (life.executor, life.incarnation, epoch))
            .map_or(ReportNo(1), |r| r.n.next())
    }

    fn cause(&mut self, happening: &Happening) -> Cause {
        let open = self.state().and_then(|state| state.cards.first().cloned());
        let mut numbered = |cause: &dyn Fn(u64) -> Cause| {
            self.seq += 3;
            cause(self.seq)
        };
        match happening {
            Happening::Message(mode) => numbered(&|seq| message_as(seq, *mode)),
            Happening::AgentGone => {
                numbered(&|seq| input(seq, Input::Message { mode: Mode::Auto, start: None }))
            }
            Happening::Stop(scope) => numbered(&|seq| input(seq, Input::Stop { scope: *scope })),
            Happening::Archive => numbered(&|seq| input(seq, Input::Archive)),
            Happening::Duplicate => numbered(&|seq| input(seq, Input::Duplicate { of: RecordSeq(seq / 2) })),
            Happening::Dead => numbered(&|seq| input(seq, Input::Dead { error: "unreadable".into() })),
            Happening::Again(back) => message_as(self.seq.saturating_sub(3 * back), Mode::Auto),
            Happening::Claim { life, late } => lives()[*life].claim(self.epoch(*late).0),
            Happening::Report { life, events, skew, late } => {
                let (life, epoch) = (lives()[*life], self.epoch(*late));
                let n = self.next_report(life, epoch).0.saturating_add_signed(*skew);
                let events = events.iter().map(|event| self.event(event)).collect();
                life.report(epoch.0, n, events)
            }
            Happening::Fire { stale } => {
                let wait = self.wait(*stale);
                self.seq += 1;
                Cause::Happened { wait, event: Box::new(comment(self.seq)) }
            }
            Happening::Due { stale } => Cause::Due { wait: self.wait(*stale) },
            Happening::Nudge { stale } => Cause::Nudge { since: self.idle_since(*stale) },
            Happening::SelfFinish { stale } => Cause::SelfFinish { since: self.idle_since(*stale) },
            Happening::Answer { right } => {
                let open = open.filter(|_| *right);
                let card = open.as_ref().map_or(MessageId::UNKNOWN, |card| card.id);
                let questions: Vec<_> =
                    open.iter().flat_map(|card| &card.questions).map(|open| open.id).collect();
                numbered(&|seq| input(seq, Input::Answer { card, questions: questions.clone() }))
            }
            Happening::Retry => numbered(&|seq| input(seq, Input::Retry)),
            Happening::Fail => numbered(&|seq| input(seq, Input::Fail { why: "given up".into() })),
            // Time passes, and an old input is rung again.
            Happening::Hours(hours) => {
                self.now = self.now.plus(std::time::Duration::from_secs(u64::from(*hours) * 3_600));
                message_as(0, Mode::Auto)
            }
            Happening::Lost { executor, late } => Cause::Lost {
                executor: domain::ids::ExecutorId(*executor),
                epoch: self.epoch(*late),
                why: LossReason::NotListed,
            },
        }
    }

    /// The booked wait, or one that nobody booked.
    fn wait(&self, stale: bool) -> WaitId {
        let booked = self.state().and_then(State::timer).map(|(wait, _)| wait);
        let booked =
            booked.or_else(|| self.state().and_then(|state| state.wait.as_ref()).map(|wait| wait.id));
        booked.filter(|_| !stale).unwrap_or(WaitId::UNKNOWN)
    }

    /// Since when it is idle or is to finish, or another time.
    fn idle_since(&self, stale: bool) -> Timestamp {
        let since = self.state().and_then(|state| state.finishing.or_else(|| state.idle_since()));
        since.filter(|_| !stale).unwrap_or(Timestamp::EPOCH)
    }

    fn event(&self, event: &Event) -> SegmentEvent {
        match event {
            Event::Wait(minutes) => {
                let on = match minutes {
                    Some(minutes) => WaitOn::Time {
                        until: self.now.plus(std::time::Duration::from_secs(u64::from(*minutes) * 60)),
                    },
                    None => WaitOn::Event { event: pull_request(), kinds: Vec::new(), timeout: None },
                };
                SegmentEvent::Wait(WaitRequest { reason: "the build".into(), on })
            }
            Event::CancelWait => SegmentEvent::CancelWait,
            Event::Ask(count) => {
                let card = MessageId::of_output(self.key.conversation, &format!("card/{}", self.log.len()));
                let question =
                    |place| OpenQuestion { id: QuestionId::of(card, place), free_text: place == 0 };
                SegmentEvent::Asked(Card { id: card, questions: (0..*count).map(question).collect() })
            }
            Event::Withdraw => {
                let cards = self.state().map(|state| state.cards.clone()).unwrap_or_default();
                let first = cards.first().and_then(|card| card.questions.first());
                SegmentEvent::Withdrawn { questions: first.map(|open| open.id).into_iter().collect() }
            }
            Event::TaskStarted(task) => SegmentEvent::TaskStarted {
                task: task.to_string(),
                kind: if task % 2 == 0 { TaskKind::Command } else { TaskKind::SubAgent },
                label: "make".into(),
            },
            Event::TaskEnded(task) => SegmentEvent::TaskEnded { task: task.to_string() },
            Event::Ready => SegmentEvent::Ready { session: Session { id: "s".into(), version: "1".into() } },
            Event::ConsumeSome(count) => SegmentEvent::Consumed {
                inputs: self.state().map(|s| s.deliverable().take(*count).collect()).unwrap_or_default(),
                fired: self
                    .state()
                    .map(|s| s.fired.iter().map(|fired| fired.wait).collect())
                    .unwrap_or_default(),
            },
            Event::Crashed => {
                SegmentEvent::Crashed { what: "signal 9".into(), events: Some(EventSeq(self.seq)) }
            }
            Event::StoodStill => SegmentEvent::StoodStill { seconds: 40 },
            Event::TurnStarted => SegmentEvent::TurnStarted,
            Event::TurnEnded(outcome) => SegmentEvent::TurnEnded { outcome: *outcome },
            Event::Noted => SegmentEvent::Noted { text: "half way".into() },
            Event::Finish => SegmentEvent::Finish { summary: "done".into() },
            Event::Park { attention: true, unfinished } => SegmentEvent::Park {
                reason: ParkReason::NeedsAttention { what: "mend it".into() },
                unfinished: *unfinished,
                events: Some(EventSeq(self.seq)),
            },
            Event::Park { attention: false, unfinished } => SegmentEvent::Park {
                reason: ParkReason::Absent,
                unfinished: *unfinished,
                events: Some(EventSeq(self.seq)),
            },
        }
    }

    fn happen(&mut self, happening: &Happening) {
        let cause = self.cause(happening);
        self.now = self.now.plus(std::time::Duration::from_millis(7));
        if let Ok(Decision::Append(step)) = step(self.key, self.state(), cause, self.now) {
            self.log.push(*step);
            check_log(self.key, &self.log).unwrap_or_else(|breach| panic!("{breach:?} in {:#?}", self.log));
        }
    }

    /// A healthy executor takes the process and works off what is there.
    fn drain(&mut self) {
        for _ in 0..4 {
            let life = lives()[0];
            match self.state().map(|state| state.phase.clone()) {
                Some(Phase::Waking { .. }) => {
                    let volume = self.state().and_then(|state| state.volume);
                    let life =
                        lives().into_iter().find(|l| volume.is_none_or(|v| v == l.executor)).unwrap_or(life);
                    let epoch = self.epoch(0);
                    self.apply(life.claim(epoch.0));
                }
                Some(Phase::Parked { .. }) => self.happen(&Happening::Message(Mode::Auto)),
                Some(Phase::Hot(hot)) => {
                    let life = Life { executor: hot.executor, incarnation: hot.incarnation };
                    let epoch = self.epoch(0);
                    let n = self.next_report(life, epoch);
                    let ended = self.event(&Event::TurnEnded(TurnOutcome::Completed));
                    self.apply(life.report(epoch.0, n.0, vec![ended]));
                    let n = self.next_report(life, epoch);
                    let consumed = self.event(&Event::ConsumeSome(usize::MAX));
                    self.apply(life.report(epoch.0, n.0, vec![consumed]));
                }
                _ => return,
            }
        }
    }

    fn apply(&mut self, cause: Cause) {
        match step(self.key, self.state(), cause, self.now) {
            Ok(Decision::Append(step)) => self.log.push(*step),
            other => panic!("a healthy segment is told {other:?} in {:#?}", self.state()),
        }
    }
}

fn pull_request() -> EventKey {
    EventKey::Github { repo: "o/r".into(), number: 7 }
}

fn comment(seq: u64) -> EventDigest {
    EventDigest {
        seq: EventSeq(seq),
        key: pull_request(),
        kind: "issue_comment.created".into(),
        summary: "a comment".into(),
        url: None,
        author: Some("mallory".into()),
        association: Some("NONE".into()),
        text: Some("x".repeat(1_000)),
    }
}

fn lives() -> [Life; 4] {
    [Life::new(0, 1), Life::new(0, 2), Life::new(1, 3), Life::new(1, 4)]
}

fn event() -> impl Strategy<Value = Event> {
    let outcome =
        prop_oneof![Just(TurnOutcome::Completed), Just(TurnOutcome::Interrupted), Just(TurnOutcome::Failed)];
    prop_oneof![
        Just(Event::Ready),
        (0_usize..4).prop_map(Event::ConsumeSome),
        Just(Event::TurnStarted),
        outcome.prop_map(Event::TurnEnded),
        Just(Event::Noted),
        Just(Event::Crashed),
        Just(Event::StoodStill),
        Just(Event::Finish),
        proptest::option::of(0_u32..240).prop_map(Event::Wait),
        Just(Event::CancelWait),
        (1_usize..6).prop_map(Event::Ask),
        Just(Event::Withdraw),
        (0_u8..4).prop_map(Event::TaskStarted),
        (0_u8..4).prop_map(Event::TaskEnded),
        (any::<bool>(), any::<bool>())
            .prop_map(|(attention, unfinished)| Event::Park { attention, unfinished }),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    let mode = prop_oneof![3 => Just(Mode::Auto), 1 => Just(Mode::Steer), 1 => Just(Mode::Queue), 1 => Just(Mode::Interrupt)];
    let late = prop_oneof![4 => Just(0_u64), 1 => 1_u64..3];
    let skew = prop_oneof![5 => Just(0_i64), 1 => -2_i64..3];
    prop_oneof![
        6 => mode.prop_map(Happening::Message),
        1 => Just(Happening::AgentGone),
        2 => prop_oneof![Just(StopScope::Turn), Just(StopScope::Process)].prop_map(Happening::Stop),
        1 => Just(Happening::Archive),
        1 => Just(Happening::Duplicate),
        1 => Just(Happening::Dead),
        1 => (0_u64..4).prop_map(Happening::Again),
        8 => (0_usize..4, late.clone()).prop_map(|(life, late)| Happening::Claim { life, late }),
        16 => (0_usize..4, vec(event(), 1..4), skew, late.clone())
            .prop_map(|(life, events, skew, late)| Happening::Report { life, events, skew, late }),
        1 => (0_u16..2, late).prop_map(|(executor, late)| Happening::Lost { executor, late }),
        4 => prop::bool::weighted(0.2).prop_map(|stale| Happening::Fire { stale }),
        4 => prop::bool::weighted(0.2).prop_map(|stale| Happening::Due { stale }),
        1 => prop::bool::weighted(0.2).prop_map(|stale| Happening::Nudge { stale }),
        2 => prop::bool::weighted(0.2).prop_map(|stale| Happening::SelfFinish { stale }),
        3 => prop::bool::weighted(0.8).prop_map(|right| Happening::Answer { right }),
        1 => Just(Happening::Retry),
        1 => Just(Happening::Fail),
        2 => (1_u32..6).prop_map(Happening::Hours),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_happens_the_log_stays_sound(happenings in vec(happening(), 1..60)) {
        let mut world = World { key: key(9), log: Vec::new(), seq: 0, now: Timestamp::EPOCH };
        for happening in &happenings {
            world.happen(happening);
        }
        world.drain();
        check_log(world.key, &world.log).unwrap_or_else(|breach| panic!("{breach:?}"));
        let live = world.state().is_some_and(State::is_live);
        let fates = fates(&world.log);
        for at in &world.log {
            let Cause::Input { seq, input, .. } = &at.cause else { continue };
            let ends = fates.get(seq).map_or(0, Vec::len);
            match input {
                Input::Message { .. } | Input::Answer { .. } => prop_assert_eq!(ends, 1, "message {} ends as {:?}; live: {}", seq, fates.get(seq), live),
                Input::Duplicate { .. } | Input::Dead { .. } => prop_assert_eq!(ends, 1),
                Input::Stop { .. } | Input::Archive | Input::Retry | Input::Fail { .. } => {
                    prop_assert!(ends <= 1);
                }
            }
        }
        let undelivered = world.state().map_or(0, |state| state.undelivered.len());
        prop_assert_eq!(undelivered, 0);
        prop_assert!(world.state().is_none_or(|state| !state.has_unread()));
        // A state stays small however much has happened.
        if let Some(state) = world.state() {
            prop_assert!(serde_json::to_vec(state).unwrap().len() < 16 * 1024);
        }
    }
}
