//! The transitions one by one, as a person would tell them.

use domain::process::{
    Answer, Cause, Decision, EventKey, ExitReason, Fact, Input, LossReason, Mode, Outcome, ParkReason, Phase,
    SegmentEvent, Session, Stage, State, Step, StopScope, Substate, TaskKind, TurnOutcome, WaitOn,
    WaitRequest, WakeClass, WakeTrigger, step,
};
use domain::{Refusal, Timestamp};
use tests::builders::{Life, input, key, message, message_as, stop};

/// A conversation told step by step.
#[derive(Default)]
struct Story {
    state: Option<State>,
    n: u64,
}

impl Story {
    fn then(&mut self, cause: Cause) -> Step {
        self.then_at(Timestamp::EPOCH, cause)
    }

    fn then_at(&mut self, now: Timestamp, cause: Cause) -> Step {
        match step(key(1), self.state.as_ref(), cause, now) {
            Ok(Decision::Append(step)) => {
                self.state = Some(step.state.clone());
                *step
            }
            other => panic!("expected a step: {other:?}"),
        }
    }

    fn declined(&self, cause: Cause) -> Refusal {
        self.declined_at(Timestamp::EPOCH, cause)
    }

    fn declined_at(&self, now: Timestamp, cause: Cause) -> Refusal {
        match step(key(1), self.state.as_ref(), cause, now) {
            Err(refusal) => refusal,
            other => panic!("expected a refusal: {other:?}"),
        }
    }

    fn reports(&mut self, events: Vec<SegmentEvent>) -> Step {
        self.reports_at(Timestamp::EPOCH, events)
    }

    fn reports_at(&mut self, now: Timestamp, events: Vec<SegmentEvent>) -> Step {
        self.n += 1;
        let epoch = self.state().epoch.0;
        self.then_at(now, life().report(epoch, self.n, events))
    }

    fn state(&self) -> &State {
        self.state.as_ref().expect("a state")
    }

    fn answer(&self) -> &Answer {
        &self.state().reported.as_ref().expect("a report").answer
    }

    fn claimed() -> Self {
        let mut story = Self::default();
        story.then(message(1));
        story.then(life().claim(1));
        story.n = 1;
        story
    }

    /// Hot, with its first message consumed.
    fn working() -> Self {
        let mut story = Self::claimed();
        story.reports(vec![
            SegmentEvent::Ready { session: Session { id: "s1".into(), version: "2.1".into() } },
            SegmentEvent::TurnStarted,
            SegmentEvent::Consumed { inputs: vec![domain::ids::RecordSeq(1)], fired: Vec::new() },
        ]);
        story
    }
}

fn life() -> Life {
    Life::new(0, 7)
}

fn finish() -> SegmentEvent {
    SegmentEvent::Finish { summary: "done".into() }
}

fn absent(unfinished: bool) -> SegmentEvent {
    SegmentEvent::Park { reason: ParkReason::Absent, unfinished, events: None }
}

#[test]
fn a_first_message_starts_a_process_that_is_claimed_works_and_finishes() {
    let mut story = Story::default();
    let started = story.then(message(1));
    assert_eq!(started.facts[0], Fact::Started { ordinal: 1 });
    assert!(matches!(
        started.state.phase,
        Phase::Waking { trigger: WakeTrigger::Start, class: WakeClass::Input, .. }
    ));
    assert_eq!(story.state().substate(), Some(Substate::Working));

    let mut story = Story::working();
    assert!(story.state().undelivered.is_empty());
    let finished = story.reports(vec![finish()]);
    let Phase::Ended { exit, .. } = &finished.state.phase else { panic!("{finished:?}") };
    assert_eq!((exit.outcome, exit.reason), (Outcome::Completed, ExitReason::FinishProcess));
    assert_eq!(exit.summary.as_deref(), Some("done"));
    assert_eq!(story.answer(), &Answer::Done);
}

#[test]
fn the_next_message_starts_the_next_process_with_what_the_chain_hands_on() {
    let mut story = Story::working();
    story.reports(vec![finish()]);
    let ended = story.state().clone();
    let next = story.then(message(5)).state;
    assert_ne!(next.process, ended.process);
    assert_eq!((next.ordinal, next.epoch.0), (2, 2));
    assert_eq!((next.session, next.volume), (ended.session, ended.volume));
    assert_eq!(next.undelivered.len(), 1);
    assert_eq!(next.reported, None);
}

#[test]
fn finish_is_held_while_a_message_is_unread_and_records_only_its_number() {
    let mut story = Story::working();
    story.then(message(2));
    let before = story.state().clone();
    let held = story.reports(vec![finish()]);
    assert!(held.state.is_live());
    let Answer::Refused { why } = story.answer() else { panic!("{:?}", story.answer()) };
    assert!(why.to_string().contains("a message arrived that you have not read"), "{why}");
    let after = State { reported: before.reported.clone(), ..story.state().clone() };
    assert_eq!(after, before);
}

#[test]
fn a_repeated_report_changes_nothing_and_one_that_skips_a_number_waits() {
    let mut story = Story::working();
    story.reports(vec![SegmentEvent::Noted { text: "half way".into() }]);
    let again = life().report(1, story.n, vec![SegmentEvent::Noted { text: "half way".into() }]);
    assert_eq!(step(key(1), story.state.as_ref(), again, Timestamp::EPOCH), Ok(Decision::Repeated));
    let early = life().report(1, story.n + 2, vec![finish()]);
    assert!(matches!(story.declined(early), Refusal::ReportGap { .. }));
}

#[test]
fn a_second_claim_of_an_epoch_and_a_claim_without_the_volume_are_refused() {
    let story = Story::claimed();
    assert!(matches!(story.declined(Life::new(1, 8).claim(1)), Refusal::Fenced { .. }));
    let mut story = Story::working();
    story.reports(vec![finish()]);
    story.then(message(2));
    assert!(matches!(story.declined(Life::new(1, 8).claim(2)), Refusal::OtherVolume { .. }));
}

#[test]
fn a_message_to_a_parked_process_wakes_it_under_the_next_epoch() {
    let mut story = Story::working();
    story.reports(vec![SegmentEvent::TurnEnded { outcome: TurnOutcome::Completed }]);
    story.reports(vec![absent(false)]);
    assert_eq!(story.state().substate(), Some(Substate::Waiting));
    let woken = story.then(message(3)).state;
    assert_eq!(woken.epoch.0, 2);
    assert_eq!(woken.process, story.state().process);
    assert!(matches!(woken.phase, Phase::Waking { trigger: WakeTrigger::Message, .. }));
}

#[test]
fn a_message_that_came_while_it_parked_wakes_it_at_once() {
    let mut story = Story::working();
    story.then(message(2));
    let parked = story.reports(vec![absent(false)]);
    assert!(matches!(parked.state.phase, Phase::Waking { trigger: WakeTrigger::Message, .. }));
    assert_eq!(parked.state.undelivered.len(), 1);
}

#[test]
fn a_turn_cut_by_a_drain_goes_on_and_attention_waits_for_a_person() {
    let mut story = Story::working();
    let drained =
        story.reports(vec![SegmentEvent::Park { reason: ParkReason::Drain, unfinished: true, events: None }]);
    assert!(matches!(
        drained.state.phase,
        Phase::Waking { trigger: WakeTrigger::Resume, class: WakeClass::Resume, .. }
    ));

    let mut story = Story::claimed();
    let reason = ParkReason::NeedsAttention { what: "allow user namespaces".into() };
    story.reports(vec![SegmentEvent::Park { reason, unfinished: true, events: None }]);
    assert_eq!(story.state().substate(), Some(Substate::NeedsAttention));
    assert_eq!(story.state().undelivered.len(), 1, "the first message is kept for the next wake");
    assert!(story.state().public().next.starts_with("allow user namespaces"));
}

#[test]
fn a_harness_that_crashes_rests_for_longer_each_time_and_the_fifth_time_a_person_has_to_look() {
    let crashed = || SegmentEvent::Crashed { what: "the harness exited with 1".into(), events: None };
    let ready = || SegmentEvent::Ready { session: Session { id: "s1".into(), version: "2.1".into() } };
    let mut story = Story::working();
    let mut now = Timestamp::EPOCH;
    for rest in domain::policy::CRASH_BACK_OFF {
        let epoch = story.state().epoch.0;
        let parked = story.reports_at(now, vec![crashed()]);
        let Phase::Parked { reason: ParkReason::Crashed { until, .. }, .. } = parked.state.phase else {
            panic!("{parked:?}")
        };
        assert_eq!(until, now.plus(rest));
        let (timer, at) = parked.state.timer().expect("a timer");
        assert_eq!(at, until);
        assert!(story.declined_at(now, Cause::Due { wait: timer }).to_string().contains("due"));
        now = until;
        let woken = story.then_at(now, Cause::Due { wait: timer });
        assert!(matches!(woken.state.phase, Phase::Waking { trigger: WakeTrigger::Crashed, .. }));
        assert!(story.state().crashes.untold.is_some(), "the agent is told when its next turn starts");
        story.then_at(now, life().claim(epoch + 1));
        story.n = 1;
        story.reports_at(now, vec![ready(), SegmentEvent::TurnStarted]);
        assert!(story.state().crashes.untold.is_none());
    }
    let before = story.state().clone();
    let given_up = story.reports_at(now, vec![crashed()]);
    assert_eq!(given_up.state.substate(), Some(Substate::NeedsAttention));
    assert!(given_up.state.public().next.contains("5 times in a row: the harness exited with 1"));

    // A turn that succeeds, a message and a loss of the executor are told from a crash.
    let mut good = Story { state: Some(before.clone()), n: story.n - 1 };
    good.reports_at(now, vec![SegmentEvent::TurnEnded { outcome: TurnOutcome::Completed }]);
    assert_eq!(good.state().crashes.in_a_row, 0);
    story.then_at(now, message(9));
    assert!(matches!(story.state().phase, Phase::Waking { trigger: WakeTrigger::Message, .. }));
    assert_eq!(story.state().crashes.in_a_row, 0);
    let mut lost = Story { state: Some(before.clone()), n: 0 };
    let why = LossReason::LeaseExpired;
    lost.then_at(now, Cause::Lost { executor: life().executor, epoch: before.epoch, why });
    assert_eq!(lost.state().crashes.in_a_row, 4);
}

#[test]
fn a_queued_message_waits_for_the_end_of_the_turn() {
    let mut story = Story::working();
    story.then(message_as(2, Mode::Queue));
    assert_eq!(story.state().deliverable().count(), 0);
    story.reports(vec![SegmentEvent::TurnEnded { outcome: TurnOutcome::Completed }]);
    assert_eq!(story.state().deliverable().count(), 1);
}

#[test]
fn a_turn_stop_is_asked_of_the_segment_and_answered_by_the_end_of_the_turn() {
    let mut story = Story::working();
    story.then(stop(2, StopScope::Turn));
    assert!(story.state().hot().expect("hot").interrupt.is_some());
    story.then(message(3));
    story.reports(vec![SegmentEvent::TurnEnded { outcome: TurnOutcome::Interrupted }]);
    let hot = story.state().hot().expect("still in progress").clone();
    assert_eq!((hot.interrupt, hot.stage), (None, Stage::Idle));
    assert_eq!(story.state().deliverable().count(), 1, "the queued message runs next");

    let nothing = story.then(stop(4, StopScope::Turn));
    assert_eq!(nothing.facts, vec![Fact::NothingRan { input: domain::ids::RecordSeq(4) }]);
}

#[test]
fn interrupting_delivers_after_the_turn_has_been_cut() {
    let mut story = Story::working();
    story.then(message_as(2, Mode::Interrupt));
    assert!(story.state().hot().expect("hot").interrupt.is_some());
    assert_eq!(story.state().deliverable().count(), 1);
}

#[test]
fn a_process_stop_returns_what_was_not_read_and_a_second_one_is_told() {
    let mut story = Story::working();
    story.then(message(2));
    let stopped = story.then(stop(3, StopScope::Process));
    assert!(stopped.facts.contains(&Fact::Returned { inputs: vec![domain::ids::RecordSeq(2)] }));
    let again = story.then(stop(4, StopScope::Process));
    let Fact::Refused { why, .. } = &again.facts[0] else { panic!("{again:?}") };
    assert_eq!(why.to_string(), "the process is Stopped already; send a message to start the next one");
    assert_eq!(again.state.handled.0, 4, "a refused input takes its number");
    assert_eq!(story.then(input(5, Input::Archive)).facts.len(), 1);
}

#[test]
fn a_report_on_an_ended_process_takes_its_number() {
    let mut story = Story::working();
    story.then(stop(2, StopScope::Process));
    let late = story.reports(vec![finish()]);
    assert_eq!(late.facts, vec![Fact::Refused { input: None, why: Refusal::NoLongerHot }]);
    assert_eq!(story.state().reported.as_ref().expect("reported").n.0, story.n);
}

#[test]
fn a_lost_segment_wakes_again_and_its_reports_are_fenced() {
    let mut story = Story::working();
    let lost = Cause::Lost {
        executor: life().executor,
        epoch: domain::ids::Epoch(1),
        why: LossReason::LeaseExpired,
    };
    assert!(matches!(story.then(lost.clone()).state.phase, Phase::Waking { .. }));
    assert!(matches!(story.declined(lost), Refusal::Fenced { .. }));
    assert!(matches!(story.declined(life().report(1, story.n + 1, vec![finish()])), Refusal::Fenced { .. }));
    assert!(matches!(story.then(life().claim(2)).state.phase, Phase::Hot(_)), "and may claim the next epoch");
}

#[test]
fn what_cannot_start_ends_on_the_process_it_would_have_started() {
    let mut story = Story::default();
    let refused = story.then(message_as(1, Mode::Steer));
    assert_eq!(
        refused.facts,
        vec![Fact::Refused { input: Some(domain::ids::RecordSeq(1)), why: Refusal::NothingToSteer }]
    );
    assert_eq!(refused.state.phase, Phase::Absent);
    let started = story.then(message(2));
    assert_eq!(started.facts[0], Fact::Started { ordinal: 1 });
    let gone = input(3, Input::Message { mode: Mode::Auto, start: None });
    assert_eq!(
        story.then(gone).facts[0],
        Fact::Routed { input: domain::ids::RecordSeq(3) },
        "a live process needs no agent"
    );
    story.then(stop(4, StopScope::Process));
    let gone = input(5, Input::Message { mode: Mode::Auto, start: None });
    assert!(matches!(story.then(gone).facts[0], Fact::Refused { why: Refusal::AgentDeleted { .. }, .. }));
}

#[test]
fn an_input_that_is_rung_again_is_decided_already() {
    let story = Story::working();
    assert!(matches!(story.declined(message(1)), Refusal::AlreadyHandled { .. }));
}

/// Parked, with nothing to wait for.
fn idle() -> Story {
    let mut story = Story::working();
    story.reports(vec![absent(false)]);
    story
}

#[test]
fn a_process_that_nobody_needs_asks_once_and_then_finishes_itself_with_its_summary() {
    let mut story = idle();
    let since = story.state().idle_since().expect("it is idle");
    assert_eq!(story.then(Cause::Nudge { since }).facts, [Fact::Nudged]);
    assert_eq!(story.declined(Cause::Nudge { since }), Refusal::NotIdle);
    let woken = story.then(Cause::SelfFinish { since });
    assert!(matches!(woken.facts.as_slice(), [Fact::Waking { trigger: WakeTrigger::SelfFinish, .. }]));
    story.then(life().claim(2));
    story.n = 1;
    // What would hold a finish does not hold this one.
    let wait = WaitRequest {
        reason: "no matter".into(),
        on: WaitOn::Event {
            event: EventKey::Github { repo: "o/r".into(), number: 7 },
            kinds: Vec::new(),
            timeout: None,
        },
    };
    story.reports(vec![SegmentEvent::Wait(wait)]);
    let ended = story.reports(vec![finish()]);
    assert!(ended.facts.iter().any(|fact| matches!(fact, Fact::Ended { exit } if exit.outcome == Outcome::Completed && exit.reason == ExitReason::SelfFinish && exit.summary.as_deref() == Some("done"))), "{ended:?}");
}

#[test]
fn one_that_does_not_take_its_last_wake_ends_with_its_last_note() {
    let ended_with = |story: &Story| match &story.state().phase {
        Phase::Ended { exit, .. } if exit.reason == ExitReason::SelfFinish => exit.summary.clone(),
        phase => panic!("{phase:?}"),
    };
    // It parks again without having finished.
    let mut story = Story::working();
    story.reports(vec![SegmentEvent::Noted { text: "half way".into() }, absent(false)]);
    let since = story.state().idle_since().expect("it is idle");
    story.then(Cause::SelfFinish { since });
    let mut late = Story { state: story.state.clone(), n: 0 };
    story.then(life().claim(2));
    story.n = 1;
    story.reports(vec![absent(false)]);
    assert_eq!(ended_with(&story).as_deref(), Some("half way"));
    // Nobody takes it, and its time is over.
    let finishing = late.state().finishing.expect("it is to finish");
    late.then(Cause::SelfFinish { since: finishing });
    assert_eq!(ended_with(&late).as_deref(), Some("half way"));
}

#[test]
fn a_message_takes_back_the_end_of_an_idle_process() {
    let mut story = idle();
    let since = story.state().idle_since().expect("it is idle");
    story.then(Cause::SelfFinish { since });
    let finishing = story.state().finishing.expect("it is to finish");
    story.then(message(9));
    assert_eq!(story.declined(Cause::SelfFinish { since: finishing }), Refusal::NotIdle);
    story.then(life().claim(2));
    story.n = 1;
    let held = story.reports(vec![finish()]);
    assert!(matches!(held.facts.as_slice(), [Fact::FinishHeld { .. }]), "{held:?}");
}

#[test]
fn a_wait_for_a_time_stops_the_count_of_idle_days() {
    let mut story = Story::working();
    let until = Timestamp::EPOCH.plus(std::time::Duration::from_secs(60 * 24 * 3600));
    let wait = WaitRequest { reason: "the release".into(), on: WaitOn::Time { until } };
    story.reports(vec![SegmentEvent::Wait(wait)]);
    story.reports(vec![SegmentEvent::Park { reason: ParkReason::WaitTime, unfinished: false, events: None }]);
    assert_eq!(story.state().idle_since(), None);
    assert_eq!(story.declined(Cause::SelfFinish { since: Timestamp::EPOCH }), Refusal::NotIdle);
}

#[test]
fn what_runs_beside_the_turn_dies_with_its_segment_and_is_told_until_the_next_turn() {
    let mut story = Story::working();
    let started = |task: &str| SegmentEvent::TaskStarted {
        task: task.into(),
        kind: TaskKind::Command,
        label: format!("make {task}"),
    };
    story.reports(vec![started("a"), started("b"), SegmentEvent::TaskEnded { task: "a".into() }]);
    let parked = story.reports(vec![absent(false)]);
    assert_eq!(parked.facts[0], Fact::TaskKilled { task: "b".into(), label: "make b".into() });
    assert_eq!(parked.state.killed, ["make b"]);
    story.then(message(9));
    story.then(life().claim(2));
    story.n = 1;
    assert_eq!(story.state().killed, ["make b"]);
    story.reports(vec![SegmentEvent::TurnStarted]);
    assert!(story.state().killed.is_empty());
}
