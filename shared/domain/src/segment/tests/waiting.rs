//! Waits, questions and who watches, as a segment lives through them.

use super::*;
use crate::Refusal;
use crate::ids::{EventSeq, QuestionId};
use crate::process::{EventDigest, EventKey, OpenQuestion, WaitOn, WaitOutcome};

const SOON: u64 = 3_600;

fn in_an_hour() -> Ask {
    let until = Timestamp::EPOCH.plus(Duration::from_secs(SOON));
    Ask::Wait(WaitRequest { reason: "the build".into(), on: WaitOn::Time { until } })
}

fn for_a_pull_request() -> Ask {
    let event = EventKey::Github { repo: "o/r".into(), number: 7 };
    let on = WaitOn::Event { event, kinds: Vec::new(), timeout: None };
    Ask::Wait(WaitRequest { reason: "review".into(), on })
}

fn comment(seq: u64) -> Box<EventDigest> {
    Box::new(EventDigest {
        seq: EventSeq(seq),
        key: EventKey::Github { repo: "o/r".into(), number: 7 },
        kind: "issue_comment.created".into(),
        summary: "a comment".into(),
        url: None,
        author: None,
        association: None,
        text: None,
    })
}

fn card() -> Card {
    let card = MessageId::of_output(KEY.conversation, "card");
    Card { id: card, questions: vec![OpenQuestion { id: QuestionId::of(card, 0), free_text: true }] }
}

fn working() -> Stage {
    let mut stage = Stage::working();
    stage.done();
    stage
}

impl Stage {
    fn wait(&self) -> WaitId {
        self.log.wait.as_ref().expect("a booked wait").id
    }
}

#[test]
fn a_booked_wait_is_answered_and_parks_as_soon_as_the_turn_has_ended() {
    let mut stage = working();
    stage.call(in_an_hour());
    assert_eq!(stage.done(), vec![answered(1, CallAnswer::Done)]);
    stage.turn_ends(TurnOutcome::Completed);
    assert_eq!(stage.done().last(), Some(&Effect::EndSession));
    stage.gone();
    assert!(matches!(stage.log.phase, Phase::Parked { reason: ParkReason::WaitTime, .. }), "{:?}", stage.log);
    assert_eq!(stage.done().last(), Some(&Effect::Leave));
}

#[test]
fn a_turn_that_does_not_end_is_interrupted_once_its_grace_is_over() {
    let mut stage = working();
    stage.call(in_an_hour());
    stage.done();
    stage.passes(14);
    assert!(stage.done().is_empty());
    assert_eq!(stage.segment.next_tick(), Some(Duration::from_secs(15)));
    stage.passes(1);
    assert_eq!(stage.done(), vec![Effect::Interrupt]);
    stage.passes(5);
    assert!(stage.done().is_empty(), "once");
    stage.turn_ends(TurnOutcome::Interrupted);
    assert_eq!(stage.done().last(), Some(&Effect::EndSession));
}

#[test]
fn a_steer_after_the_booking_goes_on_with_the_turn_and_the_wait_stays_booked() {
    let mut stage = working();
    stage.call(in_an_hour());
    stage.done();
    stage.say(Mode::Auto);
    stage.recorded();
    stage.echo();
    stage.done();
    stage.passes(60);
    assert!(stage.done().is_empty(), "the turn is the person's");
    stage.turn_ends(TurnOutcome::Completed);
    assert!(!stage.done().contains(&Effect::EndSession), "somebody is there");
    stage.passes(120);
    assert_eq!(stage.done().last(), Some(&Effect::EndSession));
    stage.gone();
    assert!(matches!(stage.log.phase, Phase::Parked { reason: ParkReason::WaitTime, .. }));
    assert!(stage.log.wait.is_some());
}

#[test]
fn a_background_command_holds_the_park_of_a_wait_until_it_ends() {
    let mut stage = working();
    stage.tell(Signal::TaskStarted { task: "b1".into(), kind: TaskKind::Command, label: "make".into() });
    stage.call(in_an_hour());
    stage.turn_ends(TurnOutcome::Completed);
    stage.done();
    stage.passes(600);
    assert!(stage.done().is_empty());
    stage.tell(Signal::TaskEnded { task: "b1".into() });
    assert_eq!(stage.done(), vec![Effect::EndSession]);
}

#[test]
fn a_background_command_holds_for_four_hours_and_no_longer() {
    let mut stage = working();
    stage.tell(Signal::TaskStarted { task: "b1".into(), kind: TaskKind::Command, label: "sleep".into() });
    stage.turn_ends(TurnOutcome::Completed);
    stage.done();
    let holds_until = Duration::from_secs(240 * 60);
    stage.passes(holds_until.as_secs() - 1);
    assert!(stage.done().is_empty());
    assert_eq!(stage.segment.next_tick(), Some(holds_until), "the time to park has long passed");
    stage.passes(1);
    assert_eq!(stage.done(), vec![Effect::EndSession]);
}

/// A task that is woken for what has passed already would never sleep again.
#[test]
fn a_segment_is_woken_only_for_what_is_still_to_come() {
    let mut stage = working();
    let task = Signal::TaskStarted { task: "a".into(), kind: TaskKind::SubAgent, label: "look".into() };
    stage.tell(task);
    stage.turn_ends(TurnOutcome::Completed);
    for _ in 0..40 {
        stage.passes(60);
        assert!(stage.segment.next_tick().is_none_or(|at| at > stage.now), "{:?}", stage.segment.next_tick());
    }
    assert!(stage.done().iter().all(|effect| *effect != Effect::EndSession));
}

#[test]
fn what_happens_while_hot_becomes_a_note_and_is_no_longer_booked() {
    let mut stage = working();
    stage.call(for_a_pull_request());
    stage.done();
    let wait = stage.wait();
    stage.append(Cause::Happened { wait, event: comment(40) });
    assert_eq!(stage.log.wait, None);
    let fired = Contents { inputs: Vec::new(), fired: vec![wait] };
    assert_eq!(stage.effects.front(), Some(&Effect::Record { frame: wait.uuid(), contents: fired }));
    stage.recorded();
    stage.echo();
    assert!(stage.log.fired.is_empty(), "told");
    stage.done();
    stage.passes(60);
    assert!(stage.done().is_empty(), "nothing is booked, so nothing is settled");
}

#[test]
fn a_match_wakes_the_parked_process_once_and_is_the_first_thing_it_is_told() {
    let mut stage = working();
    stage.call(for_a_pull_request());
    let wait = stage.wait();
    stage.turn_ends(TurnOutcome::Completed);
    stage.gone();
    assert!(matches!(stage.log.phase, Phase::Parked { reason: ParkReason::WaitEvent, .. }));
    stage.append(Cause::Happened { wait, event: comment(40) });
    assert!(matches!(stage.log.phase, Phase::Waking { trigger: WakeTrigger::Wait, .. }));
    let again = step(KEY, Some(&stage.log), Cause::Happened { wait, event: comment(41) }, Timestamp::EPOCH);
    assert_eq!(again, Err(Refusal::NotBooked { wait }));

    let next = Identity { epoch: Epoch(2), incarnation: Incarnation(Uuid::from_u128(4)), ..ME };
    let mut stage = Stage::on(stage.log.clone(), Vec::new(), next);
    stage.start();
    let fired = Contents { inputs: Vec::new(), fired: vec![wait] };
    assert_eq!(stage.effects.front(), Some(&Effect::Record { frame: wait.uuid(), contents: fired }));
    assert!(matches!(stage.log.fired[0].outcome, WaitOutcome::Event(_)));
    assert_eq!(stage.log.look_back.given, vec![EventSeq(40)], "the next wait does not fire on it");
}

/// A segment that dies now leaves a harness that has read both, and the next one knows each by its own id.
#[test]
fn the_note_of_a_wait_goes_in_by_itself_and_before_what_was_said() {
    let mut stage = working();
    stage.call(for_a_pull_request());
    stage.done();
    let wait = stage.wait();
    stage.turn_ends(TurnOutcome::Completed);
    stage.gone();
    let said = stage.say(Mode::Auto);
    stage.append(Cause::Happened { wait, event: comment(40) });
    let next = Identity { epoch: stage.log.epoch, incarnation: Incarnation(Uuid::from_u128(4)), ..ME };
    let mut stage = Stage::on(stage.log.clone(), Vec::new(), next);
    stage.know(said.0);
    stage.start();
    let fired = Contents { inputs: Vec::new(), fired: vec![wait] };
    assert_eq!(stage.effects.front(), Some(&Effect::Record { frame: wait.uuid(), contents: fired }));
    stage.recorded();
    stage.done();
    stage.echo();
    assert_eq!(stage.recorded(), vec![said]);
}

#[test]
fn calls_are_answered_one_by_one_and_a_finish_is_held_for_what_is_open() {
    let mut stage = working();
    stage.held_back = Some(Vec::new());
    stage.call(Ask::Questions(card()));
    stage.call(in_an_hour());
    stage.finish("done");
    assert!(stage.done().is_empty(), "nothing is answered before it stands in the log");
    stage.release();
    let done = stage.done();
    let [Effect::Answer { call: CallNo(1), answer: CallAnswer::Done }, wait, held] = done.as_slice() else {
        panic!("{done:?}")
    };
    assert_eq!(*wait, answered(2, CallAnswer::Done));
    let Effect::Answer { call: CallNo(3), answer: CallAnswer::Refused { why } } = held else {
        panic!("{held:?}")
    };
    let why = why.to_string();
    assert!(why.contains("questions are open") && why.contains("a wait until"), "{why}");

    stage.call(Ask::CancelWait);
    stage.call(Ask::Withdraw { questions: vec![card().questions[0].id] });
    stage.finish("done");
    let done = stage.done();
    assert_eq!(done.last(), Some(&answered(6, CallAnswer::Done)), "{done:?}");
}

#[test]
fn an_open_question_is_answered_by_what_is_typed_and_a_second_answer_is_refused() {
    let mut stage = working();
    stage.call(Ask::Questions(card()));
    stage.turn_ends(TurnOutcome::Completed);
    stage.done();
    stage.passes(120);
    stage.gone();
    assert!(matches!(stage.log.phase, Phase::Parked { reason: ParkReason::Question, .. }));
    stage.say(Mode::Auto);
    assert!(stage.log.cards.is_empty());
    assert!(matches!(stage.log.phase, Phase::Waking { .. }));
    stage.seq += 1;
    let late = Input::Answer { card: card().id, questions: vec![card().questions[0].id] };
    let Ok(Decision::Append(step)) = step(KEY, Some(&stage.log), input(stage.seq, late), Timestamp::EPOCH)
    else {
        panic!("a numbered input comes to a step")
    };
    assert!(format!("{:?}", step.facts).contains("CardClosed"), "{:?}", step.facts);
}

#[test]
fn who_watches_keeps_an_idle_segment_hot_for_half_an_hour_at_most() {
    let mut stage = working();
    stage.turn_ends(TurnOutcome::Completed);
    stage.done();
    for _ in 0..59 {
        stage.tell(Signal::Watched);
        stage.passes(30);
        assert!(stage.done().is_empty(), "watched at {:?}", stage.now);
    }
    stage.tell(Signal::Watched);
    stage.passes(30);
    assert_eq!(stage.done(), vec![Effect::EndSession]);
}

#[test]
fn an_idle_segment_parks_two_minutes_after_its_last_viewer_was_there() {
    let mut stage = working();
    stage.turn_ends(TurnOutcome::Completed);
    stage.passes(100);
    stage.tell(Signal::Watched);
    stage.done();
    stage.passes(119);
    assert!(stage.done().is_empty());
    stage.passes(1);
    assert_eq!(stage.done(), vec![Effect::EndSession]);
}

#[test]
fn room_is_made_only_by_an_idle_segment_that_nobody_watches() {
    let mut stage = working();
    stage.tell(Signal::MakeRoom);
    assert!(stage.done().is_empty(), "it works");
    stage.turn_ends(TurnOutcome::Completed);
    stage.tell(Signal::Watched);
    stage.tell(Signal::MakeRoom);
    assert!(stage.done().iter().all(|effect| *effect != Effect::EndSession), "somebody watches");
    stage.passes(75);
    stage.tell(Signal::MakeRoom);
    assert_eq!(stage.done().last(), Some(&Effect::EndSession));
}
