//! An executor that is cut off, or stood still itself.

use super::*;
use crate::policy::FROZEN_KILLED_AFTER;
use crate::process::LossReason;

fn lost() -> Cause {
    Cause::Lost { executor: ME.executor, epoch: ME.epoch, why: LossReason::LeaseExpired }
}

#[test]
fn a_segment_that_is_cut_off_stands_still_and_goes_on_when_the_log_has_answered() {
    let mut stage = Stage::working();
    stage.done();
    stage.held_back = Some(Vec::new());
    stage.tell(Signal::CutOff);
    assert_eq!(stage.done(), vec![Effect::Freeze]);
    stage.passes(40);
    stage.tell(Signal::Reachable);
    assert!(!stage.done().contains(&Effect::Thaw), "nobody has answered yet");
    stage.release();
    assert_eq!(stage.done(), vec![Effect::Thaw]);
    assert!(stage.log.hot().is_some());
}

#[test]
fn nothing_goes_in_and_nothing_parks_while_it_stands_still() {
    let mut stage = Stage::working();
    stage.turn_ends(TurnOutcome::Completed);
    stage.done();
    stage.tell(Signal::Frozen);
    stage.tell(Signal::MakeRoom);
    stage.say(Mode::Auto);
    stage.passes(500);
    assert!(stage.done().is_empty(), "nothing is done");
    stage.tell(Signal::Reachable);
    let done = stage.done();
    assert!(matches!(done.as_slice(), [Effect::Thaw, Effect::Record { .. }]), "{done:?}");
}

#[test]
fn what_another_holds_by_then_is_killed_and_never_thawed() {
    let mut stage = Stage::working();
    stage.done();
    stage.tell(Signal::CutOff);
    // Nothing of it reaches this segment.
    stage.log = apply(Some(&stage.log), lost()).expect("lost");
    stage.tell(Signal::Reachable);
    assert_eq!(stage.done(), vec![Effect::Freeze], "its report is not taken, so it does not thaw");
    stage.tell(Signal::Log(Box::new(stage.log.clone())));
    assert_eq!(stage.done(), vec![Effect::Kill]);
    stage.gone();
    assert_eq!(stage.done().last(), Some(&Effect::Leave));
}

#[test]
fn an_answer_from_before_a_second_cut_thaws_nothing() {
    let mut stage = Stage::working();
    stage.done();
    stage.held_back = Some(Vec::new());
    stage.tell(Signal::CutOff);
    stage.tell(Signal::Reachable);
    stage.tell(Signal::CutOff);
    stage.done();
    stage.release();
    assert!(!stage.done().contains(&Effect::Thaw));
    stage.tell(Signal::Reachable);
    assert_eq!(stage.done(), vec![Effect::Thaw]);
}

#[test]
fn what_was_cut_off_for_too_long_is_killed() {
    let mut stage = Stage::working();
    stage.tell(Signal::CutOff);
    stage.done();
    assert_eq!(stage.segment.next_tick(), Some(stage.now + FROZEN_KILLED_AFTER));
    stage.passes(FROZEN_KILLED_AFTER.as_secs());
    assert_eq!(stage.done(), vec![Effect::Kill]);
    stage.gone();
    assert_eq!(stage.done().last(), Some(&Effect::Leave));
}
