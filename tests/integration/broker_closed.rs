//! The broker is closed: each user, connected with its own key, tries everything that it was not granted, and every API
//! it was granted with a reply or a delivery subject inside every stream. Nothing may come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, HeaderMap};
use contract::broker::{API_PREFIX, inbox_prefix, publishes};
use contract::buckets::{Executors, subject_of};
use contract::topology::{ExecutorSpec, Fleet, Grant, OPERATOR, User, streams, users};
use domain::ids::{ExecutorId, OrgId};
use serde_json::{Value, json};
use tests::Broker;
use tests::builders::key;
use tests::wait::eventually;
use tokio::sync::mpsc;
use uuid::Uuid;

const BYTES: &str = "bytes of an attacker";

/// What the server refused a client.
struct Refusals(mpsc::UnboundedReceiver<String>);

async fn connect(broker: &Broker, user: &str) -> (Client, Refusals) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let client = ConnectOptions::with_nkey(broker.credentials(user).seed)
        .custom_inbox_prefix(inbox_prefix(user))
        .event_callback(move |event| {
            if let Event::ServerError(error) = event {
                let _ = sender.send(error.to_string());
            }
            std::future::ready(())
        })
        .connect(broker.url())
        .await
        .expect("connect");
    (client, Refusals(receiver))
}

impl Refusals {
    /// Waits until the server has refused what was just sent.
    async fn one(&mut self, who: &str, what: &str) {
        match tokio::time::timeout(Duration::from_secs(20), self.0.recv()).await {
            Ok(Some(refusal)) if refusal.to_lowercase().contains("permissions violation") => {}
            other => panic!("{who}: {what} was not refused but {other:?}"),
        }
    }
}

/// One subject in every stream and bucket.
fn inside_every_stream() -> Vec<String> {
    let (mine, executor) = (key(7), ExecutorId(1));
    let process = domain::ids::ProcessId::from_uuid(Uuid::from_u128(5));
    let mut subjects = vec![
        contract::Subject::RecordIn(mine).to_string(),
        contract::Subject::RecordOut(mine, executor).to_string(),
        contract::Subject::RecordState(mine).to_string(),
        contract::Subject::Process(mine, process).to_string(),
        contract::Subject::Segment(executor, process).to_string(),
        contract::Subject::Assign(executor, domain::process::WakeClass::Input, process).to_string(),
    ];
    for stream in streams() {
        subjects.extend(stream.subjects.iter().map(|subject| subject.replace('>', "exe_1")));
    }
    subjects
}

/// What a client might try on the API, by both of its names, and on the rest of the server.
fn forbidden_everywhere() -> Vec<String> {
    let mut subjects = vec!["$SYS.REQ.SERVER.PING".into(), "$SRV.PING".into(), "elsewhere".into()];
    for prefix in ["$JS.API", API_PREFIX] {
        subjects.extend(
            ["INFO", "STREAM.NAMES", "STREAM.LIST", "SERVER.REMOVE", "META.LEADER.STEPDOWN"]
                .map(|call| format!("{prefix}.{call}")),
        );
        for stream in streams() {
            let name = stream.name;
            subjects.extend(
                [
                    "STREAM.CREATE",
                    "STREAM.UPDATE",
                    "STREAM.DELETE",
                    "STREAM.PURGE",
                    "STREAM.INFO",
                    "STREAM.MSG.DELETE",
                    "STREAM.SNAPSHOT",
                    "STREAM.RESTORE",
                    "STREAM.LEADER.STEPDOWN",
                    "STREAM.PEER.REMOVE",
                    "STREAM.MSG.GET",
                    "DIRECT.GET",
                    "CONSUMER.NAMES",
                    "CONSUMER.LIST",
                    "CONSUMER.CREATE",
                ]
                .map(|call| format!("{prefix}.{call}.{name}")),
            );
            subjects.extend([
                format!("{prefix}.CONSUMER.DURABLE.CREATE.{name}.steerer"),
                format!("{prefix}.CONSUMER.CREATE.{name}.c.{}", stream.subjects[0].replace('>', "x")),
                format!("{prefix}.CONSUMER.DELETE.{name}.steerer"),
                format!("{prefix}.CONSUMER.PAUSE.{name}.steerer"),
                format!("{prefix}.CONSUMER.RESET.{name}.steerer"),
                format!("{prefix}.CONSUMER.MSG.NEXT.{name}.steerer"),
                format!("{prefix}.CONSUMER.MSG.NEXT.{name}.exe_1-0"),
                format!("$JS.ACK.{name}.steerer.1.1.1.1.0"),
                format!("$JS.ACK.{name}.exe_1-0.1.1.1.1.0"),
                format!("$JS.FC.{name}.steerer.x"),
            ]);
        }
    }
    subjects
}

fn matches(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (Some(">"), Some(_)) => return true,
            (Some(p), Some(s)) if p == "*" || p == s => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

/// Every message of every stream, by what it says and where.
async fn contents(operator: &Client) -> BTreeMap<String, Vec<(String, String)>> {
    let jetstream = async_nats::jetstream::new(operator.clone());
    let mut all = BTreeMap::new();
    for stream in streams() {
        let handle = jetstream.get_stream(&stream.name).await.expect("the stream is still there");
        let state = &handle.cached_info().state;
        let mut messages = Vec::new();
        for sequence in state.first_sequence..=state.last_sequence {
            if let Ok(message) = handle.get_raw_message(sequence).await {
                let text = String::from_utf8_lossy(&message.payload).into_owned();
                messages.push((message.subject.to_string(), text));
            }
        }
        all.insert(stream.name, messages);
    }
    all
}

/// Whatever stands in the streams has to stand where `user` may publish itself.
fn only_granted(user: &User, contents: &BTreeMap<String, Vec<(String, String)>>) {
    let granted: Vec<_> = user
        .grants
        .iter()
        .filter_map(|grant| match grant {
            Grant::Publish(subject) => Some(subject.as_str()),
            _ => None,
        })
        .collect();
    for (stream, messages) in contents {
        for (subject, text) in messages {
            assert!(
                granted.iter().any(|pattern| matches(pattern, subject)),
                "{} got {text:?} stored as {subject} in {stream}",
                user.name
            );
        }
    }
}

async fn clear(operator: &Client) {
    let jetstream = async_nats::jetstream::new(operator.clone());
    for stream in streams() {
        jetstream.get_stream(&stream.name).await.expect("a stream").purge().await.expect("purge");
    }
}

fn two_executors() -> Fleet {
    let only_org = OrgId::from_uuid(Uuid::from_u128(1));
    Fleet {
        executors: vec![
            ExecutorSpec { id: ExecutorId(0), orgs: vec![only_org] },
            ExecutorSpec { id: ExecutorId(1), orgs: Vec::new() },
        ],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_granted_is_refused_to_every_user() {
    let broker = Broker::for_fleet(two_executors()).await;
    let (operator, _) = connect(&broker, OPERATOR).await;
    let universe: BTreeSet<String> =
        inside_every_stream().into_iter().chain(forbidden_everywhere()).collect();
    for user in users(broker.fleet()) {
        let (client, mut refusals) = connect(&broker, &user.name).await;
        let granted = publishes(&user);
        let forbidden: Vec<_> = universe
            .iter()
            .filter(|subject| !granted.iter().any(|pattern| matches(pattern, subject)))
            .collect();
        assert!(forbidden.len() > 100, "{} is granted nearly everything", user.name);
        for subject in &forbidden {
            client
                .publish_with_reply((*subject).clone(), client.new_inbox(), BYTES.into())
                .await
                .expect("sent");
            client.flush().await.expect("flush");
            refusals.one(&user.name, subject).await;
        }

        let overheard =
            [">", "process.>", "record.>", "segment.>", "$KV.>", "$JS.API.>", "_INBOX_operator.>", "$SYS.>"];
        for subject in overheard {
            let subscription = client.subscribe(subject).await.expect("sent");
            client.flush().await.expect("flush");
            refusals.one(&user.name, subject).await;
            drop(subscription);
        }
        only_granted(&user, &contents(&operator).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_granted_api_puts_its_answer_into_a_stream() {
    let broker = Broker::for_fleet(two_executors()).await;
    let (operator, _) = connect(&broker, OPERATOR).await;
    for user in users(broker.fleet()) {
        clear(&operator).await;
        let (client, _refusals) = connect(&broker, &user.name).await;
        let mut asked = 0;
        for local in publishes(&user) {
            let subject = local.replace(['*', '>'], "exe_1");
            for reply in inside_every_stream() {
                for body in [json!({ "batch": 1, "expires": 1_000_000 }), json!({ "seq": 1 }), Value::Null] {
                    // What is published into a stream stays recognisable; what is asked of an API is a request.
                    let body = if local.starts_with(API_PREFIX) { body.to_string() } else { BYTES.into() };
                    client
                        .publish_with_reply(subject.clone(), reply.clone(), body.into())
                        .await
                        .expect("sent");
                    asked += 1;
                }
            }
        }
        client.flush().await.expect("flush");
        assert!(asked > 100);
        settled(&operator).await;
        only_granted(&user, &contents(&operator).await);
    }
    // The control: whoever shares the account of the streams can do it.
    clear(&operator).await;
    let reply =
        contract::Subject::Segment(ExecutorId(1), domain::ids::ProcessId::from_uuid(Uuid::from_u128(5)));
    operator.publish_with_reply("$JS.API.INFO", reply.to_string(), "".into()).await.expect("sent");
    operator.flush().await.expect("flush");
    settled(&operator).await;
    assert_eq!(contents(&operator).await["SEGMENT"].len(), 1, "the answer of the API is stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_asks_for_delivery_into_a_stream_gets_nothing_stored() {
    let broker = Broker::for_fleet(two_executors()).await;
    let (operator, _) = connect(&broker, OPERATOR).await;
    for user in users(broker.fleet()) {
        clear(&operator).await;
        let (client, _refusals) = connect(&broker, &user.name).await;
        let reads: Vec<_> = user
            .grants
            .iter()
            .filter_map(|grant| match grant {
                Grant::Read { stream, filter } => Some((stream.clone(), filter.clone())),
                _ => None,
            })
            .collect();
        let mut fed = 0;
        for (stream, filter) in &reads {
            for (n, target) in inside_every_stream().into_iter().enumerate() {
                let name = format!("evil-{n}");
                let request = json!({ "stream_name": stream, "action": "create", "config": {
                    "name": name, "deliver_policy": "all", "ack_policy": "none", "mem_storage": true,
                    "filter_subject": filter, "deliver_subject": target,
                } });
                let call = format!("{API_PREFIX}.CONSUMER.CREATE.{stream}.{name}.{filter}");
                client
                    .publish_with_reply(call, client.new_inbox(), request.to_string().into())
                    .await
                    .expect("sent");
            }
            client.flush().await.expect("flush");
            let food = filter.replace('>', &format!("{}.x", key(7).org)).replace('*', "x");
            let jetstream = async_nats::jetstream::new(operator.clone());
            if let Ok(ack) = jetstream.publish(food, BYTES.into()).await {
                fed += u32::from(ack.await.is_ok());
            }
        }
        assert_eq!(fed as usize, reads.len());
        settled(&operator).await;
        let stored: usize = contents(&operator).await.values().map(Vec::len).sum();
        assert_eq!(stored, reads.len(), "{}: nothing but what the operator published", user.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_reads_only_the_organizations_it_serves_and_cannot_wipe_a_bucket() {
    let broker = Broker::for_fleet(two_executors()).await;
    let (client, mut refusals) = connect(&broker, "exe_0").await;
    let foreign = "process.org_00000000000000000000000000000002.>";
    let create =
        |config: Value| json!({ "stream_name": "PROCESS", "action": "create", "config": config }).to_string();
    // The subject says one filter and the body another.
    let mine = format!("process.{}.>", key(1).org);
    for config in [
        json!({ "name": "r", "ack_policy": "none", "filter_subject": foreign }),
        json!({ "name": "r", "ack_policy": "none", "filter_subjects": [foreign] }),
        json!({ "name": "r", "ack_policy": "none" }),
    ] {
        let call = format!("{API_PREFIX}.CONSUMER.CREATE.PROCESS.r.{mine}");
        let answer = client.request(call, create(config.clone()).into()).await.expect("an answer");
        let answer: Value = serde_json::from_slice(&answer.payload).expect("json");
        assert!(answer["error"]["code"].is_number(), "{config} gave {answer}");
    }
    let call = format!("{API_PREFIX}.CONSUMER.CREATE.PROCESS.r.{foreign}");
    client
        .publish_with_reply(call, client.new_inbox(), create(json!({ "name": "r" })).into())
        .await
        .expect("sent");
    refusals.one("exe_0", foreign).await;

    // A header that takes away what others wrote.
    let (other, _) = connect(&broker, "exe_1").await;
    let row = |id: u16| subject_of::<Executors>(ExecutorId(id));
    let jetstream = async_nats::jetstream::with_prefix(other, API_PREFIX);
    jetstream.publish(row(1), "alive".into()).await.expect("sent").await.expect("stored");
    for kind in ["all", "sub"] {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Rollup", kind);
        let jetstream = async_nats::jetstream::with_prefix(client.clone(), API_PREFIX);
        let stored = jetstream.publish_with_headers(row(0), headers, BYTES.into()).await.expect("sent").await;
        assert!(stored.is_err(), "rollup {kind} was taken: {stored:?}");
    }
    let (operator, _) = connect(&broker, OPERATOR).await;
    let rows = &contents(&operator).await["KV_executors"];
    assert_eq!(rows, &[(row(1), "alive".to_owned())]);
}

/// Returns once the streams have stopped to change.
async fn settled(operator: &Client) {
    let jetstream = async_nats::jetstream::new(operator.clone());
    let mut before = None;
    eventually("streams that have settled", Duration::from_secs(30), async || {
        let mut sequences = Vec::new();
        for stream in streams() {
            let handle = jetstream.get_stream(&stream.name).await.expect("a stream");
            sequences.push(handle.cached_info().state.last_sequence);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        match before.replace(sequences.clone()) {
            Some(earlier) if earlier == sequences => Ok(()),
            earlier => Err((earlier, sequences)),
        }
    })
    .await;
}
