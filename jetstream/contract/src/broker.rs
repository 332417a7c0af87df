//! The broker's configuration file, rendered from the topology. Every user has an account of its own; one more, `CORE`,
//! holds the streams and exports to each account exactly the subjects its user was granted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::topology::{Fleet, Grant, OPERATOR, User, users};

/// Where the accounts import the JetStream API to, so that it does not meet their own.
pub const API_PREFIX: &str = "core.API";

const CORE: &str = "CORE";

/// What an installation adds to the topology.
#[derive(Debug, Clone)]
pub struct BrokerSettings<'a> {
    pub listen: &'a str,
    pub store_dir: &'a str,
    /// The public nkey of each user, by name, the operator's included.
    pub public_keys: &'a BTreeMap<String, String>,
}

/// A subject that crosses from one account into another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Crossing {
    /// The subject in the exporting account.
    subject: String,
    /// The subject in the importing account.
    local: String,
    kind: CrossingKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CrossingKind {
    /// A request with one answer, or a publish with its acknowledgement.
    Service,
    /// A request with many answers.
    Answers,
}

/// The users of an installation, the operator's included.
pub fn user_names(fleet: &Fleet) -> Vec<String> {
    std::iter::once(OPERATOR.to_owned()).chain(users(fleet).into_iter().map(|user| user.name)).collect()
}

/// Where a user's own replies arrive.
pub fn inbox_prefix(user: &str) -> String {
    format!("_INBOX_{user}")
}

/// What a user may publish, by the names it uses itself.
pub fn publishes(user: &User) -> Vec<String> {
    let mut subjects: Vec<_> = crossings(user).into_iter().map(|crossing| crossing.local).collect();
    subjects.extend(user.grants.iter().filter_map(|grant| match grant {
        Grant::Tell { subject, .. } => Some(subject.clone()),
        _ => None,
    }));
    subjects
}

/// What a user may hear from other users.
pub fn hears(user: &str, all: &[User]) -> Vec<(String, String)> {
    let mut heard = Vec::new();
    for teller in all {
        for grant in &teller.grants {
            match grant {
                Grant::Tell { subject, to } if to.iter().any(|name| name == user) => {
                    heard.push((teller.name.clone(), subject.clone()));
                }
                _ => {}
            }
        }
    }
    heard
}

/// The whole configuration file.
pub fn render(fleet: &Fleet, settings: &BrokerSettings<'_>) -> String {
    let all = users(fleet);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "# Written by `resident`; changes are overwritten. docs/bus.md says what each user may do."
    );
    let _ = writeln!(out, "listen: {}", quoted(settings.listen));
    let _ = writeln!(out, "server_name: resident");
    let _ = writeln!(out, "max_payload: 1MB");
    let _ = writeln!(out, "jetstream {{");
    let _ = writeln!(out, "  store_dir: {}", quoted(settings.store_dir));
    let _ = writeln!(out, "  # An acknowledged write is on the disk.");
    let _ = writeln!(out, "  sync_interval: always");
    let _ = writeln!(out, "}}");
    let _ = writeln!(out, "accounts {{");
    render_core(&mut out, &all, settings);
    for user in &all {
        render_account(&mut out, user, &all, settings);
    }
    let _ = writeln!(out, "}}");
    out
}

fn render_core(out: &mut String, all: &[User], settings: &BrokerSettings<'_>) {
    let mut exports: BTreeMap<(String, CrossingKind), BTreeSet<&str>> = BTreeMap::new();
    for user in all {
        for crossing in crossings(user) {
            exports.entry((crossing.subject, crossing.kind)).or_default().insert(&user.name);
        }
    }
    let _ = writeln!(out, "  {CORE} {{");
    let _ = writeln!(out, "    jetstream: enabled");
    let _ = writeln!(out, "    users: [ {{ nkey: {} }} ]", public_key(OPERATOR, settings));
    let _ = writeln!(out, "    exports: [");
    for ((subject, kind), accounts) in exports {
        let many = if kind == CrossingKind::Answers { ", response_type: stream" } else { "" };
        let accounts = accounts.into_iter().collect::<Vec<_>>().join(", ");
        let _ = writeln!(out, "      {{ service: {}, accounts: [{accounts}]{many} }}", quoted(&subject));
    }
    let _ = writeln!(out, "    ]");
    let _ = writeln!(out, "  }}");
}

fn render_account(out: &mut String, user: &User, all: &[User], settings: &BrokerSettings<'_>) {
    let heard = hears(&user.name, all);
    let list = |subjects: &mut dyn Iterator<Item = String>| {
        subjects.map(|s| quoted(&s)).collect::<Vec<_>>().join(", ")
    };
    let _ = writeln!(out, "  {} {{", user.name);
    let _ = writeln!(out, "    users: [ {{");
    let _ = writeln!(out, "      nkey: {}", public_key(&user.name, settings));
    let _ = writeln!(out, "      permissions: {{");
    let _ = writeln!(out, "        publish: {{ allow: [{}] }}", list(&mut publishes(user).into_iter()));
    let subscribes = std::iter::once(format!("{}.>", inbox_prefix(&user.name)));
    // Only what is imported arrives, so the whole family may be listened to.
    let families = heard.iter().filter_map(|(_, subject)| Some(format!("{}.>", subject.split('.').next()?)));
    let subscribes = &mut subscribes.chain(families.collect::<BTreeSet<_>>());
    let _ = writeln!(out, "        subscribe: {{ allow: [{}] }}", list(subscribes));
    let _ = writeln!(out, "      }}");
    let _ = writeln!(out, "    }} ]");
    let _ = writeln!(out, "    imports: [");
    for crossing in crossings(user) {
        let (subject, local) = (quoted(&crossing.subject), quoted(&crossing.local));
        let to = if crossing.subject == crossing.local { String::new() } else { format!(", to: {local}") };
        let _ = writeln!(out, "      {{ service: {{ account: {CORE}, subject: {subject} }}{to} }}");
    }
    for (teller, subject) in &heard {
        let _ = writeln!(out, "      {{ stream: {{ account: {teller}, subject: {} }} }}", quoted(subject));
    }
    let _ = writeln!(out, "    ]");
    let tells = user.grants.iter().filter_map(|grant| match grant {
        Grant::Tell { subject, to } => Some((subject, to)),
        _ => None,
    });
    let _ = writeln!(out, "    exports: [");
    for (subject, to) in tells {
        let _ = writeln!(out, "      {{ stream: {}, accounts: [{}] }}", quoted(subject), to.join(", "));
    }
    let _ = writeln!(out, "    ]");
    let _ = writeln!(out, "  }}");
}

/// What of a user's grants crosses into `CORE`.
fn crossings(user: &User) -> BTreeSet<Crossing> {
    user.grants.iter().flat_map(crossings_of).collect()
}

fn crossings_of(grant: &Grant) -> Vec<Crossing> {
    let same = |subject: String| Crossing { local: subject.clone(), subject, kind: CrossingKind::Service };
    let api = |tail: String, kind| Crossing {
        subject: format!("$JS.API.{tail}"),
        local: format!("{API_PREFIX}.{tail}"),
        kind,
    };
    let asks = |tail: String| api(tail, CrossingKind::Service);
    let streams = |tail: String| api(tail, CrossingKind::Answers);
    match grant {
        Grant::Publish(subject) => vec![same(subject.clone())],
        Grant::Get(stream) => vec![asks(format!("STREAM.MSG.GET.{stream}"))],
        Grant::GetLast { stream, filter } => vec![asks(format!("DIRECT.GET.{stream}.{filter}"))],
        Grant::Read { stream, filter } => vec![
            asks(format!("CONSUMER.CREATE.{stream}.*.{filter}")),
            asks(format!("CONSUMER.INFO.{stream}.*")),
            streams(format!("CONSUMER.MSG.NEXT.{stream}.*")),
        ],
        // The server may name the domain and the account in front; both forms are ours.
        Grant::Pull { stream, durable } => vec![
            asks(format!("CONSUMER.INFO.{stream}.{durable}")),
            streams(format!("CONSUMER.MSG.NEXT.{stream}.{durable}")),
            same(format!("$JS.ACK.{stream}.{durable}.>")),
            same(format!("$JS.ACK.*.*.{stream}.{durable}.>")),
        ],
        Grant::Purge(stream) => vec![asks(format!("STREAM.PURGE.{stream}"))],
        Grant::Delete(stream) => vec![asks(format!("STREAM.MSG.DELETE.{stream}"))],
        Grant::Tell { .. } => Vec::new(),
    }
}

fn public_key<'a>(user: &str, settings: &'a BrokerSettings<'_>) -> &'a str {
    settings.public_keys.get(user).map_or("", String::as_str)
}

/// A string of the server's configuration language. What goes in are subjects and paths of our own.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
