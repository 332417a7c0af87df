//! docs/bus.md, printed from the topology: which streams there are, what they keep, and who says and reads what.

use std::fmt::Write;
use std::time::Duration;

use domain::ids::ExecutorId;

use crate::topology::{ExecutorSpec, Fleet, Grant, Keeps, durables, streams, users};

/// The page, for an installation with one executor.
pub fn page() -> String {
    let fleet = Fleet { executors: vec![ExecutorSpec { id: ExecutorId(0), orgs: Vec::new() }] };
    let mut out = String::from(
        "# The bus\n\nPrinted from `jetstream/contract/src/topology.rs`; a test compares the two.\n\n\
         ## Streams\n\nAn entry named `KV_…` is a key-value bucket.\n\n\
         | stream | subjects | keeps | deduplicates | on one node |\n|---|---|---|---|---|\n",
    );
    for stream in streams() {
        let disk = if stream.derivable {
            "can be derived again: flushed later"
        } else {
            "on disk when acknowledged"
        };
        let _ = writeln!(
            out,
            "| `{}` | `{}` | {} | {} | {disk} |",
            stream.name,
            stream.subjects.join("` `"),
            keeps(stream.keeps),
            span(stream.dedupe),
        );
    }
    out.push_str("\nCore NATS carries `live.…` (token deltas) and `presence.…` (beats of viewers), which are not kept.\n");
    out.push_str(
        "\n## Durable consumers\n\n| consumer | stream | filter | redelivers after |\n|---|---|---|---|\n",
    );
    for durable in durables(&fleet) {
        let (name, stream, filter) = (&durable.name, durable.stream, &durable.filter);
        let _ = writeln!(out, "| `{name}` | `{stream}` | `{filter}` | {} |", span(durable.ack_wait));
    }
    out.push_str(
        "\n## Users\n\nEach user has an account of its own on the broker and reaches only what stands here. `operator` \
         provisions the streams, in the account that holds them. Every executor has the grants of `exe_0` under its \
         own name.\n",
    );
    for user in users(&fleet) {
        let _ = writeln!(out, "\n### {}\n", user.name);
        for grant in &user.grants {
            let _ = writeln!(out, "* {}", sentence(grant));
        }
    }
    out
}

fn sentence(grant: &Grant) -> String {
    match grant {
        Grant::Publish(subject) => format!("publishes `{subject}`"),
        Grant::Get(stream) => format!("reads single messages of `{stream}` from its leader"),
        Grant::GetLast { stream, filter } => format!("reads the last value of `{filter}` in `{stream}`"),
        Grant::Read { stream, filter } => format!("opens readers of `{filter}` on `{stream}`"),
        Grant::Pull { stream, durable } => {
            format!("pulls and acknowledges from consumer `{durable}` of `{stream}`")
        }
        Grant::Purge(stream) => format!("purges subjects of `{stream}`"),
        Grant::Delete(stream) => format!("deletes single messages of `{stream}`"),
        Grant::Tell { subject, to } => format!("tells {} `{subject}`", to.join(" and ")),
    }
}

fn keeps(keeps: Keeps) -> String {
    match keeps {
        Keeps::Everything => "everything".into(),
        Keeps::For(age) => span(age),
        Keeps::LastOfEach => "the last of each subject".into(),
        Keeps::LastOfEachFor(age) => format!("the last of each subject, for {}", span(age)),
        Keeps::FirstOfEach => "one of each subject, until purged".into(),
    }
}

fn span(span: Duration) -> String {
    match span.as_secs() {
        s if s >= 24 * 3600 && s % (24 * 3600) == 0 => format!("{} days", s / (24 * 3600)),
        s if s >= 60 && s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}
