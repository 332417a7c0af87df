//! Entries and states for the unit tests of this crate: made by the domain's own step, with numbers that read well.

use contract::messages::record::{DatedFact, InputEntry, InputKind, Output, OutputEntry, Source, StateEntry};
use domain::Timestamp;
use domain::ids::{
    AgentId, ConversationId, Epoch, ExecutorId, Incarnation, MessageId, OrgId, RecordSeq, Renewal, ReportNo,
    UserId,
};
use domain::process::{
    Cause, ConversationKey, Decision, Fact, Harness, Input, Mode, Report, SegmentEvent, Session, Stage,
    StartWith, State, StopScope, TurnOutcome, step,
};
use uuid::Uuid;

use crate::entry::{Entry, Said};

pub(crate) fn conversation() -> ConversationId {
    ConversationId::from_uuid(Uuid::from_u128(0xC0))
}

pub(crate) fn key() -> ConversationKey {
    ConversationKey { org: OrgId::from_uuid(Uuid::from_u128(1)), conversation: conversation() }
}

pub(crate) fn agent_id() -> AgentId {
    AgentId::from_uuid(Uuid::from_u128(2))
}

pub(crate) fn user() -> UserId {
    UserId::from_uuid(Uuid::from_u128(3))
}

/// The time at which the entry with this sequence was stored.
pub(crate) fn at(sequence: u64) -> Timestamp {
    Timestamp::EPOCH.plus(std::time::Duration::from_secs(sequence))
}

pub(crate) fn text_id(n: u32) -> MessageId {
    MessageId::of_output(conversation(), &n.to_string())
}

pub(crate) fn apply(last: Option<&State>, cause: Cause, now: Timestamp) -> (State, Vec<Fact>) {
    match step(key(), last, cause, now).unwrap() {
        Decision::Append(step) => (step.state, step.facts),
        Decision::Repeated => panic!("repeated"),
    }
}

pub(crate) fn input(seq: u64, input: Input) -> Cause {
    Cause::Input { seq: RecordSeq(seq), from: user(), agent: agent_id(), input }
}

pub(crate) fn message(seq: u64, mode: Mode) -> Cause {
    input(seq, Input::Message { mode, start: Some(StartWith { harness: Harness::ClaudeCode, events: None }) })
}

/// The state after a first message with this sequence.
pub(crate) fn started(seq: u64) -> State {
    apply(None, message(seq, Mode::Auto), at(seq)).0
}

pub(crate) fn report(epoch: u64, n: u64, events: Vec<SegmentEvent>) -> Cause {
    Cause::Report(Report {
        executor: ExecutorId(0),
        incarnation: Incarnation(Uuid::from_u128(4)),
        epoch: Epoch(epoch),
        n: ReportNo(n),
        events,
    })
}

pub(crate) fn claim(epoch: u64) -> Cause {
    report(epoch, 1, vec![SegmentEvent::Claim { renewal: Renewal(1) }])
}

/// The process that the message started, hot and at this stage.
pub(crate) fn hot(seq: u64, stage: Stage) -> State {
    let mut state = apply(Some(&started(seq)), claim(1), at(seq + 1)).0;
    let session = Session { id: "s".into(), version: "1".into() };
    let mut events = vec![
        SegmentEvent::Ready { session },
        SegmentEvent::TurnStarted,
        SegmentEvent::Consumed { inputs: vec![RecordSeq(seq)], fired: Vec::new() },
    ];
    match stage {
        Stage::Starting => return state,
        Stage::Working => {}
        Stage::Idle => events.push(SegmentEvent::TurnEnded { outcome: TurnOutcome::Completed }),
    }
    state = apply(Some(&state), report(1, 2, events), at(seq + 2)).0;
    state
}

fn entry(sequence: u64, said: Said) -> Entry {
    Entry { sequence, at: at(sequence), said }
}

fn inbox(sequence: u64, what: InputKind) -> Entry {
    let said = InputEntry {
        at: at(sequence),
        agent: agent_id(),
        from: user(),
        author: None,
        source: Source::Api,
        idempotency_key: None,
        what,
    };
    entry(sequence, Said::In(Box::new(said)))
}

pub(crate) fn said(sequence: u64, text: &str, mode: Mode) -> Entry {
    inbox(sequence, InputKind::Message { text: text.into(), files: Vec::new(), mode })
}

pub(crate) fn stop(sequence: u64, scope: StopScope) -> Entry {
    inbox(sequence, InputKind::Stop { scope })
}

/// Something that the process started by message 3 says.
pub(crate) fn output(sequence: u64, epoch: u64, what: Output) -> Entry {
    let process = domain::ids::ProcessId::started_by(conversation(), RecordSeq(3));
    let said = OutputEntry { at: at(sequence), process, epoch: Epoch(epoch), what };
    entry(sequence, Said::Out(Box::new(said)))
}

pub(crate) fn facts(sequence: u64, state: &State, facts: &[Fact]) -> Entry {
    let facts = facts.iter().map(|fact| DatedFact { at: at(sequence), fact: fact.clone() }).collect();
    let said = StateEntry { step: sequence, facts, process: state.public() };
    entry(sequence, Said::State(Box::new(said)))
}
