//! The texts that an agent is writing, as one connection has told them so far. A text comes in pieces that may be lost,
//! repeated or late, and at its end as a whole; out goes each of its characters once.

use std::collections::VecDeque;

use contract::messages::live::Delta;
use domain::ids::{Epoch, MessageId};
use serde_json::json;

use super::{Event, event};

/// Texts being written at once: one per agent and sub-agent. The oldest is forgotten beyond it; its whole still comes.
const OPEN_MAX: usize = 64;

/// Finished texts whose late pieces are known to be late. Pieces and wholes come by two ways that differ by moments.
const FINISHED_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Texts {
    open: VecDeque<Writing>,
    finished: VecDeque<MessageId>,
    /// Segments of earlier epochs are over.
    living: Epoch,
}

#[derive(Debug)]
struct Writing {
    id: MessageId,
    epoch: Epoch,
    /// Characters told.
    sent: usize,
    /// A piece came that does not follow what was told.
    gap: bool,
}

/// What became of a piece.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Heard {
    pub(crate) event: Option<Event>,
    /// It opened a gap: the text so far is to be asked for.
    pub(crate) gap: bool,
}

// === impl Texts ===

impl Texts {
    pub(super) fn started(&mut self, id: MessageId, epoch: Epoch) {
        if epoch >= self.living && !self.finished.contains(&id) {
            self.writing(id, epoch);
        }
    }

    pub(super) fn delta(&mut self, delta: &Delta) -> Heard {
        if delta.epoch < self.living || self.finished.contains(&delta.message_id) {
            return Heard::nothing();
        }
        let writing = self.writing(delta.message_id, delta.epoch);
        if delta.offset > writing.sent {
            let gap = !std::mem::replace(&mut writing.gap, true);
            return Heard { event: None, gap };
        }
        let fresh = behind(&delta.text, writing.sent - delta.offset).unwrap_or_default();
        if fresh.is_empty() {
            return Heard::nothing();
        }
        let offset = writing.sent;
        writing.sent += fresh.chars().count();
        writing.gap = false;
        let data = json!({ "message_id": delta.message_id, "offset": offset, "text": fresh });
        Heard { event: Some(event("chunk", data)), gap: false }
    }

    /// The text is complete: what of it was not told yet. A text that was told already is not told again.
    pub(super) fn whole(&mut self, id: MessageId, text: &str, quiet: bool) -> Vec<Event> {
        if self.finished.contains(&id) {
            return Vec::new();
        }
        let sent = self.close(id);
        if quiet {
            return Vec::new();
        }
        let rest = |offset, text| {
            event("chunk", json!({ "message_id": id, "offset": offset, "text": text, "done": true }))
        };
        match behind(text, sent) {
            Some(text) => vec![rest(sent, text)],
            // More was told than there is: what was told is not this text.
            None => vec![reset(id), rest(0, text)],
        }
    }

    /// The text was given up.
    pub(super) fn dropped(&mut self, id: MessageId) -> Event {
        self.close(id);
        reset(id)
    }

    /// No piece of it counts from here on. Returns how many of its characters were told.
    fn close(&mut self, id: MessageId) -> usize {
        let place = self.open.iter().position(|writing| writing.id == id);
        if self.finished.len() >= FINISHED_MAX {
            self.finished.pop_front();
        }
        self.finished.push_back(id);
        place.and_then(|place| self.open.remove(place)).map_or(0, |writing| writing.sent)
    }

    /// Every segment before `epoch` is over, and what it was writing will not be finished.
    pub(super) fn over_before(&mut self, epoch: Epoch) -> Vec<Event> {
        self.living = self.living.max(epoch);
        let living = self.living;
        let mut resets = Vec::new();
        self.open.retain(|writing| {
            let lives = writing.epoch >= living;
            if !lives {
                resets.push(reset(writing.id));
            }
            lives
        });
        resets
    }

    pub(super) const fn living(&self) -> Epoch {
        self.living
    }

    pub(super) fn have_gap(&self) -> bool {
        self.open.iter().any(|writing| writing.gap)
    }

    fn writing(&mut self, id: MessageId, epoch: Epoch) -> &mut Writing {
        let place = match self.open.iter().position(|writing| writing.id == id) {
            Some(place) => place,
            None => {
                if self.open.len() >= OPEN_MAX {
                    self.open.pop_front();
                }
                self.open.push_back(Writing { id, epoch, sent: 0, gap: false });
                self.open.len() - 1
            }
        };
        let writing = &mut self.open[place];
        writing.epoch = writing.epoch.max(epoch);
        writing
    }
}

impl Heard {
    pub(super) const fn nothing() -> Self {
        Self { event: None, gap: false }
    }
}

fn reset(id: MessageId) -> Event {
    event("message_reset", json!({ "message_id": id }))
}

/// What follows the first `count` characters; `None` where there are fewer.
fn behind(text: &str, count: usize) -> Option<&str> {
    let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.nth(count).map(|at| &text[at..])
}
