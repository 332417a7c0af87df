//! A progress note: the pill shows the latest, the record keeps them all.

use super::{Fact, Note, State, shown};
use crate::policy;
use crate::time::Timestamp;

pub(super) fn step(state: &mut State, text: &str, now: Timestamp) -> Fact {
    state.note = Some(Note { at: now, text: shown(text, policy::NOTE_SHOWN_MAX) });
    Fact::Noted
}
