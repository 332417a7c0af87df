//! Every subject, built and parsed by one type. Ids are safe tokens; nothing from outside ever becomes part of one.

use std::fmt;
use std::str::FromStr;

use domain::ids::{ConversationId, ExecutorId, OrgId, ProcessId, WaitId};
use domain::process::{ConversationKey, EventKey, WakeClass};

/// Where a message is published or was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// What was said to a conversation and accepted.
    RecordIn(ConversationKey),
    /// What an executor's segments say of a conversation.
    RecordOut(ConversationKey, ExecutorId),
    /// What the registry shows of a conversation's processes.
    RecordState(ConversationKey),
    /// The log of a process.
    Process(ConversationKey, ProcessId),
    /// What a segment reports to the registry.
    Segment(ExecutorId, ProcessId),
    /// A waking process for an executor to claim.
    Assign(ExecutorId, WakeClass, ProcessId),
    /// A timer of a booked wait, kept by the broker until it rings.
    Timer(OrgId, ProcessId, WaitId),
    /// A timer that has rung.
    Due(OrgId, ProcessId, WaitId),
    /// Token deltas; not stored.
    Live(ConversationKey, ExecutorId),
    /// A viewer's beat; not stored.
    Presence(ConversationKey),
    /// What no handler could take.
    Dead(DeadOf),
    /// Who changed what.
    Audit(OrgId, AuditOf),
}

/// The stream a dead letter comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeadOf {
    Record,
    Segment,
    Timers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuditOf {
    Key,
    Agent,
}

/// The subject of what happens to something outside. Names from there may hold anything, so everything but letters,
/// digits, `-` and `_` is written as `=` and two hexadecimal digits.
pub fn event(org: OrgId, key: &EventKey) -> String {
    match key {
        EventKey::Github { repo, number } => {
            let (owner, name) = repo.split_once('/').unwrap_or((repo, ""));
            format!("event.{org}.github.{}.{}.{number}", token(owner), token(name))
        }
    }
}

/// A name from outside as one token.
pub fn token(name: &str) -> String {
    let mut token = String::new();
    for byte in name.to_ascii_lowercase().bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => token.push(char::from(byte)),
            other => token.push_str(&format!("={other:02x}")),
        }
    }
    if token.is_empty() { "=".into() } else { token }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no subject of ours")]
pub struct UnknownSubject(pub String);

/// The filters that readers use: subjects with wildcards.
pub mod filter {
    use super::{ConversationId, ConversationKey, ExecutorId, OrgId, ProcessId, WakeClass, class_token};

    /// Everything in a conversation's record.
    pub fn record(key: ConversationKey) -> String {
        format!("record.{}.{}.>", key.org, key.conversation)
    }

    /// Everything that was said to a conversation.
    pub fn inputs(key: ConversationKey) -> String {
        super::Subject::RecordIn(key).to_string()
    }

    /// Everything that segments said of a conversation.
    pub fn outputs(key: ConversationKey) -> String {
        format!("record.{}.{}.out.*", key.org, key.conversation)
    }

    /// The logs of all processes of a conversation: what an append is compared with.
    pub fn log(key: ConversationKey) -> String {
        format!("process.{}.{}.*", key.org, key.conversation)
    }

    /// The log of a process whose conversation is not known.
    pub fn log_of(org: OrgId, process: ProcessId) -> String {
        format!("process.{org}.*.{process}")
    }

    pub fn all_inputs() -> String {
        "record.*.*.in".into()
    }

    pub fn all_dead() -> String {
        "dead.>".into()
    }

    pub fn all_logs() -> String {
        "process.>".into()
    }

    pub fn all_records() -> String {
        "record.>".into()
    }

    pub fn all_reports() -> String {
        "segment.>".into()
    }

    /// Every event.
    pub fn all_events() -> String {
        "event.>".into()
    }

    /// Every timer that has not rung.
    pub fn all_timers() -> String {
        "timer.>".into()
    }

    /// Every timer that has rung.
    pub fn all_due() -> String {
        "due.>".into()
    }

    /// The live text of every conversation.
    pub fn all_live() -> String {
        "live.>".into()
    }

    pub fn all_assignments() -> String {
        "assign.>".into()
    }

    /// The assignments of one class to an executor.
    pub fn assignments(executor: ExecutorId, class: WakeClass) -> String {
        format!("assign.{executor}.{}.*", class_token(class))
    }

    /// The assignments of a process to one executor.
    pub fn assignments_to(executor: ExecutorId, process: ProcessId) -> String {
        format!("assign.{executor}.*.{process}")
    }

    /// The assignments of a process, wherever they are.
    pub fn assignments_of(process: ProcessId) -> String {
        format!("assign.*.*.{process}")
    }

    /// A conversation whose organization is not known.
    pub fn conversation(conversation: ConversationId) -> String {
        format!("record.*.{conversation}.in")
    }
}

const CLASSES: [(WakeClass, &str); 3] =
    [(WakeClass::Input, "0"), (WakeClass::Event, "1"), (WakeClass::Resume, "2")];

/// The token of a class: the lower, the sooner it is served.
pub fn class_token(class: WakeClass) -> &'static str {
    CLASSES.iter().find(|(known, _)| *known == class).map_or("2", |(_, token)| token)
}

// === impl Subject ===

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecordIn(key) => write!(f, "record.{}.{}.in", key.org, key.conversation),
            Self::RecordOut(key, executor) => {
                write!(f, "record.{}.{}.out.{executor}", key.org, key.conversation)
            }
            Self::RecordState(key) => write!(f, "record.{}.{}.state", key.org, key.conversation),
            Self::Process(key, process) => write!(f, "process.{}.{}.{process}", key.org, key.conversation),
            Self::Segment(executor, process) => write!(f, "segment.{executor}.{process}"),
            Self::Assign(executor, class, process) => {
                write!(f, "assign.{executor}.{}.{process}", class_token(*class))
            }
            Self::Timer(org, process, wait) => write!(f, "timer.{org}.{process}.{wait}"),
            Self::Due(org, process, wait) => write!(f, "due.{org}.{process}.{wait}"),
            Self::Live(key, executor) => write!(f, "live.{}.{}.{executor}", key.org, key.conversation),
            Self::Presence(key) => write!(f, "presence.{}.{}", key.org, key.conversation),
            Self::Dead(of) => write!(f, "dead.{}", of.token()),
            Self::Audit(org, of) => write!(f, "audit.{org}.{}", of.token()),
        }
    }
}

impl FromStr for Subject {
    type Err = UnknownSubject;

    fn from_str(text: &str) -> Result<Self, UnknownSubject> {
        parse(text).ok_or_else(|| UnknownSubject(text.chars().take(200).collect()))
    }
}

fn parse(text: &str) -> Option<Subject> {
    let tokens: Vec<&str> = text.split('.').collect();
    let key = |org: &str, conversation: &str| {
        Some(ConversationKey { org: org.parse().ok()?, conversation: conversation.parse().ok()? })
    };
    Some(match tokens.as_slice() {
        ["record", org, conversation, "in"] => Subject::RecordIn(key(org, conversation)?),
        ["record", org, conversation, "out", executor] => {
            Subject::RecordOut(key(org, conversation)?, executor.parse().ok()?)
        }
        ["record", org, conversation, "state"] => Subject::RecordState(key(org, conversation)?),
        ["process", org, conversation, process] => {
            Subject::Process(key(org, conversation)?, process.parse().ok()?)
        }
        ["segment", executor, process] => Subject::Segment(executor.parse().ok()?, process.parse().ok()?),
        ["assign", executor, class, process] => {
            let (class, _) = CLASSES.iter().find(|(_, token)| token == class)?;
            Subject::Assign(executor.parse().ok()?, *class, process.parse().ok()?)
        }
        ["timer", org, process, wait] => {
            Subject::Timer(org.parse().ok()?, process.parse().ok()?, wait.parse().ok()?)
        }
        ["due", org, process, wait] => {
            Subject::Due(org.parse().ok()?, process.parse().ok()?, wait.parse().ok()?)
        }
        ["live", org, conversation, executor] => {
            Subject::Live(key(org, conversation)?, executor.parse().ok()?)
        }
        ["presence", org, conversation] => Subject::Presence(key(org, conversation)?),
        ["dead", of] => Subject::Dead(DeadOf::from_token(of)?),
        ["audit", org, of] => Subject::Audit(org.parse().ok()?, AuditOf::from_token(of)?),
        _ => return None,
    })
}

impl DeadOf {
    pub const ALL: [Self; 3] = [Self::Record, Self::Segment, Self::Timers];

    pub const fn token(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Segment => "segment",
            Self::Timers => "timers",
        }
    }

    fn from_token(token: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|of| of.token() == token)
    }
}

impl AuditOf {
    pub const ALL: [Self; 2] = [Self::Key, Self::Agent];

    pub const fn token(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Agent => "agent",
        }
    }

    fn from_token(token: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|of| of.token() == token)
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::RecordSeq;
    use uuid::Uuid;

    use super::*;

    fn every_subject() -> Vec<Subject> {
        let key = ConversationKey {
            org: OrgId::from_uuid(Uuid::from_u128(1)),
            conversation: ConversationId::from_uuid(Uuid::from_u128(2)),
        };
        let process = ProcessId::started_by(key.conversation, RecordSeq(3));
        let executor = ExecutorId(4);
        let wait = WaitId::booked_by(process, domain::ids::Epoch(5), domain::ids::ReportNo(6), 0);
        let mut all = vec![
            Subject::Timer(key.org, process, wait),
            Subject::Due(key.org, process, wait),
            Subject::RecordIn(key),
            Subject::RecordOut(key, executor),
            Subject::RecordState(key),
            Subject::Process(key, process),
            Subject::Segment(executor, process),
            Subject::Live(key, executor),
            Subject::Presence(key),
        ];
        all.extend(CLASSES.map(|(class, _)| Subject::Assign(executor, class, process)));
        all.extend(DeadOf::ALL.map(Subject::Dead));
        all.extend(AuditOf::ALL.map(|of| Subject::Audit(key.org, of)));
        all
    }

    #[test]
    fn what_is_built_parses_to_the_same() {
        for subject in every_subject() {
            assert_eq!(subject.to_string().parse(), Ok(subject), "{subject}");
        }
    }

    #[test]
    fn a_name_from_outside_stays_one_token() {
        let org = OrgId::from_uuid(Uuid::from_u128(1));
        let subject = |repo: &str| event(org, &EventKey::Github { repo: repo.into(), number: 7 });
        assert!(subject("Owner/a.b").ends_with(".github.owner.a=2eb.7"), "{}", subject("Owner/a.b"));
        for repo in ["a/b.c", "a.b/c", "a/*", "a/>", "a/ b", "a/b/c", "", "ü/\u{0}"] {
            assert_eq!(subject(repo).split('.').count(), 6, "{}", subject(repo));
        }
        assert_ne!(subject("a/b=2ec"), subject("a/b.c"));
    }

    #[test]
    fn a_foreign_subject_is_refused() {
        let org = OrgId::from_uuid(Uuid::from_u128(1));
        for text in [
            "",
            "record",
            "record.a.b.in",
            "process.*.*.*",
            &format!("audit.{org}.coffee"),
            "assign.exe_1.9.x",
        ] {
            assert!(text.parse::<Subject>().is_err(), "{text}");
        }
    }
}
