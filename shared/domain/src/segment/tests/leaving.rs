//! How a segment leaves, and what the next one makes of it.

use super::*;

#[test]
fn draining_waits_for_the_turn_and_then_for_nothing() {
    let mut stage = Stage::working();
    stage.tell(Signal::Drain);
    stage.done();
    stage.say(Mode::Auto);
    assert!(stage.effects.is_empty(), "what comes now goes to the next segment");
    stage.turn_ends(TurnOutcome::Completed);
    assert_eq!(stage.done().last(), Some(&Effect::EndSession));
    stage.gone();
    assert!(matches!(stage.log.phase, Phase::Waking { trigger: WakeTrigger::Message, .. }));

    let mut stage = Stage::working();
    stage.tell(Signal::Drain);
    stage.tell(Signal::DrainNow);
    assert_eq!(stage.done().last(), Some(&Effect::EndSession));
    stage.gone();
    assert!(matches!(stage.log.phase, Phase::Waking { trigger: WakeTrigger::Resume, .. }));
}

#[test]
fn a_drain_does_not_wait_for_a_registry_that_is_away() {
    let mut stage = Stage::working();
    stage.turn_ends(TurnOutcome::Completed);
    stage.held_back = Some(Vec::new());
    stage.tell(Signal::Drain);
    stage.gone();
    stage.passes(4);
    assert!(!stage.done().contains(&Effect::Leave));
    stage.passes(1);
    assert!(stage.done().contains(&Effect::Leave));
    stage.release();
    assert!(
        matches!(&stage.log.phase, Phase::Parked { reason: ParkReason::Drain, .. }),
        "the report is kept"
    );
}

#[test]
fn the_next_segment_delivers_under_the_ids_that_were_written_down() {
    let mut stage = Stage::working();
    stage.say(Mode::Auto);
    stage.say(Mode::Auto);
    let lost =
        Cause::Lost { executor: ME.executor, epoch: ME.epoch, why: crate::process::LossReason::Restarted };
    stage.append(lost);
    assert_eq!(stage.done().last(), Some(&Effect::Kill), "the conversation is no longer this segment's");
    let written = Uuid::from_u128(77);
    let next = Identity { epoch: Epoch(2), incarnation: Incarnation(Uuid::from_u128(4)), ..ME };
    let mut stage = Stage::on(stage.log.clone(), vec![(written, said_in(&[2, 3]))], next);
    stage.start();
    stage.know(2);
    assert!(stage.effects.is_empty(), "the frame is whole or not at all");
    stage.know(3);
    let deliver =
        Effect::Deliver { frame: written, contents: said_in(&[2, 3]), wake: Some(WakeTrigger::ExecutorLost) };
    assert_eq!(stage.done(), vec![deliver]);
}

#[test]
fn a_segment_that_was_cut_is_told_so_where_nobody_said_anything() {
    let mut stage = Stage::working();
    stage.append(Cause::Lost {
        executor: ME.executor,
        epoch: ME.epoch,
        why: crate::process::LossReason::LeaseExpired,
    });
    let next = Identity { epoch: Epoch(2), ..ME };
    let mut stage = Stage::on(stage.log.clone(), Vec::new(), next);
    stage.start();
    let done = stage.done();
    let [Effect::Deliver { contents, wake: Some(WakeTrigger::ExecutorLost), .. }] = done.as_slice() else {
        panic!("{done:?}")
    };
    assert_eq!(*contents, Contents::default());
    stage.echo();
    assert!(stage.done().is_empty());
}

#[test]
fn a_harness_that_was_being_set_up_when_its_end_was_asked_for_is_killed_once_it_is_there() {
    let mut stage = Stage::new();
    stage.effects.pop_front();
    stage.stop(StopScope::Process);
    stage.done();
    stage.tell(Signal::Ready { session: Session { id: "s".into(), version: "1".into() } });
    assert!(stage.done().contains(&Effect::Kill));
    stage.gone();
    assert_eq!(stage.done(), vec![Effect::Leave]);
}

#[test]
fn a_claim_that_another_won_or_nobody_answered_is_left() {
    let log = apply(None, said(1, Mode::Auto)).expect("a start");
    let other = Report {
        executor: ExecutorId(1),
        incarnation: Incarnation(Uuid::from_u128(9)),
        epoch: Epoch(1),
        n: ReportNo(1),
        events: vec![SegmentEvent::Claim { renewal: Renewal(1) }],
    };
    let claimed = apply(Some(&log), Cause::Report(other)).expect("claimed");
    let (mut segment, _) = Segment::new(ME, POLICY, log.clone(), Vec::new(), Duration::ZERO);
    assert_eq!(segment.on(Signal::Log(Box::new(claimed)), Duration::ZERO), vec![Effect::Leave]);
    let (mut segment, _) = Segment::new(ME, POLICY, log, Vec::new(), Duration::ZERO);
    assert_eq!(segment.on(Signal::Tick, CLAIM_GIVEN_UP_AFTER), vec![Effect::Leave]);
}
