//! What the broker keeps, and the rules it keeps it by: a model of the streams that the topology lays out. It passes the
//! same suite as the real server (`conformance.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bus::{BusError, Expect, Outgoing, Published, Stored};
use contract::Envelope;
use contract::envelope::FORMAT;
use contract::topology::{Durable, Fleet, Keeps, PROCESS, Stream, durables, streams};
use domain::Timestamp;
use domain::process::Step;

const SCHEDULE: &str = "Nats-Schedule";
const SCHEDULE_TARGET: &str = "Nats-Schedule-Target";
const KV_OPERATION: &str = "KV-Operation";

pub(crate) struct Store {
    streams: BTreeMap<String, Kept>,
    durables: BTreeMap<(&'static str, String), Worked>,
    /// Off for the control run: without the compare-and-set the checks have to find something.
    pub(crate) compares: bool,
    /// Of everything that was stored, in its order.
    trace: u64,
    /// Every step, also what the registry has trimmed since.
    steps: Vec<Stored>,
}

struct Kept {
    layout: Stream,
    last: u64,
    messages: BTreeMap<u64, Message>,
    by_subject: BTreeMap<String, BTreeSet<u64>>,
    named: HashMap<String, (u64, Timestamp)>,
}

#[derive(Clone)]
struct Message {
    stored: Stored,
    /// When it is stored again, and where.
    scheduled: Option<(Timestamp, String)>,
    expires: Option<Timestamp>,
}

/// How far a durable consumer is.
struct Worked {
    layout: Durable,
    next: u64,
    /// Delivered and not answered, with when each is delivered again.
    pending: BTreeMap<u64, Timestamp>,
}

// === impl Store ===

impl Store {
    pub(crate) fn new(fleet: &Fleet) -> Self {
        let kept = |layout: Stream| Kept {
            layout,
            last: 0,
            messages: BTreeMap::new(),
            by_subject: BTreeMap::new(),
            named: HashMap::new(),
        };
        let worked = |layout: Durable| Worked { layout, next: 1, pending: BTreeMap::new() };
        Self {
            streams: streams().into_iter().map(|layout| (layout.name.clone(), kept(layout))).collect(),
            durables: durables(fleet)
                .into_iter()
                .map(|layout| ((layout.stream, layout.name.clone()), worked(layout)))
                .collect(),
            compares: true,
            trace: 0,
            steps: Vec::new(),
        }
    }

    /// A number that is equal for equal runs.
    pub(crate) const fn trace(&self) -> u64 {
        self.trace
    }

    pub(crate) fn publish(&mut self, message: Outgoing, now: Timestamp) -> Result<Published, BusError> {
        let compares = self.compares;
        let stored_by =
            |kept: &&mut Kept| kept.layout.subjects.iter().any(|filter| matches(filter, &message.subject));
        let Some(kept) = self.streams.values_mut().find(stored_by) else {
            return Err(BusError::Unavailable("nobody stores this subject now".into()));
        };
        if let Some(Expect { last_sequence, filter }) = message.expect.as_ref().filter(|_| compares)
            && kept.last_under(filter.as_deref().unwrap_or(&message.subject)) != *last_sequence
        {
            return Err(BusError::Conflict);
        }
        if let Some(id) = &message.message_id
            && let Some((sequence, at)) = kept.named.get(id)
            && now.since(*at) < kept.layout.dedupe
        {
            return Ok(Published { sequence: *sequence, duplicate: true });
        }
        let sequence = kept.store(message, now)?;
        if kept.layout.name == PROCESS {
            self.steps.push(kept.messages[&sequence].stored.clone());
        }
        self.trace = hashed(&(self.trace, kept.layout.name.as_str(), &kept.messages[&sequence].stored));
        Ok(Published { sequence, duplicate: false })
    }

    /// Every step there ever was, with its sequence.
    pub(crate) fn steps(&self) -> Vec<(u64, Step)> {
        self.steps.iter().map(|stored| (stored.sequence, stored.decode().expect("a step"))).collect()
    }

    pub(crate) fn last(&self, stream: &str, filter: &str) -> Option<Stored> {
        let kept = self.streams.get(stream)?;
        kept.messages.get(&kept.last_under(filter)).map(|message| message.stored.clone())
    }

    pub(crate) fn next(&self, stream: &str, filter: &str, from: u64) -> Option<Stored> {
        let messages = self.streams.get(stream)?.messages.range(from..);
        messages.map(|(_, message)| &message.stored).find(|stored| matches(filter, &stored.subject)).cloned()
    }

    pub(crate) fn at(&self, stream: &str, sequence: u64) -> Option<Stored> {
        self.streams.get(stream)?.messages.get(&sequence).map(|message| message.stored.clone())
    }

    pub(crate) fn purge(&mut self, stream: &str, filter: &str, keep: u64) {
        let Some(kept) = self.streams.get_mut(stream) else { return };
        let mut under = kept.under(filter);
        under.truncate(under.len().saturating_sub(usize::try_from(keep).unwrap_or(usize::MAX)));
        for sequence in under {
            kept.forget(sequence);
        }
    }

    pub(crate) fn delete(&mut self, stream: &str, sequence: u64) -> Result<(), BusError> {
        let forgotten = self.streams.get_mut(stream).and_then(|kept| kept.forget(sequence));
        forgotten.map(drop).ok_or_else(|| BusError::Rejected("no message found".into()))
    }

    /// Everything under a filter, in order.
    pub(crate) fn all(&self, stream: &str, filter: &str) -> Vec<Stored> {
        let Some(kept) = self.streams.get(stream) else { return Vec::new() };
        kept.under(filter).iter().map(|sequence| kept.messages[sequence].stored.clone()).collect()
    }

    /// The last of each subject under the filter, by sequence, and the last sequence of the stream.
    pub(crate) fn last_of_each(&self, stream: &str, filter: &str) -> (Vec<u64>, u64) {
        let Some(kept) = self.streams.get(stream) else { return (Vec::new(), 0) };
        let subjects = kept.by_subject.iter().filter(|(subject, _)| matches(filter, subject));
        let mut last: Vec<_> = subjects.filter_map(|(_, sequences)| sequences.last().copied()).collect();
        last.sort_unstable();
        (last, kept.last)
    }

    pub(crate) fn count_from(&self, stream: &str, filter: &str, from: u64) -> u64 {
        let Some(kept) = self.streams.get(stream) else { return 0 };
        let messages = kept.messages.range(from..);
        messages.filter(|(_, message)| matches(filter, &message.stored.subject)).count() as u64
    }

    pub(crate) fn last_sequence(&self, stream: &str) -> u64 {
        self.streams.get(stream).map_or(0, |kept| kept.last)
    }

    // --- time ---

    /// Rings what is due and forgets what has expired. `twice` says of each ring whether it comes twice.
    pub(crate) fn pass(&mut self, now: Timestamp, mut twice: impl FnMut() -> bool) -> bool {
        let (mut rings, mut changed) = (Vec::new(), false);
        for kept in self.streams.values_mut() {
            let over = |message: &Message| {
                message.expires.is_some_and(|at| at <= now)
                    || message.scheduled.as_ref().is_some_and(|(at, _)| *at <= now)
            };
            let gone: Vec<_> = kept
                .messages
                .iter()
                .filter(|(_, message)| over(message))
                .map(|(sequence, _)| *sequence)
                .collect();
            for sequence in gone {
                changed = true;
                if let Some(Message { stored, scheduled: Some((_, target)), .. }) = kept.forget(sequence) {
                    rings.push((target, stored));
                }
            }
        }
        for (target, stored) in rings {
            for _ in 0..=u8::from(twice()) {
                let mut message = Outgoing::bare(&target, stored.envelope.body.clone());
                message.kind = Some(stored.envelope.kind.clone());
                message.traceparent.clone_from(&stored.envelope.traceparent);
                let rung = self.publish(message, now);
                debug_assert!(rung.is_ok(), "{rung:?}");
            }
        }
        changed
    }

    /// When [`Store::pass`] has something to do.
    pub(crate) fn next_pass(&self) -> Option<Timestamp> {
        let messages = self.streams.values().flat_map(|kept| kept.messages.values());
        let times = messages.flat_map(|message| {
            message.expires.into_iter().chain(message.scheduled.as_ref().map(|(at, _)| *at))
        });
        times.min()
    }

    // --- durable consumers ---

    /// The next message of a durable consumer, which is pending from now on, and how many are behind it; else when one
    /// is delivered again.
    pub(crate) fn take(
        &mut self,
        stream: &'static str,
        durable: &str,
        now: Timestamp,
    ) -> Result<(Stored, u64), Option<Timestamp>> {
        let Some(worked) = self.durables.get_mut(&(stream, durable.to_owned())) else { return Err(None) };
        let kept = &self.streams[stream];
        worked.pending.retain(|sequence, _| kept.messages.contains_key(sequence));
        let again = worked.pending.iter().find(|(_, at)| **at <= now).map(|(sequence, _)| *sequence);
        let mut unseen = kept
            .messages
            .range(worked.next..)
            .filter(|(_, message)| matches(&worked.layout.filter, &message.stored.subject))
            .map(|(sequence, _)| *sequence);
        let sequence = match again {
            Some(sequence) => sequence,
            None => match unseen.next() {
                Some(sequence) => {
                    worked.next = sequence + 1;
                    sequence
                }
                None => return Err(worked.pending.values().min().copied()),
            },
        };
        let behind = unseen.count() as u64;
        worked.pending.insert(sequence, now.plus(worked.layout.ack_wait));
        Ok((kept.messages[&sequence].stored.clone(), behind))
    }

    pub(crate) fn answered(
        &mut self,
        stream: &'static str,
        durable: &str,
        sequence: u64,
        again: Option<Timestamp>,
    ) {
        let Some(worked) = self.durables.get_mut(&(stream, durable.to_owned())) else { return };
        match again {
            None => drop(worked.pending.remove(&sequence)),
            Some(at) => {
                if let Some(pending) = worked.pending.get_mut(&sequence) {
                    *pending = at;
                }
            }
        }
    }
}

impl Kept {
    fn store(&mut self, message: Outgoing, now: Timestamp) -> Result<u64, BusError> {
        let same = self.by_subject.get(&message.subject).into_iter().flatten().copied().collect::<Vec<_>>();
        let header =
            |name| message.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        let scheduled = match (header(SCHEDULE), header(SCHEDULE_TARGET)) {
            (Some(when), Some(target)) if self.layout.schedules => {
                let at = when.strip_prefix("@at ").and_then(|at| at.parse::<jiff::Timestamp>().ok());
                let at = at.ok_or_else(|| BusError::Rejected(format!("no time: {when}")))?;
                Some((Timestamp::from(at), target))
            }
            _ => None,
        };
        match self.layout.keeps {
            Keeps::FirstOfEach if !same.is_empty() => return Err(BusError::Occupied),
            Keeps::LastOfEach | Keeps::LastOfEachFor(_) => {
                same.into_iter().for_each(|old| drop(self.forget(old)));
            }
            // A second schedule of a subject takes the place of the first.
            Keeps::Everything if scheduled.is_some() => {
                same.into_iter().for_each(|old| drop(self.forget(old)));
            }
            Keeps::Everything | Keeps::For(_) | Keeps::FirstOfEach => {}
        }
        self.last += 1;
        let sequence = self.last;
        if let Some(id) = &message.message_id {
            self.named.insert(id.clone(), (sequence, now));
        }
        let deleted = header(KV_OPERATION).is_some();
        let kind = message.kind.unwrap_or_default();
        let format = if kind.is_empty() { 0 } else { FORMAT };
        let envelope = Envelope { kind, format, traceparent: message.traceparent, body: message.body };
        let stored = Stored { subject: message.subject.clone(), sequence, at: now, envelope, deleted };
        let expires = message.ttl_seconds.map(|seconds| now.plus(Duration::from_secs(seconds)));
        self.by_subject.entry(message.subject).or_default().insert(sequence);
        self.messages.insert(sequence, Message { stored, scheduled, expires });
        Ok(sequence)
    }

    fn forget(&mut self, sequence: u64) -> Option<Message> {
        let message = self.messages.remove(&sequence)?;
        if let Some(sequences) = self.by_subject.get_mut(&message.stored.subject) {
            sequences.remove(&sequence);
            if sequences.is_empty() {
                self.by_subject.remove(&message.stored.subject);
            }
        }
        Some(message)
    }

    fn last_under(&self, filter: &str) -> u64 {
        if !filter.contains(['*', '>']) {
            return self.by_subject.get(filter).and_then(|sequences| sequences.last().copied()).unwrap_or(0);
        }
        let subjects = self.by_subject.iter().filter(|(subject, _)| matches(filter, subject));
        subjects.filter_map(|(_, sequences)| sequences.last().copied()).max().unwrap_or(0)
    }

    fn under(&self, filter: &str) -> Vec<u64> {
        let messages = self.messages.iter().filter(|(_, message)| matches(filter, &message.stored.subject));
        messages.map(|(sequence, _)| *sequence).collect()
    }
}

fn matches(filter: &str, subject: &str) -> bool {
    let (mut filter, mut subject) = (filter.split('.'), subject.split('.'));
    loop {
        match (filter.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(wanted), Some(token)) if wanted == token => {}
            _ => return false,
        }
    }
}

fn hashed((trace, stream, stored): &(u64, &str, &Stored)) -> u64 {
    let mut hasher = DefaultHasher::new();
    (trace, stream, &stored.subject, stored.sequence, &stored.at.to_string(), &stored.envelope.body)
        .hash(&mut hasher);
    hasher.finish()
}
