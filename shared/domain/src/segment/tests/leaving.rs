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
fn a_park_that_another_overtook_is_not_waited_for() {
    let mut stage = Stage::working();
    stage.turn_ends(TurnOutcome::Completed);
    stage.held_back = Some(Vec::new());
    stage.tell(Signal::Drain);
    stage.gone();
    assert!(!stage.done().contains(&Effect::Leave), "the report is on its way");
    let why = crate::process::LossReason::LeaseExpired;
    stage.append(Cause::Lost { executor: ME.executor, epoch: ME.epoch, why });
    assert_eq!(stage.done(), vec![Effect::Leave]);
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

fn tool(stage: &mut Stage, name: &str) {
    stage.tell(Signal::ToolStarted { tool: name.into() });
}

fn tool_ends(stage: &mut Stage, name: &str) {
    stage.tell(Signal::ToolEnded { tool: name.into() });
}

#[test]
fn a_drain_is_followed_between_two_tools() {
    let mut stage = Stage::working();
    stage.done();
    tool(&mut stage, "a");
    tool(&mut stage, "b");
    stage.tell(Signal::Drain);
    tool_ends(&mut stage, "a");
    assert!(stage.done().is_empty(), "one still runs");
    tool_ends(&mut stage, "b");
    assert_eq!(stage.done(), [Effect::EndSession]);
    stage.gone();
    assert!(matches!(stage.log.phase, Phase::Waking { trigger: WakeTrigger::Resume, .. }));
}

#[test]
fn a_drain_that_is_taken_back_changes_nothing() {
    let mut stage = Stage::working();
    stage.done();
    tool(&mut stage, "a");
    stage.tell(Signal::Drain);
    stage.tell(Signal::DrainOver);
    tool_ends(&mut stage, "a");
    assert!(stage.done().is_empty());
    stage.say(Mode::Auto);
    assert!(matches!(stage.done()[..], [Effect::Record { .. }]));
}

#[test]
fn a_segment_that_has_had_its_time_goes_between_two_tools_and_hears_steers_until_then() {
    let mut stage = Stage::working();
    stage.done();
    tool(&mut stage, "a");
    stage.passes(POLICY.cap.as_secs());
    assert!(stage.done().is_empty(), "nothing is cut off");
    stage.say(Mode::Auto);
    stage.recorded();
    stage.echo();
    stage.done();
    tool_ends(&mut stage, "a");
    assert_eq!(stage.done(), [Effect::EndSession]);
    stage.gone();
    let Phase::Waking { trigger, class, .. } = stage.log.phase else { panic!("{:?}", stage.log.phase) };
    assert_eq!((trigger, class), (WakeTrigger::Resume, crate::process::WakeClass::Resume));
}

#[test]
fn a_boundary_that_does_not_come_is_waited_for_ten_minutes() {
    let mut stage = Stage::working();
    stage.done();
    tool(&mut stage, "a");
    let overdue = POLICY.cap + crate::policy::SEGMENT_CAP_GRACE;
    stage.passes(overdue.as_secs() - 1);
    assert!(stage.done().is_empty());
    assert_eq!(stage.segment.next_tick(), Some(overdue));
    stage.passes(1);
    assert_eq!(stage.done(), [Effect::EndSession]);
}

#[test]
fn what_runs_beside_the_turn_is_never_cut_off_for_the_segment_s_time() {
    let mut stage = Stage::working();
    stage.done();
    let task = Signal::TaskStarted {
        task: "b1".into(),
        kind: crate::process::TaskKind::Command,
        label: "make".into(),
    };
    stage.passes(POLICY.cap.as_secs() - 10);
    stage.tell(task);
    tool(&mut stage, "a");
    stage.passes(3_600);
    tool_ends(&mut stage, "a");
    assert!(stage.done().is_empty());
    tool(&mut stage, "c");
    stage.tell(Signal::TaskEnded { task: "b1".into() });
    tool_ends(&mut stage, "c");
    assert_eq!(stage.done(), [Effect::EndSession]);
}

#[test]
fn idle_after_its_time_it_leaves_what_comes_to_the_next() {
    let mut stage = Stage::working();
    stage.turn_ends(TurnOutcome::Completed);
    stage.tell(Signal::Watched);
    stage.done();
    for _ in 0..POLICY.cap.as_secs() / 60 {
        stage.tell(Signal::Watched);
        stage.now += Duration::from_secs(15);
    }
    assert!(stage.done().is_empty(), "idle and watched, it holds nobody up");
    stage.now = POLICY.cap;
    stage.say(Mode::Auto);
    assert_eq!(stage.done(), [Effect::EndSession]);
    stage.gone();
    assert!(matches!(stage.log.phase, Phase::Waking { trigger: WakeTrigger::Message, .. }));
}
