//! How far an input has come, as the record tells it.

use contract::messages::record::Output;
use domain::Timestamp;
use domain::ids::{ConversationId, MessageId, ProcessId, RecordSeq};
use domain::process::{Fact, State};
use serde::Serialize;

use crate::entry::{Entry, Said};

/// In their order: a later one is not taken back by an earlier one that is told late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Receipt {
    /// It is stored.
    Accepted,
    /// It waits for the harness of a process.
    Routed,
    /// It goes into the harness.
    InHarness,
    /// The harness has taken it; a stop has taken effect.
    Consumed,
    /// The process ended before it was read.
    Returned,
    Refused,
    /// The same delivery was there already.
    Duplicate,
    /// No program could take it; it is kept for operators.
    Dead,
}

/// `GET …/{conversation_id}/messages/{message_id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageReceipt {
    pub message_id: MessageId,
    pub receipt: Receipt,
    pub at: ReceiptTimes,
    pub process_id: Option<ProcessId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// When it came how far, for the first time each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ReceiptTimes {
    pub accepted: Option<Timestamp>,
    pub routed: Option<Timestamp>,
    pub in_harness: Option<Timestamp>,
    pub consumed: Option<Timestamp>,
    pub refused: Option<Timestamp>,
    pub returned: Option<Timestamp>,
}

/// One input has come further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub input: RecordSeq,
    pub receipt: Receipt,
    pub at: Timestamp,
    pub process: Option<ProcessId>,
    /// Why it was refused, whose duplicate it is, or why it is dead.
    pub reason: Option<String>,
}

/// What an entry tells of inputs.
pub fn progress(conversation: ConversationId, entry: &Entry) -> Vec<Progress> {
    match &entry.said {
        Said::In(said) => vec![Progress {
            input: RecordSeq(entry.sequence),
            receipt: Receipt::Accepted,
            at: said.at,
            process: None,
            reason: None,
        }],
        Said::Out(said) => match &said.what {
            Output::InHarness { inputs, .. } => inputs
                .iter()
                .map(|input| Progress {
                    input: *input,
                    receipt: Receipt::InHarness,
                    at: said.at,
                    process: Some(said.process),
                    reason: None,
                })
                .collect(),
            _ => Vec::new(),
        },
        Said::State(state) => {
            let routed = |input| state.facts.iter().any(|dated| dated.fact == Fact::Routed { input });
            let told = state.facts.iter().flat_map(|dated| {
                let told = told(conversation, &dated.fact, routed);
                told.into_iter().map(|(input, receipt, reason)| Progress {
                    input,
                    receipt,
                    at: dated.at,
                    process: Some(state.process.id),
                    reason,
                })
            });
            told.collect()
        }
        Said::Unknown { .. } => Vec::new(),
    }
}

type Told = Vec<(RecordSeq, Receipt, Option<String>)>;

fn told(conversation: ConversationId, fact: &Fact, routed: impl Fn(RecordSeq) -> bool) -> Told {
    match fact {
        Fact::Routed { input } => vec![(*input, Receipt::Routed, None)],
        Fact::Consumed { inputs, .. } => {
            inputs.iter().map(|input| (*input, Receipt::Consumed, None)).collect()
        }
        Fact::Returned { inputs } => {
            let why = || Some("the process ended before the agent had read it".to_owned());
            inputs.iter().map(|input| (*input, Receipt::Returned, why())).collect()
        }
        // A message that interrupts is routed as well, a stop is not.
        Fact::Interrupting { input } if !routed(*input) => vec![(*input, Receipt::Consumed, None)],
        Fact::NothingRan { input } => {
            vec![(*input, Receipt::Consumed, Some("nothing ran that could be stopped".into()))]
        }
        Fact::Refused { input: Some(input), why } => vec![(*input, Receipt::Refused, Some(why.to_string()))],
        Fact::Duplicate { input, of } => {
            let of = MessageId::of_input(conversation, *of);
            vec![(*input, Receipt::Duplicate, Some(format!("it was accepted before, as {of}")))]
        }
        Fact::Dead { input, error } => vec![(*input, Receipt::Dead, Some(error.clone()))],
        _ => Vec::new(),
    }
}

// === impl MessageReceipt ===

impl MessageReceipt {
    pub fn new(conversation: ConversationId, input: RecordSeq) -> Self {
        Self {
            message_id: MessageId::of_input(conversation, input),
            receipt: Receipt::Accepted,
            at: ReceiptTimes::default(),
            process_id: None,
            reason: None,
        }
    }

    pub fn push(&mut self, progress: &Progress) {
        let slot = match progress.receipt {
            Receipt::Accepted => Some(&mut self.at.accepted),
            Receipt::Routed => Some(&mut self.at.routed),
            Receipt::InHarness => Some(&mut self.at.in_harness),
            Receipt::Consumed => Some(&mut self.at.consumed),
            Receipt::Refused | Receipt::Duplicate | Receipt::Dead => Some(&mut self.at.refused),
            Receipt::Returned => Some(&mut self.at.returned),
        };
        if let Some(slot) = slot {
            slot.get_or_insert(progress.at);
        }
        self.process_id = progress.process.or(self.process_id);
        if progress.receipt > self.receipt {
            self.receipt = progress.receipt;
            self.reason.clone_from(&progress.reason);
        }
    }

    /// The log may hold what the record does not tell yet. That a stop has ended its process is told by nothing but
    /// its number.
    pub fn seen_in_log(&mut self, input: RecordSeq, state: &State, is_message: bool) {
        if self.receipt > Receipt::Accepted || state.handled < input {
            return;
        }
        if !is_message {
            self.receipt = Receipt::Consumed;
        } else if state.undelivered.contains(&input) {
            self.receipt = Receipt::Routed;
            self.process_id = Some(state.process);
        }
    }

    /// Whether nothing further can come.
    pub fn is_final(&self) -> bool {
        self.receipt >= Receipt::Consumed
    }
}

#[cfg(test)]
mod tests {
    use domain::Refusal;
    use domain::process::{Mode, StopScope};
    use uuid::Uuid;

    use super::*;
    use crate::testing::{at, conversation, facts, output, said, started, stop};

    fn receipt(input: u64, entries: &[Entry]) -> MessageReceipt {
        let mut receipt = MessageReceipt::new(conversation(), RecordSeq(input));
        let told = entries.iter().flat_map(|entry| progress(conversation(), entry));
        told.filter(|progress| progress.input == RecordSeq(input))
            .for_each(|progress| receipt.push(&progress));
        receipt
    }

    #[test]
    fn a_receipt_rises_whatever_is_told_first() {
        let seq = RecordSeq(3);
        let entries = [
            said(3, "hello", Mode::Auto),
            output(4, 1, Output::InHarness { frame: Uuid::nil(), inputs: vec![seq], fired: Vec::new() }),
            facts(5, &started(3), &[Fact::Started { ordinal: 1 }, Fact::Routed { input: seq }]),
            facts(6, &started(3), &[Fact::Consumed { inputs: vec![seq], fired: Vec::new() }]),
        ];
        assert_eq!(receipt(3, &entries[..1]).receipt, Receipt::Accepted);
        assert_eq!(receipt(3, &entries[..2]).receipt, Receipt::InHarness);
        let told_late = receipt(3, &entries[..3]);
        assert_eq!(told_late.receipt, Receipt::InHarness);
        assert_eq!(told_late.at.routed, Some(at(5)));
        let whole = receipt(3, &entries);
        assert_eq!((whole.receipt, whole.process_id), (Receipt::Consumed, Some(started(3).process)));
        assert!(whole.is_final());
        assert_eq!(
            [whole.at.accepted, whole.at.in_harness, whole.at.consumed],
            [Some(at(3)), Some(at(4)), Some(at(6))]
        );
    }

    #[test]
    fn every_other_end_says_why() {
        let (seq, state) = (RecordSeq(7), started(3));
        let end = |fact| receipt(7, &[said(7, "more", Mode::Steer), facts(8, &state, &[fact])]);
        let refused = end(Fact::Refused { input: Some(seq), why: Refusal::NothingToSteer });
        assert_eq!(
            (refused.receipt, refused.reason),
            (Receipt::Refused, Some(Refusal::NothingToSteer.to_string()))
        );
        let double = end(Fact::Duplicate { input: seq, of: RecordSeq(3) });
        assert_eq!(double.receipt, Receipt::Duplicate);
        assert!(
            double.reason.unwrap().contains(&MessageId::of_input(conversation(), RecordSeq(3)).to_string())
        );
        let returned = end(Fact::Returned { inputs: vec![seq] });
        assert!(returned.receipt == Receipt::Returned && returned.reason.is_some());
        assert_eq!(end(Fact::Dead { input: seq, error: "x".into() }).reason.as_deref(), Some("x"));
        // What declines a report says nothing of an input.
        let report = end(Fact::Refused { input: None, why: Refusal::NoLongerHot });
        assert_eq!(report.receipt, Receipt::Accepted);
    }

    #[test]
    fn the_log_is_ahead_of_the_record() {
        let (state, mut message) = (started(3), MessageReceipt::new(conversation(), RecordSeq(3)));
        message.seen_in_log(RecordSeq(3), &state, true);
        assert_eq!((message.receipt, message.process_id), (Receipt::Routed, Some(state.process)));
        let (mut stop, mut later) = (MessageReceipt::new(conversation(), RecordSeq(2)), message);
        stop.seen_in_log(RecordSeq(2), &state, false);
        assert_eq!(stop.receipt, Receipt::Consumed);
        later.receipt = Receipt::Accepted;
        later.seen_in_log(RecordSeq(4), &state, true);
        assert_eq!(later.receipt, Receipt::Accepted);
    }

    #[test]
    fn a_stop_is_consumed_where_a_message_is_only_routed() {
        let (seq, state) = (RecordSeq(9), started(3));
        let stopping = facts(10, &state, &[Fact::Interrupting { input: seq }]);
        assert_eq!(receipt(9, &[stop(9, StopScope::Turn), stopping]).receipt, Receipt::Consumed);
        let interrupting =
            facts(10, &state, &[Fact::Routed { input: seq }, Fact::Interrupting { input: seq }]);
        assert_eq!(receipt(9, &[said(9, "now", Mode::Interrupt), interrupting]).receipt, Receipt::Routed);
    }
}
