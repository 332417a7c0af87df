//! Random causes, legal or not, from two executors with two lives each.

use domain::Timestamp;
use domain::ids::{Epoch, RecordSeq, ReportNo};
use domain::process::{
    Cause, ConversationKey, Decision, Input, LossReason, Mode, ParkReason, Phase, SegmentEvent, Session,
    State, Step, StopScope, TurnOutcome, step,
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
}

#[derive(Debug, Clone)]
enum Event {
    Ready,
    ConsumeSome(usize),
    TurnStarted,
    TurnEnded(TurnOutcome),
    Noted,
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
            Happening::Lost { executor, late } => Cause::Lost {
                executor: domain::ids::ExecutorId(*executor),
                epoch: self.epoch(*late),
                why: LossReason::NotListed,
            },
        }
    }

    fn event(&self, event: &Event) -> SegmentEvent {
        match event {
            Event::Ready => SegmentEvent::Ready { session: Session { id: "s".into(), version: "1".into() } },
            Event::ConsumeSome(count) => SegmentEvent::Consumed {
                inputs: self.state().map(|s| s.deliverable().take(*count).collect()).unwrap_or_default(),
            },
            Event::TurnStarted => SegmentEvent::TurnStarted,
            Event::TurnEnded(outcome) => SegmentEvent::TurnEnded { outcome: *outcome },
            Event::Noted => SegmentEvent::Noted { text: "half way".into() },
            Event::Finish => SegmentEvent::Finish { summary: "done".into() },
            Event::Park { attention: true, unfinished } => SegmentEvent::Park {
                reason: ParkReason::NeedsAttention { what: "mend it".into() },
                unfinished: *unfinished,
            },
            Event::Park { attention: false, unfinished } => {
                SegmentEvent::Park { reason: ParkReason::Absent, unfinished: *unfinished }
            }
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
        Just(Event::Finish),
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
                Input::Message { .. } => prop_assert_eq!(ends, 1, "message {} ends as {:?}; live: {}", seq, fates.get(seq), live),
                Input::Duplicate { .. } | Input::Dead { .. } => prop_assert_eq!(ends, 1),
                Input::Stop { .. } | Input::Archive => prop_assert!(ends <= 1),
            }
        }
        let undelivered = world.state().map_or(0, |state| state.undelivered.len());
        prop_assert_eq!(undelivered, 0);
        // A state stays small however much has happened.
        if let Some(state) = world.state() {
            prop_assert!(serde_json::to_vec(state).unwrap().len() < 16 * 1024);
        }
    }
}
