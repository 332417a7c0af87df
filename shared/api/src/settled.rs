//! What comes of a message, for whoever waits for it: the agent takes it and ends a turn, its process parks or ends, or
//! nothing comes of it.

use domain::Refusal;
use domain::ids::RecordSeq;
use domain::process::Fact;

use crate::entry::{Entry, Said};

/// Watches the record for what comes of one input.
#[derive(Debug, Clone)]
pub struct Waiting {
    input: RecordSeq,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// What the record tells may still be about the time before it.
    Accepted,
    Routed,
    Consumed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    TurnEnded,
    /// The agent has a question.
    Asked,
    /// The process ended.
    Ended,
    /// It parked, and stays so until somebody acts.
    Parked,
    Refused(Refusal),
    Dead(String),
    /// It was said before; what comes of it comes of that input.
    Duplicate(RecordSeq),
}

impl Waiting {
    pub const fn new(input: RecordSeq) -> Self {
        Self { input, stage: Stage::Accepted }
    }

    /// Takes the next entry of the record, from the input's own on. Each of what it tells is an answer for one who
    /// waits; who goes on listening may get more.
    pub fn push(&mut self, entry: &Entry) -> Vec<Settled> {
        let Said::State(state) = &entry.said else { return Vec::new() };
        let mut settled = Vec::new();
        // A process that parks may wake again within the same entry.
        let mut parked = None;
        for dated in &state.facts {
            match &dated.fact {
                Fact::Routed { input } if *input == self.input => self.stage = Stage::Routed,
                Fact::Refused { input: Some(input), why } if *input == self.input => {
                    settled.push(Settled::Refused(why.clone()));
                }
                Fact::Dead { input, error } if *input == self.input => {
                    settled.push(Settled::Dead(error.clone()));
                }
                Fact::Duplicate { input, of } if *input == self.input => {
                    settled.push(Settled::Duplicate(*of));
                }
                _ if self.stage == Stage::Accepted => {}
                Fact::Consumed { inputs, .. } if inputs.contains(&self.input) => self.stage = Stage::Consumed,
                Fact::Asked { .. } if self.stage == Stage::Consumed => settled.push(Settled::Asked),
                Fact::TurnEnded { .. } if self.stage == Stage::Consumed => settled.push(Settled::TurnEnded),
                Fact::Ended { .. } => settled.push(Settled::Ended),
                Fact::Parked { .. } => parked = Some(Settled::Parked),
                Fact::Waking { .. } => parked = None,
                _ => {}
            }
        }
        settled.extend(parked);
        settled
    }
}

impl Settled {
    /// Whether nothing more can come of the message.
    pub const fn is_over(&self) -> bool {
        !matches!(self, Self::TurnEnded | Self::Asked | Self::Parked)
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::{Epoch, TurnNo};
    use domain::process::{Exit, ExitReason, Outcome, ParkReason, TurnOutcome, WakeTrigger};

    use super::*;
    use crate::testing::{facts, said, started};

    const INPUT: RecordSeq = RecordSeq(9);

    fn after(told: &[&[Fact]]) -> Option<Settled> {
        let mut waiting = Waiting::new(INPUT);
        let mut settled = Vec::new();
        for (n, told) in (20..).zip(told) {
            settled.extend(waiting.push(&facts(n, &started(3), told)));
        }
        assert!(settled.len() <= 1, "{settled:?}");
        settled.pop()
    }

    fn turn_ended() -> Fact {
        Fact::TurnEnded { turn: TurnNo(1), outcome: TurnOutcome::Completed }
    }

    fn parked() -> Fact {
        Fact::Parked { reason: ParkReason::Absent }
    }

    fn waking() -> Fact {
        Fact::Waking { trigger: WakeTrigger::Message, epoch: Epoch(2) }
    }

    fn ended() -> Fact {
        let exit = Exit { outcome: Outcome::Stopped, reason: ExitReason::UserStop, summary: None };
        Fact::Ended { exit }
    }

    fn routed() -> Fact {
        Fact::Routed { input: INPUT }
    }

    fn consumed() -> Fact {
        Fact::Consumed { inputs: vec![RecordSeq(8), INPUT], fired: Vec::new() }
    }

    #[test]
    fn the_turn_that_counts_is_the_one_that_has_the_message() {
        assert_eq!(after(&[&[routed()], &[turn_ended()]]), None);
        assert_eq!(after(&[&[routed(), turn_ended(), consumed()]]), None);
        assert_eq!(after(&[&[routed()], &[consumed()], &[turn_ended()]]), Some(Settled::TurnEnded));
        assert_eq!(after(&[&[routed(), consumed(), turn_ended()]]), Some(Settled::TurnEnded));
    }

    #[test]
    fn what_happened_before_it_was_routed_does_not_count() {
        assert_eq!(after(&[&[parked()]]), None);
        assert_eq!(after(&[&[ended()]]), None);
        assert_eq!(after(&[&[parked()], &[routed(), waking()], &[consumed()]]), None);
    }

    #[test]
    fn a_park_counts_where_it_lasts() {
        assert_eq!(after(&[&[routed()], &[parked(), waking()]]), None);
        assert_eq!(after(&[&[routed()], &[parked()]]), Some(Settled::Parked));
        assert_eq!(after(&[&[routed()], &[ended()]]), Some(Settled::Ended));
    }

    #[test]
    fn every_other_end_is_told() {
        let refused = Fact::Refused { input: Some(INPUT), why: Refusal::NothingToSteer };
        assert_eq!(after(&[&[refused]]), Some(Settled::Refused(Refusal::NothingToSteer)));
        let double = Fact::Duplicate { input: INPUT, of: RecordSeq(4) };
        assert_eq!(after(&[&[double]]), Some(Settled::Duplicate(RecordSeq(4))));
        let others = Fact::Refused { input: Some(RecordSeq(8)), why: Refusal::NothingToSteer };
        assert_eq!(after(&[&[others]]), None);
        assert!(Waiting::new(INPUT).push(&said(9, "x", domain::process::Mode::Auto)).is_empty());
    }

    #[test]
    fn who_goes_on_listening_hears_the_end_too() {
        let mut waiting = Waiting::new(INPUT);
        let all = waiting.push(&facts(20, &started(3), &[routed(), consumed(), turn_ended(), ended()]));
        assert_eq!(all, [Settled::TurnEnded, Settled::Ended]);
        assert_eq!(all.iter().map(Settled::is_over).collect::<Vec<_>>(), [false, true]);
    }
}
