//! The HTTP roles on one listener, as one program would serve them, with a real broker, steerer and registry; and a hand
//! that plays the executor.

use std::sync::Arc;
use std::time::Duration;

use bus::{AppendError, Appended, Heard, Log, Nats, Outgoing, Port, kv};
use contract::Subject;
use contract::buckets::{Key, Keys, Role, SecretHash};
use contract::messages::live::{Beat, Delta};
use contract::messages::record::{Output, OutputEntry};
use contract::subjects::filter;
use contract::topology::{CONSOLE, INGRESS, OPERATOR, PROCESS, RECORD, REGISTRY, STEERER};
use domain::ids::{
    Epoch, ExecutorId, Incarnation, KeyId, MessageId, OrgId, ProcessId, RecordSeq, Renewal, ReportNo, UserId,
};
use domain::process::{
    Cause, ConversationKey, Exit, ParkReason, Phase, Report, SegmentEvent, Session, State, Step, TurnOutcome,
};
use ingress::IngressConfig;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use service::Runtime;
use service::clock::RealClock;
use service::health::Health;
use service::http::{Limits, serve};
use service::metrics::Metrics;
use service::shutdown::Shutdown;
use tests::api::{Answer, Api};
use tests::{Broker, soon};
use tokio::net::TcpListener;
use uuid::Uuid;

/// Short, so that a test of it is.
pub(crate) const INVOKE_TIMEOUT: Duration = Duration::from_secs(2);

const EXECUTOR: ExecutorId = ExecutorId(0);

pub(crate) struct Served {
    pub(crate) broker: Broker,
    pub(crate) operator: Nats,
    pub(crate) url: String,
    pub(crate) shutdown: Shutdown,
    runtime: Runtime,
    log: Log,
    executor: Nats,
}

/// A process's segment, played by the test.
pub(crate) struct Hand {
    pub(crate) key: ConversationKey,
    pub(crate) process: ProcessId,
    pub(crate) epoch: Epoch,
    n: u64,
    log: Log,
    nats: Nats,
}

pub(crate) fn org(n: u128) -> OrgId {
    OrgId::from_uuid(Uuid::from_u128(n))
}

pub(crate) fn user(n: u128) -> UserId {
    UserId::from_uuid(Uuid::from_u128(n))
}

// === impl Served ===

impl Served {
    pub(crate) async fn start() -> Self {
        let served = Self::without_steerer().await;
        served.steer().await;
        served
    }

    /// What is accepted stays undecided until [`Served::steer`].
    pub(crate) async fn without_steerer() -> Self {
        let broker = Broker::start().await;
        let clock = Arc::new(RealClock::start());
        let shutdown = Shutdown::new(Duration::from_secs(5), clock.clone());
        let health = Health::new(shutdown.clone());
        let runtime = Runtime { clock, health, metrics: Metrics::install(), shutdown: shutdown.clone() };
        let config = IngressConfig { invoke_timeout: INVOKE_TIMEOUT };
        let writes = ingress::start(broker.connect(INGRESS).await, runtime.clone(), config);
        let reads = console::start(broker.connect(CONSOLE).await, runtime.clone());
        let routes = api::middleware::finish(writes.merge(reads));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let limits = Limits { body_read: Duration::from_millis(500), ..Limits::default() };
        tokio::spawn(serve(listener, routes, limits, shutdown.clone()));
        let registry = broker.connect(REGISTRY).await;
        let log = Log::new(Arc::new(registry.clone()));
        tokio::spawn(registry::run(registry.into(), runtime.clone()));
        let (operator, executor) = (broker.connect(OPERATOR).await, broker.connect("exe_0").await);
        let served = Self { broker, operator, url, shutdown, runtime, log, executor };
        tokio::time::timeout(Duration::from_secs(30), served.runtime.health.ready()).await.expect("ready");
        served
    }

    pub(crate) fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }

    pub(crate) async fn steer(&self) {
        let nats = self.broker.connect(STEERER).await;
        // A consumer opens anew when the connection is told of, and what was asked for before is lost for a while; so
        // let that be told first.
        nats.flush().await;
        tokio::spawn(steerer::run(nats.into(), self.runtime.clone()));
    }

    /// The API as this user of this organization.
    pub(crate) async fn api(&self, org_n: u128, user_n: u128, role: Role) -> Api {
        let secret = Uuid::from_u128(org_n << 64 | user_n << 8 | role as u128).to_string();
        let key = Key {
            id: KeyId::from_uuid(tests::fresh()),
            org: org(org_n),
            user: user(user_n),
            role,
            created_at: tests::now(),
        };
        kv::overwrite::<Keys>(&self.operator, &SecretHash::of(&secret), &key).await.expect("a key");
        Api::new(&self.url, &self.url, &secret)
    }

    /// A member of organization 1.
    pub(crate) async fn member(&self) -> Api {
        self.api(1, 10, Role::Member).await
    }

    pub(crate) fn key(&self, conversation: &str) -> ConversationKey {
        ConversationKey { org: org(1), conversation: conversation.parse().expect("a conversation's id") }
    }

    pub(crate) async fn state(&self, key: ConversationKey) -> Option<State> {
        let last = self.operator.last(PROCESS, &filter::log(key)).await.expect("the log");
        last.map(|stored| stored.decode::<Step>().expect("a step").state)
    }

    /// Takes the waking process of a conversation and makes its harness ready.
    pub(crate) async fn claim(&self, conversation: &str) -> Hand {
        let key = self.key(conversation);
        let state = soon("a waking process", async || match self.state(key).await {
            Some(state) if matches!(state.phase, Phase::Waking { .. }) => Ok(state),
            other => Err(other.map(|state| state.public())),
        })
        .await;
        let mut hand = Hand {
            key,
            process: state.process,
            epoch: state.epoch,
            n: 0,
            log: self.log.clone(),
            nats: self.executor.clone(),
        };
        hand.report(vec![SegmentEvent::Claim { renewal: Renewal(1) }]).await;
        let session = Session { id: "session".into(), version: "1".into() };
        hand.report(vec![SegmentEvent::Ready { session }]).await;
        hand
    }

    /// How often something was said to anyone.
    pub(crate) async fn inputs(&self) -> usize {
        let (inputs, mut count, mut from) = (filter::all_inputs(), 0, 1);
        while let Some(stored) = self.operator.next(RECORD, &inputs, from).await.expect("the record") {
            (count, from) = (count + 1, stored.sequence + 1);
        }
        count
    }

    /// The beats of a conversation's viewers, as its executor hears them.
    pub(crate) async fn beats(&self, key: ConversationKey) -> Heard {
        self.executor.hear(Subject::Presence(key).to_string()).await.expect("a subscription")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.end();
    }
}

// === impl Hand ===

impl Hand {
    pub(crate) async fn report(&mut self, events: Vec<SegmentEvent>) {
        self.n += 1;
        let report = Report {
            executor: EXECUTOR,
            incarnation: Incarnation(Uuid::from_u128(1)),
            epoch: self.epoch,
            n: ReportNo(self.n),
            events,
        };
        let appended: Result<Appended, AppendError> =
            self.log.append(self.key, Cause::Report(report), None, tests::now).await;
        assert!(matches!(appended, Ok(Appended::Step { .. })), "{appended:?}");
    }

    /// Writes to the record.
    pub(crate) async fn say(&self, what: Output) -> u64 {
        let said = OutputEntry { at: tests::now(), process: self.process, epoch: self.epoch, what };
        let message = Outgoing::message(&Subject::RecordOut(self.key, EXECUTOR), &said);
        self.nats.publish(message).await.expect("stored").sequence
    }

    pub(crate) fn text_id(&self, name: &str) -> MessageId {
        MessageId::of_output(self.key.conversation, name)
    }

    /// A piece of a text that is being written.
    pub(crate) async fn piece(&self, name: &str, offset: usize, text: &str) {
        let delta = Delta { message_id: self.text_id(name), epoch: self.epoch, offset, text: text.into() };
        self.nats.tell(Subject::Live(self.key, EXECUTOR), &delta).await;
        self.nats.flush().await;
    }

    /// The harness takes inputs and begins a turn with them.
    pub(crate) async fn take(&mut self, inputs: &[RecordSeq]) {
        let turn = domain::ids::TurnNo(1);
        self.say(Output::InHarness { frame: tests::fresh(), inputs: inputs.to_vec(), fired: Vec::new() })
            .await;
        self.say(Output::TurnStarted { turn }).await;
        self.report(vec![
            SegmentEvent::TurnStarted,
            SegmentEvent::Consumed { inputs: inputs.to_vec(), fired: Vec::new() },
        ])
        .await;
    }

    /// Says a whole text and ends the turn.
    pub(crate) async fn answer(&mut self, text: &str) {
        let message_id = self.text_id(text);
        self.say(Output::MessageStarted { message_id }).await;
        self.say(Output::Text { message_id, text: text.into() }).await;
        self.end_turn(text).await;
    }

    pub(crate) async fn end_turn(&mut self, text: &str) {
        let (turn, outcome) = (domain::ids::TurnNo(1), TurnOutcome::Completed);
        self.say(Output::TurnEnded { turn, outcome, text: Some(text.into()) }).await;
        self.report(vec![SegmentEvent::TurnEnded { outcome }]).await;
    }

    pub(crate) async fn finish(&mut self, summary: &str) {
        self.report(vec![SegmentEvent::Finish { summary: summary.into() }]).await;
    }

    pub(crate) async fn park(&mut self, reason: ParkReason) {
        self.report(vec![SegmentEvent::Park { reason, unfinished: false, events: None }]).await;
    }
}

// === what tests ask for ===

/// The record sequence of a message, from its id.
pub(crate) fn seq(key: ConversationKey, message: &Value) -> RecordSeq {
    let id: MessageId = message.as_str().and_then(|text| text.parse().ok()).expect("a message's id");
    id.input_of(key.conversation).expect("an input of the conversation")
}

pub(crate) fn path(agent: &str, conversation: &str, rest: &str) -> String {
    format!("/v1/agents/{agent}/conversations/{conversation}{rest}")
}

/// The body of an invoke.
pub(crate) fn text(text: &str) -> Value {
    json!({ "input": { "text": text } })
}

pub(crate) async fn post(api: &Api, path: &str, body: Value) -> Answer {
    api.send(Method::POST, path, Some(&body)).await
}

/// The answer is a problem with this status, on this page, naming this field.
#[track_caller]
pub(crate) fn is_problem(answer: &Answer, status: u16, page: &str, field: Option<&str>) {
    assert_eq!(answer.status, StatusCode::from_u16(status).expect("a status"), "{answer:?}");
    assert_eq!(answer.body["type"], format!("/docs/errors/{page}"), "{answer:?}");
    assert_eq!(answer.body["status"], status);
    assert_eq!(answer.body["field"], json!(field), "{answer:?}");
    assert!(answer.body["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{answer:?}");
}

pub(crate) async fn heard_beat(heard: &mut Heard) -> Beat {
    let beat = tokio::time::timeout(Duration::from_secs(10), heard.next::<Beat>()).await;
    beat.expect("no beat").expect("the subscription is open").1
}

/// What a process's exit says in the record.
pub(crate) fn exit(record: &Value) -> Option<Exit> {
    serde_json::from_value(record["process"]["exit"].clone()).ok()
}
