//! The texts of the inputs that a segment delivers, and what earlier segments wrote down of frames.

use std::collections::BTreeMap;

use bus::{Nats, Reader, Seen, Start};
use contract::Subject;
use contract::messages::record::{InputEntry, InputKind, Output, OutputEntry};
use contract::subjects::filter;
use contract::topology::RECORD;
use domain::ids::RecordSeq;
use domain::process::{State, WakeTrigger};
use service::telemetry::continue_from;
use tracing::Span;
use uuid::Uuid;

/// Texts that were delivered are forgotten when this many are kept. What is undelivered is always fewer.
const TEXTS_KEPT_MAX: usize = 4_096;

/// What the agent is told when it was cut off.
const CUT_OFF: &str = "[xpander] You were interrupted in the middle of your work: the machine you ran on was \
                       restarted or lost. Commands that were running then are gone; your files are as you left them. \
                       Go on with what you were doing.";

#[derive(Debug)]
pub(super) struct Inputs {
    reader: Option<Reader>,
    texts: BTreeMap<RecordSeq, Text>,
}

#[derive(Debug)]
struct Text {
    text: String,
    traceparent: Option<String>,
}

// === impl Inputs ===

impl Inputs {
    /// Reads from the first undelivered input on; where none is, behind the last one handled.
    pub(super) fn open(nats: &Nats, state: &State) -> Self {
        let first = state.undelivered.first().copied().unwrap_or(state.handled.next());
        let reader = Reader::open(nats, RECORD, filter::inputs(state.key()), Start::At(first.0));
        Self { reader: Some(reader), texts: BTreeMap::new() }
    }

    /// Waits for the next text; its input and its length.
    pub(super) async fn next(&mut self) -> (RecordSeq, usize) {
        let Some(reader) = &mut self.reader else { return std::future::pending().await };
        loop {
            let Seen::Message(stored) = reader.next().await else { continue };
            let Ok(entry) = stored.decode::<InputEntry>() else { continue };
            let InputKind::Message { text, files, .. } = entry.what else { continue };
            let seq = RecordSeq(stored.sequence);
            let text = with_files(text, &files);
            let bytes = text.len();
            while self.texts.len() >= TEXTS_KEPT_MAX {
                self.texts.pop_first();
            }
            self.texts.insert(seq, Text { text, traceparent: stored.envelope.traceparent });
            return (seq, bytes);
        }
    }

    /// The text of one frame.
    pub(super) fn text(&self, inputs: &[RecordSeq], wake: Option<WakeTrigger>) -> String {
        let note = matches!(wake, Some(WakeTrigger::ExecutorLost | WakeTrigger::Resume)).then_some(CUT_OFF);
        let texts = inputs.iter().filter_map(|input| self.texts.get(input)).map(|text| text.text.as_str());
        note.into_iter().chain(texts).collect::<Vec<_>>().join("\n\n")
    }

    /// The trace of the first input of a frame.
    pub(super) fn span(&self, inputs: &[RecordSeq]) -> Span {
        let span = tracing::info_span!("deliver", input = inputs.first().map(|input| input.0));
        let said = inputs.first().and_then(|input| self.texts.get(input));
        if let Some(traceparent) = said.and_then(|text| text.traceparent.as_ref()) {
            continue_from(&span, traceparent);
        }
        span
    }
}

/// Files are named behind the text, as data.
fn with_files(text: String, files: &[String]) -> String {
    if files.is_empty() {
        return text;
    }
    let named = files.iter().map(|file| format!("- {file}")).collect::<Vec<_>>().join("\n");
    format!("{text}\n\nFiles that came with this message:\n{named}")
}

/// The frames that segments before this one wrote down for inputs that are still undelivered, oldest first.
pub(super) async fn former_frames(nats: &Nats, state: &State) -> Vec<(Uuid, Vec<RecordSeq>)> {
    let (Some(first), Some(volume)) = (state.undelivered.first(), state.volume) else { return Vec::new() };
    let outputs = Subject::RecordOut(state.key(), volume).to_string();
    let mut reader = Reader::open(nats, RECORD, outputs, Start::At(first.0));
    let mut frames = Vec::new();
    while let Seen::Message(stored) = reader.next().await {
        if let Ok(OutputEntry { what: Output::InHarness { frame, inputs }, .. }) = stored.decode() {
            frames.push((frame, inputs));
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(texts: &[&str]) -> Inputs {
        let texts = (1..)
            .map(RecordSeq)
            .zip(texts.iter().map(|text| Text { text: (*text).into(), traceparent: None }));
        Inputs { reader: None, texts: texts.collect() }
    }

    #[test]
    fn waiting_inputs_share_a_frame_in_their_order() {
        let inputs = inputs(&["one", "two"]);
        assert_eq!(inputs.text(&[RecordSeq(1), RecordSeq(2)], Some(WakeTrigger::Message)), "one\n\ntwo");
    }

    #[test]
    fn an_agent_that_was_cut_off_is_told_before_anything_else() {
        let text = inputs(&["one"]).text(&[RecordSeq(1)], Some(WakeTrigger::ExecutorLost));
        assert!(text.starts_with("[xpander] You were interrupted") && text.ends_with("\n\none"), "{text}");
    }

    #[test]
    fn files_are_named_behind_the_text() {
        assert!(with_files("look".into(), &["a.md".into()]).ends_with("\n- a.md"));
        assert_eq!(with_files("look".into(), &[]), "look");
    }
}
