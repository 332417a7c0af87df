//! What stands on the bus, byte for byte. A difference here is a new format: readers of the old one are still running,
//! and parked messages are weeks old.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a suite fails by panicking")]

use contract::buckets::{
    Access, Agent, Conversation, Delivery, Head, HeldSegment, Hook, HotSegment, Key, Lease, PermissionMode,
    Role, SecretHash, Watermark,
};
use contract::messages::assign::Assignment;
use contract::messages::audit::{AuditEntry, Audited};
use contract::messages::event::EventEntry;
use contract::messages::live::{Beat, Delta};
use contract::messages::record::{
    Answer, Author, DatedFact, InputEntry, InputKind, Output, OutputEntry, PlanItem, PlanStatus, Question,
    Source, StateEntry,
};
use contract::messages::segment::SegmentReport;
use contract::messages::timer::Timer;
use domain::Timestamp;
use domain::ids::{
    AgentId, ConversationId, Epoch, EventSeq, ExecutorId, HookId, Incarnation, KeyId, MessageId, OrgId,
    ProcessId, QuestionId, RecordSeq, Renewal, ReportNo, TurnNo, UserId, WaitId,
};
use domain::process::{
    Card, Cause, ConversationKey, Decision, EventDigest, EventKey, Harness, Input, Mode, OpenQuestion,
    ParkReason, Report, SegmentEvent, Session, StartWith, State, Step, StopScope, TaskKind, TurnOutcome,
    WaitOn, WaitRequest, WakeClass, step,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use uuid::Uuid;

const ORG: OrgId = OrgId::from_uuid(Uuid::from_u128(0x0a));
const USER: UserId = UserId::from_uuid(Uuid::from_u128(0x0b));
const AGENT: AgentId = AgentId::from_uuid(Uuid::from_u128(0x0c));
const CONVERSATION: ConversationId = ConversationId::from_uuid(Uuid::from_u128(0x0d));
const KEY: ConversationKey = ConversationKey { org: ORG, conversation: CONVERSATION };
const INCARNATION: Incarnation = Incarnation(Uuid::from_u128(0x0e));

const DAY: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

fn at() -> Timestamp {
    "2026-12-01T09:00:00.125Z".parse().unwrap()
}

fn process() -> ProcessId {
    ProcessId::started_by(CONVERSATION, RecordSeq(11))
}

fn message_id() -> MessageId {
    MessageId::of_output(CONVERSATION, "msg_1.0")
}

/// The golden file holds every form; each reads back to what was written.
fn golden<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(name: &str, forms: &[T]) {
    for form in forms {
        let bytes = serde_json::to_vec(form).unwrap();
        assert_eq!(&serde_json::from_slice::<T>(&bytes).unwrap(), form, "{name} reads back");
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../golden");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_json_snapshot!(name, forms));
}

fn report(n: u64, events: Vec<SegmentEvent>) -> Report {
    Report { executor: ExecutorId(0), incarnation: INCARNATION, epoch: Epoch(1), n: ReportNo(n), events }
}

fn every_event() -> Vec<SegmentEvent> {
    vec![
        SegmentEvent::Claim { renewal: Renewal(4) },
        SegmentEvent::Ready { session: Session { id: "0b5e".into(), version: "2.1.197".into() } },
        SegmentEvent::Consumed { inputs: vec![RecordSeq(11)], fired: Vec::new() },
        SegmentEvent::TurnStarted,
        SegmentEvent::TurnEnded { outcome: TurnOutcome::Interrupted },
        SegmentEvent::Noted { text: "half way".into() },
        SegmentEvent::Finish { summary: "done".into() },
        SegmentEvent::Park { reason: ParkReason::Absent, unfinished: false, events: None },
        SegmentEvent::Park { reason: ParkReason::Drain, unfinished: true, events: None },
        SegmentEvent::Park {
            reason: ParkReason::NeedsAttention { what: "mend it".into() },
            unfinished: true,
            events: Some(EventSeq(40)),
        },
        SegmentEvent::Crashed { what: "the harness exited with 137".into(), events: Some(EventSeq(40)) },
        SegmentEvent::StoodStill { seconds: 40 },
        SegmentEvent::TaskStarted { task: "b1".into(), kind: TaskKind::Command, label: "make".into() },
        SegmentEvent::TaskEnded { task: "b1".into() },
        SegmentEvent::Wait(WaitRequest { reason: "the build".into(), on: WaitOn::Time { until: at() } }),
        SegmentEvent::Wait(WaitRequest {
            reason: "the review".into(),
            on: WaitOn::Event {
                event: pull_request(),
                kinds: vec!["pull_request.closed".into()],
                timeout: Some(at()),
            },
        }),
        SegmentEvent::CancelWait,
        SegmentEvent::Asked(card()),
        SegmentEvent::Withdrawn { questions: vec![card().questions[0].id] },
    ]
}

fn pull_request() -> EventKey {
    EventKey::Github { repo: "owner/name".into(), number: 7 }
}

fn card() -> Card {
    let card = message_id();
    Card { id: card, questions: vec![OpenQuestion { id: QuestionId::of(card, 0), free_text: true }] }
}

/// A process that works, asks, waits, and is woken by what it waited for.
fn a_wait() -> Vec<Step> {
    let start = Some(StartWith { harness: Harness::ClaudeCode, events: Some(EventSeq(3)) });
    let wait = WaitOn::Event { event: pull_request(), kinds: Vec::new(), timeout: Some(at().plus(DAY)) };
    let booked = WaitRequest { reason: "the review".into(), on: wait };
    let task = |event: &SegmentEvent| {
        matches!(event, SegmentEvent::TaskStarted { .. } | SegmentEvent::TaskEnded { .. })
    };
    let tasks = every_event().into_iter().filter(task).collect();
    let mut told = vec![
        input(11, Input::Message { mode: Mode::Auto, start }),
        Cause::Report(report(1, vec![SegmentEvent::Claim { renewal: Renewal(4) }])),
        Cause::Report(report(2, every_event()[1..4].to_vec())),
        Cause::Report(report(3, tasks)),
        Cause::Report(report(4, vec![SegmentEvent::Asked(card())])),
        Cause::Report(report(5, vec![SegmentEvent::Finish { summary: "too early".into() }])),
        input(15, Input::Answer { card: message_id(), questions: vec![card().questions[0].id] }),
        input(16, Input::Answer { card: message_id(), questions: vec![card().questions[0].id] }),
        Cause::Report(report(
            6,
            vec![SegmentEvent::Consumed { inputs: vec![RecordSeq(15)], fired: Vec::new() }],
        )),
        Cause::Report(report(7, vec![SegmentEvent::Wait(booked)])),
        Cause::Report(report(
            8,
            vec![SegmentEvent::Park {
                reason: ParkReason::WaitEvent,
                unfinished: false,
                events: Some(EventSeq(9)),
            }],
        )),
    ];
    let booked = told_by(told.clone()).last().and_then(|step| step.state.wait.clone()).expect("a wait").id;
    let event = EventDigest {
        seq: EventSeq(12),
        key: pull_request(),
        kind: "issue_comment.created".into(),
        summary: "A comment was created.".into(),
        url: Some("https://github.com/owner/name/pull/7".into()),
        author: Some("someone".into()),
        association: Some("MEMBER".into()),
        text: Some("Looks good.".into()),
    };
    let since = told_by(told.clone()).last().and_then(|step| step.state.idle_since()).expect("it is idle");
    told.push(Cause::Nudge { since });
    told.push(Cause::SelfFinish { since });
    told.push(Cause::Happened { wait: booked, event: Box::new(event) });
    told.push(input(17, Input::Fail { why: "given up".into() }));
    told.push(input(18, Input::Retry));
    told_by(told)
}

fn input(seq: u64, input: Input) -> Cause {
    Cause::Input { seq: RecordSeq(seq), from: USER, agent: AGENT, input }
}

/// A conversation from its first message to the second process.
fn a_life() -> Vec<Step> {
    let start = Some(StartWith { harness: Harness::ClaudeCode, events: None });
    let causes = vec![
        input(11, Input::Message { mode: Mode::Auto, start: start.clone() }),
        Cause::Report(report(1, vec![SegmentEvent::Claim { renewal: Renewal(4) }])),
        Cause::Report(report(2, every_event()[1..4].to_vec())),
        input(15, Input::Message { mode: Mode::Queue, start: None }),
        input(16, Input::Message { mode: Mode::Interrupt, start: None }),
        input(17, Input::Stop { scope: StopScope::Turn }),
        Cause::Report(report(3, vec![SegmentEvent::Finish { summary: "done".into() }])),
        Cause::Report(report(4, every_event()[4..6].to_vec())),
        Cause::Lost { executor: ExecutorId(0), epoch: Epoch(1), why: domain::process::LossReason::Restarted },
        input(20, Input::Duplicate { of: RecordSeq(11) }),
        input(21, Input::Dead { error: "unreadable".into() }),
        input(22, Input::Stop { scope: StopScope::Process }),
        input(23, Input::Stop { scope: StopScope::Process }),
        input(24, Input::Archive),
        input(25, Input::Message { mode: Mode::Auto, start }),
        Cause::Report(Report {
            epoch: Epoch(3),
            ..report(1, vec![SegmentEvent::Claim { renewal: Renewal(9) }])
        }),
        Cause::Report(Report {
            epoch: Epoch(3),
            ..report(
                2,
                vec![SegmentEvent::Crashed { what: "the harness exited with 1".into(), events: None }],
            )
        }),
    ];
    told_by(causes)
}

fn told_by(causes: Vec<Cause>) -> Vec<Step> {
    let mut state: Option<State> = None;
    causes
        .into_iter()
        .map(|cause| match step(KEY, state.as_ref(), cause, at()) {
            Ok(Decision::Append(step)) => {
                state = Some(step.state.clone());
                *step
            }
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn steps() {
    golden("step", &a_life());
    golden("step_wait", &a_wait());
}

#[test]
fn reports() {
    golden("report", &[SegmentReport { key: KEY, process: process(), report: report(1, every_event()) }]);
}

#[test]
fn record() {
    let said = |what| InputEntry {
        at: at(),
        agent: AGENT,
        from: USER,
        author: Some(Author { id: Some("u-1".into()), name: Some("N".into()), email: None }),
        source: Source::Api,
        idempotency_key: Some("k".into()),
        what,
    };
    golden(
        "input",
        &[
            said(InputKind::Message {
                text: "hello".into(),
                files: vec!["notes.md".into()],
                mode: Mode::Auto,
            }),
            said(InputKind::Stop { scope: StopScope::Process }),
            said(InputKind::Archive),
            said(InputKind::Answer {
                card: message_id(),
                answers: vec![Answer {
                    question: card().questions[0].id,
                    text: "Which?".into(),
                    answer: vec!["a".into()],
                }],
            }),
            said(InputKind::Retry),
            said(InputKind::Fail { why: "given up".into() }),
        ],
    );
    let outputs = vec![
        Output::InHarness {
            frame: Uuid::from_u128(1),
            inputs: vec![RecordSeq(11), RecordSeq(12)],
            fired: Vec::new(),
        },
        Output::TurnStarted { turn: TurnNo(1) },
        Output::MessageStarted { message_id: message_id() },
        Output::MessageDropped { message_id: message_id() },
        Output::Text { message_id: message_id(), text: "done".into() },
        Output::ToolCall { id: "toolu_1".into(), name: "Bash".into(), input: json!({ "command": "ls" }) },
        Output::ToolResult { id: "toolu_1".into(), output: json!("a\nb"), is_error: false },
        Output::Plan { items: vec![PlanItem { text: "look".into(), status: PlanStatus::InProgress }] },
        Output::Note { text: "half way".into() },
        Output::TurnEnded { turn: TurnNo(1), outcome: TurnOutcome::Completed, text: Some("done".into()) },
        Output::Notice { text: "the sandbox is unavailable".into() },
        Output::Card {
            card: message_id(),
            questions: vec![Question {
                id: card().questions[0].id,
                text: "Which?".into(),
                options: vec!["a".into(), "b".into()],
                multiple: false,
                free_text: true,
            }],
        },
    ];
    let said = |what| OutputEntry { at: at(), process: process(), epoch: Epoch(1), what };
    golden("output", &outputs.into_iter().map(said).collect::<Vec<_>>());
    let life: Vec<_> = a_life().into_iter().chain(a_wait()).collect();
    let entry = |step: &Step| StateEntry {
        step: 40,
        facts: step.facts.iter().map(|fact| DatedFact { at: at(), fact: fact.clone() }).collect(),
        process: step.state.public(),
    };
    golden("state", &life.iter().map(entry).collect::<Vec<_>>());
}

#[test]
fn passing_messages() {
    let assignment = Assignment { key: KEY, process: process(), epoch: Epoch(2), class: WakeClass::Input };
    golden("assign", &[assignment]);
    let wait = WaitId::booked_by(process(), Epoch(1), ReportNo(7), 0);
    let event = EventEntry {
        at: at(),
        key: pull_request(),
        kind: "issue_comment.created".into(),
        own: false,
        summary: "A comment on the pull request was created.".into(),
        url: Some("https://github.com/owner/name/pull/7".into()),
        author: Some("someone".into()),
        association: Some("MEMBER".into()),
        text: Some("Looks good.".into()),
    };
    golden("event", &[event.clone(), EventEntry { own: true, text: None, ..event }]);
    golden("timer", &[Timer { key: KEY, process: process(), wait, at: at() }]);
    golden("delta", &[Delta { message_id: message_id(), epoch: Epoch(1), offset: 5, text: "lo".into() }]);
    golden("beat", &[Beat { wants_text: true }]);
    let audited = [
        Audited::KeyAdded { key: KeyId::from_uuid(Uuid::from_u128(9)), user: USER, role: Role::Operator },
        Audited::AgentCreated { agent: AGENT },
        Audited::AgentChanged { agent: AGENT },
        Audited::AgentDeleted { agent: AGENT },
    ];
    golden("audit", &audited.map(|what| AuditEntry { at: at(), by: Some(USER), what }));
}

#[test]
fn buckets() {
    golden(
        "bucket_agents",
        &[Agent {
            id: AGENT,
            org: ORG,
            name: "Builder".into(),
            description: String::new(),
            instructions: "Be brief.".into(),
            harness: Harness::ClaudeCode,
            model: None,
            permission_mode: PermissionMode::Full,
            gated_commands: Vec::new(),
            access: Access::Org,
            created_by: USER,
            created_at: at(),
            updated_at: at(),
            deleted_at: None,
        }],
    );
    golden(
        "bucket_conversations",
        &[Conversation {
            id: CONVERSATION,
            agent: AGENT,
            title: "hello".into(),
            created_by: USER,
            created_at: at(),
            last_input: RecordSeq(11),
            archived_at: None,
        }],
    );
    golden(
        "bucket_executors",
        &[Lease {
            incarnation: INCARNATION,
            renewal: Renewal(4),
            segments: vec![HeldSegment { process: process(), epoch: Epoch(1) }],
            slots: 4,
            orgs: vec![ORG],
            draining: false,
            unable: Some("bubblewrap is missing".into()),
            version: "0.1.0".into(),
        }],
    );
    golden(
        "bucket_hooks",
        &[Hook {
            id: HookId::from_uuid(Uuid::from_u128(0x0f)),
            org: ORG,
            secrets: vec!["s1".into(), "s2".into()],
            app: Some("our-app[bot]".into()),
            created_at: at(),
        }],
    );
    let hot = HotSegment {
        key: KEY,
        process: process(),
        epoch: Epoch(1),
        executor: ExecutorId(0),
        incarnation: INCARNATION,
        renewal: Renewal(4),
    };
    golden("bucket_watermarks", &[Watermark { step: 7, hot: vec![hot] }]);
    golden("bucket_heads", &[Head { number: 7, commit: "abc".into() }]);
    golden("bucket_volumes", &[ExecutorId(0)]);
    golden("bucket_deliveries", &[Delivery { input: RecordSeq(11), content: "ab".into() }]);
    let key = Key {
        id: KeyId::from_uuid(Uuid::from_u128(9)),
        org: ORG,
        user: USER,
        role: Role::Member,
        created_at: at(),
    };
    golden("bucket_keys", &[key]);
    assert_eq!(SecretHash::of("s").to_string().len(), 64);
}
