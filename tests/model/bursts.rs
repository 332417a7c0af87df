//! Ten messages into a process that parks, wakes and finishes: at every boundary of these protocols, in every order in
//! which log, reports and harness can come through, each is read exactly once and in order.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use domain::Timestamp;
use domain::ids::{Epoch, ExecutorId, Incarnation, RecordSeq, Renewal};
use domain::process::{
    Cause, ConversationKey, Decision, Mode, Phase, Session, State, Step, TurnOutcome, step,
};
use domain::segment::{Ask, CallNo, Contents, Effect, Identity, Segment, SegmentPolicy, Signal};
use proptest::collection::vec;
use proptest::prelude::*;
use tests::builders::{key, message_as};
use tests::invariants::check_log;
use uuid::Uuid;

const MESSAGES: usize = 10;

/// Far more than a burst takes; beyond it nothing comes to rest.
const MOVES_MAX: usize = 5_000;

const POLICY: SegmentPolicy = SegmentPolicy {
    park_after: Duration::from_secs(120),
    park_watched_after: Duration::from_secs(1_800),
    viewer_gone_after: Duration::from_secs(75),
    turn_end_grace: Duration::from_secs(15),
    cap: domain::policy::SEGMENT_CAP,
};

/// A conversation, the segments that come to hold it, and a harness that behaves.
struct World {
    key: ConversationKey,
    log: Vec<Step>,
    segment: Option<Segment>,
    now: Duration,
    seq: u64,
    /// Reports on their way to the log.
    reports: VecDeque<Cause>,
    /// States on their way to the segment.
    told: VecDeque<State>,
    /// What the harness and the runtime tell the segment.
    harness: VecDeque<Signal>,
    /// What the harness has read, and under which ids: what it knows it does not read again.
    read: Vec<RecordSeq>,
    frames: BTreeSet<Uuid>,
    former: Vec<(Uuid, Contents)>,
    /// How many turns call `finish_process`.
    finishes: usize,
    calls: u64,
}

impl World {
    fn new(finishes: usize) -> Self {
        let mut world = Self {
            key: key(5),
            log: Vec::new(),
            segment: None,
            now: Duration::ZERO,
            seq: 0,
            reports: VecDeque::new(),
            told: VecDeque::new(),
            harness: VecDeque::new(),
            read: Vec::new(),
            frames: BTreeSet::new(),
            former: Vec::new(),
            finishes,
            calls: 0,
        };
        world.say();
        world
    }

    fn state(&self) -> Option<&State> {
        self.log.last().map(|step| &step.state)
    }

    fn say(&mut self) {
        self.seq += 1;
        self.append(message_as(self.seq, Mode::Auto));
    }

    fn append(&mut self, cause: Cause) {
        if let Ok(Decision::Append(step)) = step(self.key, self.state(), cause, Timestamp::EPOCH) {
            self.told.push_back(step.state.clone());
            self.log.push(*step);
        }
    }

    /// One thing comes through; which, `choice` says. Whether anything could.
    fn moves(&mut self, choice: usize) -> bool {
        let waking = matches!(self.state().map(|state| &state.phase), Some(Phase::Waking { .. }));
        if self.segment.is_none() && waking {
            self.begin();
            return true;
        }
        let ready = [!self.reports.is_empty(), !self.told.is_empty(), !self.harness.is_empty()];
        let open: Vec<_> = (0..ready.len()).filter(|queue| ready[*queue]).collect();
        let Some(queue) = open.get(choice % open.len().max(1)) else { return false };
        match queue {
            0 => {
                let report = self.reports.pop_front().expect("a report");
                self.append(report);
            }
            1 => {
                let state = self.told.pop_front().expect("a state");
                let inputs: Vec<_> = state.undelivered.clone();
                self.tell(Signal::Log(Box::new(state)));
                for input in inputs {
                    self.tell(Signal::Known { input, bytes: 10 });
                }
            }
            _ => {
                let signal = self.harness.pop_front().expect("a signal");
                self.tell(signal);
            }
        }
        true
    }

    fn begin(&mut self) {
        let state = self.state().expect("a state").clone();
        let me = Identity {
            executor: ExecutorId(0),
            incarnation: Incarnation(Uuid::from_u128(1)),
            epoch: Epoch(state.epoch.0),
            renewal: Renewal(1),
        };
        self.told.clear();
        self.harness.clear();
        let inputs = state.undelivered.clone();
        let (segment, effects) = Segment::new(me, POLICY, state, self.former.clone(), self.now);
        self.segment = Some(segment);
        self.carry_out(effects);
        for input in inputs {
            self.tell(Signal::Known { input, bytes: 10 });
        }
    }

    fn tell(&mut self, signal: Signal) {
        let Some(segment) = &mut self.segment else { return };
        let effects = segment.on(signal, self.now);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Report(report) => self.reports.push_back(Cause::Report(report)),
                Effect::Start => {
                    let session = Session { id: "s".into(), version: "1".into() };
                    self.harness.push_back(Signal::Ready { session });
                }
                Effect::Record { frame, contents } => {
                    self.former.push((frame, contents));
                    self.harness.push_back(Signal::Recorded { frame });
                }
                Effect::Deliver { frame, contents, .. } => {
                    if self.frames.insert(frame) {
                        self.read.extend(contents.inputs);
                    }
                    self.harness.extend([Signal::Running, Signal::Consumed { frame }]);
                    if self.finishes > 0 {
                        self.finishes -= 1;
                        self.calls += 1;
                        let ask = Ask::Finish { summary: "done".into() };
                        self.harness.push_back(Signal::Called { call: CallNo(self.calls), ask });
                    }
                    self.harness.push_back(Signal::TurnEnded { outcome: TurnOutcome::Completed });
                }
                Effect::Withdraw { frame } => {
                    self.harness.push_back(Signal::Withdrawn { frame, given_back: false });
                }
                Effect::Interrupt => {
                    self.harness.push_back(Signal::TurnEnded { outcome: TurnOutcome::Interrupted });
                }
                Effect::EndSession | Effect::Kill => {
                    self.harness.clear();
                    self.harness.push_back(Signal::Ended { what: "it ended".into() });
                }
                Effect::Leave => self.segment = None,
                Effect::Freeze
                | Effect::Thaw
                | Effect::TurnStarted { .. }
                | Effect::TurnEnded { .. }
                | Effect::Answer { .. }
                | Effect::Crashed { .. } => {}
            }
        }
    }

    /// Nothing comes through by itself: time passes until it does, or until there is nothing left to come.
    fn rests(&mut self) -> bool {
        if self.segment.is_none() {
            return true;
        }
        self.now += Duration::from_secs(130);
        self.tell(Signal::Tick);
        false
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn ten_messages_at_any_offset_are_each_read_once_and_in_order(
        offset in 0_usize..120,
        gaps in vec(0_usize..8, MESSAGES),
        choices in vec(any::<usize>(), 64),
        finishes in 0_usize..6,
    ) {
        let mut world = World::new(finishes);
        let mut due: VecDeque<usize> = gaps
            .iter()
            .scan(offset, |at, gap| {
                *at += gap;
                Some(*at)
            })
            .collect();
        let mut moves = 0;
        loop {
            prop_assert!(moves < MOVES_MAX, "it does not come to rest: {:?}", world.state());
            while due.front().is_some_and(|at| *at <= moves) {
                due.pop_front();
                world.say();
            }
            let choice = choices[moves % choices.len()].wrapping_add(moves);
            moves += 1;
            if !world.moves(choice) && world.rests() && due.is_empty() {
                break;
            }
        }
        let said: Vec<_> = (1..=world.seq).map(RecordSeq).collect();
        prop_assert_eq!(world.seq, MESSAGES as u64 + 1);
        prop_assert_eq!(&world.read, &said);
        prop_assert!(world.state().is_some_and(|state| !state.has_unread()), "{:?}", world.state());
        check_log(world.key, &world.log).unwrap_or_else(|breach| panic!("{breach:?}"));
    }
}
