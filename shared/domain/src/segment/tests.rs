//! A segment told by its signals. The log is the real one: what it reports is decided by `step`.

use std::collections::VecDeque;

use super::*;
use crate::Timestamp;
use crate::ids::{AgentId, ConversationId, OrgId, UserId};
use crate::process::{
    Card, Cause, ConversationKey, Decision, Harness as Kind, Input, Mode, ParkReason, Phase, Session,
    StartWith, StopScope, TurnOutcome, WaitRequest, step,
};

const KEY: ConversationKey = ConversationKey {
    org: OrgId::from_uuid(Uuid::from_u128(1)),
    conversation: ConversationId::from_uuid(Uuid::from_u128(2)),
};
const ME: Identity = Identity {
    executor: ExecutorId(0),
    incarnation: Incarnation(Uuid::from_u128(3)),
    epoch: Epoch(1),
    renewal: Renewal(5),
};
const POLICY: SegmentPolicy = SegmentPolicy {
    park_after: Duration::from_secs(120),
    park_watched_after: Duration::from_secs(1_800),
    viewer_gone_after: Duration::from_secs(75),
    turn_end_grace: Duration::from_secs(15),
    cap: crate::policy::SEGMENT_CAP,
};

/// A conversation with its log and one segment on it. Reports reach the log at once unless they are held back.
struct Stage {
    log: State,
    segment: Segment,
    now: Duration,
    seq: u64,
    calls: u64,
    effects: VecDeque<Effect>,
    held_back: Option<Vec<Report>>,
}

impl Stage {
    fn new() -> Self {
        let log = apply(None, said(1, Mode::Auto)).expect("a start");
        Self::on(log, Vec::new(), ME)
    }

    fn on(log: State, former: Vec<(Uuid, Contents)>, me: Identity) -> Self {
        let (segment, effects) = Segment::new(me, POLICY, log.clone(), former, Duration::ZERO);
        let seq = log.handled.0;
        let mut stage = Self {
            log,
            segment,
            now: Duration::ZERO,
            seq,
            calls: 0,
            effects: VecDeque::new(),
            held_back: None,
        };
        stage.take(effects);
        stage
    }

    /// Hot, with the first message in the harness and echoed.
    fn working() -> Self {
        let mut stage = Self::new();
        stage.start();
        stage.know(1);
        stage.recorded();
        stage.tell(Signal::Running);
        stage.echo();
        stage
    }

    fn start(&mut self) {
        assert_eq!(self.effects.pop_front(), Some(Effect::Start));
        self.tell(Signal::Ready { session: Session { id: "s".into(), version: "1".into() } });
    }

    fn tell(&mut self, signal: Signal) {
        let effects = self.segment.on(signal, self.now);
        self.take(effects);
    }

    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Report(report) => match &mut self.held_back {
                    Some(held_back) => held_back.push(report),
                    None => self.append(Cause::Report(report)),
                },
                other => self.effects.push_back(other),
            }
        }
    }

    fn append(&mut self, cause: Cause) {
        if let Some(state) = apply(Some(&self.log), cause) {
            self.log = state.clone();
            self.tell(Signal::Log(Box::new(state)));
        }
    }

    /// Reports that were held back reach the log.
    fn release(&mut self) {
        for report in self.held_back.take().unwrap_or_default() {
            self.append(Cause::Report(report));
        }
    }

    fn say(&mut self, mode: Mode) -> RecordSeq {
        self.seq += 1;
        self.append(said(self.seq, mode));
        self.know(self.seq);
        RecordSeq(self.seq)
    }

    fn stop(&mut self, scope: StopScope) {
        self.seq += 1;
        self.append(input(self.seq, Input::Stop { scope }));
    }

    fn know(&mut self, seq: u64) {
        self.tell(Signal::Known { input: RecordSeq(seq), bytes: 10 });
    }

    /// The record acknowledges the frame; returns what is delivered.
    fn recorded(&mut self) -> Vec<RecordSeq> {
        let Some(Effect::Record { frame, .. }) = self.effects.pop_front() else {
            panic!("{:?}", self.effects)
        };
        self.tell(Signal::Recorded { frame });
        let Some(Effect::Deliver { contents, .. }) = self.effects.back() else {
            panic!("{:?}", self.effects)
        };
        contents.inputs.clone()
    }

    fn echo(&mut self) {
        let frame = self.segment.frame.as_ref().expect("a frame").id;
        self.tell(Signal::Consumed { frame });
    }

    fn turn_ends(&mut self, outcome: TurnOutcome) {
        self.tell(Signal::TurnEnded { outcome });
    }

    fn call(&mut self, ask: Ask) {
        self.calls += 1;
        self.tell(Signal::Called { call: CallNo(self.calls), ask });
    }

    fn finish(&mut self, summary: &str) {
        self.call(Ask::Finish { summary: summary.into() });
    }

    fn passes(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.tell(Signal::Tick);
    }

    fn gone(&mut self) {
        self.tell(Signal::Ended { what: "it ended".into() });
    }

    fn done(&mut self) -> Vec<Effect> {
        self.effects.drain(..).collect()
    }
}

fn apply(last: Option<&State>, cause: Cause) -> Option<State> {
    match step(KEY, last, cause, Timestamp::EPOCH) {
        Ok(Decision::Append(step)) => Some(step.state),
        Ok(Decision::Repeated) | Err(_) => None,
    }
}

fn input(seq: u64, input: Input) -> Cause {
    Cause::Input { seq: RecordSeq(seq), from: UserId::UNKNOWN, agent: AgentId::UNKNOWN, input }
}

fn said(seq: u64, mode: Mode) -> Cause {
    input(seq, Input::Message { mode, start: Some(StartWith { harness: Kind::ClaudeCode, events: None }) })
}

fn said_in(inputs: &[u64]) -> Contents {
    Contents { inputs: seqs(inputs), fired: Vec::new() }
}

fn answered(call: u64, answer: CallAnswer) -> Effect {
    Effect::Answer { call: CallNo(call), answer }
}

fn seqs(seqs: &[u64]) -> Vec<RecordSeq> {
    seqs.iter().copied().map(RecordSeq).collect()
}

#[test]
fn it_claims_starts_and_delivers_the_first_message_under_its_own_id() {
    let mut stage = Stage::new();
    assert!(stage.log.hot().is_some(), "claimed");
    stage.start();
    assert!(stage.effects.is_empty(), "the text is not at hand yet");
    stage.know(1);
    let own = MessageId::of_input(KEY.conversation, RecordSeq(1)).uuid();
    assert_eq!(stage.effects.front(), Some(&Effect::Record { frame: own, contents: said_in(&[1]) }));
    assert_eq!(stage.recorded(), seqs(&[1]));
    stage.tell(Signal::Running);
    stage.echo();
    assert!(stage.log.undelivered.is_empty());
    assert_eq!(stage.log.hot().map(|hot| hot.stage), Some(crate::process::Stage::Working));
}

#[test]
fn steers_wait_for_the_echo_and_go_in_together_in_order() {
    let mut stage = Stage::working();
    stage.done();
    stage.say(Mode::Auto);
    assert_eq!(stage.recorded(), seqs(&[2]));
    stage.done();
    stage.say(Mode::Auto);
    stage.say(Mode::Auto);
    assert!(stage.effects.is_empty(), "one frame at a time");
    stage.echo();
    assert_eq!(stage.recorded(), seqs(&[3, 4]));
    stage.echo();
    assert!(stage.log.undelivered.is_empty());
}

#[test]
fn an_echoed_input_is_not_delivered_again_while_its_report_is_on_the_way() {
    let mut stage = Stage::working();
    stage.done();
    stage.held_back = Some(Vec::new());
    stage.say(Mode::Auto);
    stage.recorded();
    stage.echo();
    stage.done();
    stage.say(Mode::Auto);
    assert_eq!(stage.recorded(), seqs(&[3]), "only what came later");
    stage.echo();
    stage.release();
    assert!(stage.log.undelivered.is_empty());
}

#[test]
fn a_report_that_does_not_come_back_is_sent_again_under_its_number() {
    let mut stage = Stage::working();
    stage.held_back = Some(Vec::new());
    stage.turn_ends(TurnOutcome::Completed);
    stage.passes(3);
    stage.passes(3);
    let sent = stage.held_back.clone().expect("held back");
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|report| *report == sent[0]));
    stage.release();
    assert_eq!(stage.log.turns.0, 1, "it counts once");
}

#[test]
fn a_stop_takes_the_frame_back_interrupts_and_delivers_it_next() {
    let mut stage = Stage::working();
    stage.done();
    stage.say(Mode::Auto);
    stage.recorded();
    let frame = stage.segment.frame.as_ref().expect("a frame").id;
    stage.done();
    stage.stop(StopScope::Turn);
    assert_eq!(stage.done(), vec![Effect::Withdraw { frame }]);
    stage.tell(Signal::Withdrawn { frame, given_back: true });
    assert_eq!(stage.done(), vec![Effect::Interrupt]);
    stage.say(Mode::Auto);
    assert!(stage.effects.is_empty(), "nothing goes in before the turn has ended");
    stage.turn_ends(TurnOutcome::Interrupted);
    let Some(Effect::TurnEnded { .. }) = stage.effects.pop_front() else { panic!() };
    let Some(Effect::Record { frame: again, contents }) = stage.effects.front() else {
        panic!("{:?}", stage.effects)
    };
    assert_ne!(*again, frame, "the harness would echo the id it gave back without reading it");
    assert_eq!(*contents, said_in(&[2, 4]));
    assert!(stage.log.is_live());
}

#[test]
fn a_frame_that_cannot_be_taken_back_is_echoed_and_the_turn_ends_all_the_same() {
    let mut stage = Stage::working();
    stage.say(Mode::Auto);
    stage.done();
    let frame = stage.segment.frame.as_ref().expect("a frame").id;
    stage.tell(Signal::Recorded { frame });
    stage.done();
    stage.stop(StopScope::Turn);
    stage.done();
    stage.tell(Signal::Withdrawn { frame, given_back: false });
    assert_eq!(stage.done(), vec![Effect::Interrupt]);
    stage.echo();
    assert!(stage.log.undelivered.is_empty());
}

#[test]
fn a_queued_message_goes_in_after_the_turn() {
    let mut stage = Stage::working();
    stage.done();
    stage.say(Mode::Queue);
    assert!(stage.effects.is_empty());
    stage.turn_ends(TurnOutcome::Completed);
    stage.effects.pop_front();
    assert_eq!(stage.recorded(), seqs(&[2]));
}

#[test]
fn finishing_is_answered_from_the_log_and_the_harness_may_end_its_turn() {
    let mut stage = Stage::working();
    stage.done();
    stage.finish("done");
    assert_eq!(stage.done(), vec![answered(1, CallAnswer::Done)]);
    stage.finish("again");
    let outcome = "Completed".to_owned();
    assert_eq!(stage.done(), vec![answered(2, CallAnswer::AlreadyEnded { outcome })]);
    stage.passes(14);
    assert!(stage.effects.is_empty());
    stage.passes(1);
    assert_eq!(stage.done(), vec![Effect::EndSession]);
    stage.gone();
    assert!(stage.done().contains(&Effect::Leave));
}

#[test]
fn the_session_ends_as_soon_as_the_last_turn_has() {
    let mut stage = Stage::working();
    stage.finish("done");
    stage.done();
    stage.turn_ends(TurnOutcome::Completed);
    assert_eq!(stage.done().last(), Some(&Effect::EndSession));
}

#[test]
fn a_held_finish_says_what_is_open() {
    let mut stage = Stage::working();
    stage.say(Mode::Queue);
    stage.done();
    stage.finish("done");
    let done = stage.done();
    let [Effect::Answer { answer: CallAnswer::Refused { why }, .. }] = done.as_slice() else {
        panic!("{done:?}")
    };
    assert!(why.to_string().contains("a message arrived"), "{why}");
    assert!(stage.log.is_live());
}

#[test]
fn a_process_stop_ends_the_session_at_once_and_answers_a_finish_that_came_too_late() {
    let mut stage = Stage::working();
    stage.done();
    stage.held_back = Some(Vec::new());
    stage.finish("done");
    stage.stop(StopScope::Process);
    let outcome = "Stopped".to_owned();
    assert_eq!(stage.done(), vec![answered(1, CallAnswer::AlreadyEnded { outcome }), Effect::EndSession]);
    stage.release();
    stage.gone();
    assert!(stage.done().contains(&Effect::Leave));
    assert!(
        matches!(&stage.log.phase, Phase::Ended { exit, .. } if exit.outcome == crate::process::Outcome::Stopped)
    );
}

#[test]
fn an_idle_segment_parks_and_not_while_something_runs_beside_the_turn() {
    let mut stage = Stage::working();
    stage.tell(Signal::TaskStarted { task: "build".into(), kind: TaskKind::Command, label: "make".into() });
    stage.turn_ends(TurnOutcome::Completed);
    stage.done();
    stage.passes(600);
    assert!(stage.effects.is_empty(), "a command still runs");
    stage.tell(Signal::TaskEnded { task: "build".into() });
    assert_eq!(stage.done(), vec![Effect::EndSession]);
    stage.gone();
    assert_eq!(stage.done(), vec![Effect::Leave]);
    assert!(matches!(&stage.log.phase, Phase::Parked { reason: ParkReason::Absent, .. }));
}

#[test]
fn a_message_that_comes_while_the_session_ends_wakes_the_process_at_once() {
    let mut stage = Stage::working();
    stage.turn_ends(TurnOutcome::Completed);
    stage.done();
    stage.passes(120);
    assert_eq!(stage.done(), vec![Effect::EndSession]);
    stage.say(Mode::Auto);
    assert!(stage.effects.is_empty());
    stage.gone();
    assert_eq!(stage.done(), vec![Effect::Leave]);
    assert!(matches!(stage.log.phase, Phase::Waking { trigger: WakeTrigger::Message, .. }));
    assert_eq!(stage.log.undelivered, seqs(&[2]));
}

#[test]
fn a_harness_that_ends_by_itself_rests_and_one_that_cannot_start_waits_for_a_person() {
    let mut stage = Stage::new();
    stage.effects.pop_front();
    stage.gone();
    let what = "it ended".to_owned();
    assert_eq!(stage.done(), vec![Effect::Crashed { what, tried_again: true }, Effect::Leave]);
    assert!(matches!(&stage.log.phase, Phase::Parked { reason: ParkReason::Crashed { .. }, .. }));
    assert_eq!(stage.log.undelivered, seqs(&[1]), "the message is kept");

    // The one after which it is not tried again is the only one that the person is told of.
    let mut log = apply(None, said(1, Mode::Auto)).expect("a start");
    log.crashes.in_a_row = 4;
    let mut stage = Stage::on(log, Vec::new(), ME);
    stage.effects.pop_front();
    stage.gone();
    let what = "it ended".to_owned();
    assert_eq!(stage.done(), vec![Effect::Crashed { what, tried_again: false }, Effect::Leave]);
    assert!(matches!(&stage.log.phase, Phase::Parked { reason: ParkReason::NeedsAttention { .. }, .. }));

    let mut stage = Stage::new();
    stage.effects.pop_front();
    stage.tell(Signal::Unable { what: "install bubblewrap".into() });
    assert_eq!(stage.done(), vec![Effect::Leave]);
    assert!(matches!(&stage.log.phase, Phase::Parked { reason: ParkReason::NeedsAttention { .. }, .. }));
}

/// The harness may have read what was written down; only under that id does it know.
#[test]
fn what_was_written_down_goes_in_first_and_the_newest_of_what_overlaps() {
    let log = [1, 2, 3, 4]
        .map(|seq| said(seq, Mode::Auto))
        .into_iter()
        .fold(None, |log: Option<State>, cause| apply(log.as_ref(), cause));
    let frame = |id: u128, inputs: &[u64]| (Uuid::from_u128(id), said_in(inputs));
    let former = vec![frame(10, &[2]), frame(11, &[2, 3]), frame(12, &[0, 4])];
    let mut stage = Stage::on(log.expect("a process"), former, ME);
    stage.start();
    (1..=4).for_each(|seq| stage.know(seq));
    let delivered = |stage: &mut Stage| match stage.done().pop() {
        Some(Effect::Deliver { frame, contents, .. }) => (frame, contents),
        other => panic!("{other:?}"),
    };
    assert_eq!(delivered(&mut stage), frame(11, &[2, 3]));
    stage.echo();
    assert_eq!(stage.recorded(), [1, 4].map(RecordSeq));
}

mod frozen;
mod leaving;
mod waiting;
