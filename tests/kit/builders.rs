//! Values for tests: ids that read well in a failure, and causes.

use domain::ids::{
    AgentId, ConversationId, Epoch, ExecutorId, Incarnation, OrgId, RecordSeq, Renewal, ReportNo, UserId,
};
use domain::process::{
    Cause, ConversationKey, Harness, Input, Mode, Report, SegmentEvent, StartWith, StopScope,
};
use uuid::Uuid;

pub fn key(n: u128) -> ConversationKey {
    ConversationKey {
        org: OrgId::from_uuid(Uuid::from_u128(1)),
        conversation: ConversationId::from_uuid(Uuid::from_u128(n)),
    }
}

pub fn agent() -> AgentId {
    AgentId::from_uuid(Uuid::from_u128(2))
}

pub fn user() -> UserId {
    UserId::from_uuid(Uuid::from_u128(3))
}

pub fn input(seq: u64, input: Input) -> Cause {
    Cause::Input { seq: RecordSeq(seq), from: user(), agent: agent(), input }
}

pub fn message(seq: u64) -> Cause {
    message_as(seq, Mode::Auto)
}

pub fn message_as(seq: u64, mode: Mode) -> Cause {
    input(seq, Input::Message { mode, start: Some(StartWith { harness: Harness::ClaudeCode, events: None }) })
}

pub fn stop(seq: u64, scope: StopScope) -> Cause {
    input(seq, Input::Stop { scope })
}

/// An executor's life, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    pub executor: ExecutorId,
    pub incarnation: Incarnation,
}

impl Life {
    pub fn new(executor: u16, incarnation: u128) -> Self {
        Self { executor: ExecutorId(executor), incarnation: Incarnation(Uuid::from_u128(incarnation)) }
    }

    pub fn report(self, epoch: u64, n: u64, events: Vec<SegmentEvent>) -> Cause {
        Cause::Report(Report {
            executor: self.executor,
            incarnation: self.incarnation,
            epoch: Epoch(epoch),
            n: ReportNo(n),
            events,
        })
    }

    pub fn claim(self, epoch: u64) -> Cause {
        self.report(epoch, 1, vec![SegmentEvent::Claim { renewal: Renewal(1) }])
    }
}
