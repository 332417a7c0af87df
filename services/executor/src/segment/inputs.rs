//! The texts of the inputs that a segment delivers, and what earlier segments wrote down of frames.

use std::collections::BTreeMap;

use bus::{Nats, Reader, Seen, Start};
use contract::Subject;
use contract::messages::record::{Answer, InputEntry, InputKind, Output, OutputEntry};
use contract::subjects::filter;
use contract::topology::RECORD;
use domain::ids::RecordSeq;
use domain::process::{State, WakeTrigger};
use domain::segment::Contents;
use service::telemetry::continue_from;
use tracing::Span;
use uuid::Uuid;

use super::notes;

/// Texts that were delivered are forgotten when this many are kept. What is undelivered is always fewer.
const TEXTS_KEPT_MAX: usize = 4_096;

/// What the agent is told when it is woken for the last time.
const LAST_WAKE: &str = "[xpander] Nobody has needed this process for a long time, so it is being closed. Do nothing more: \
                         call finish_process now, with a summary of what was done and what was left open. Open questions \
                         and waits do not hold it this time.";

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
            let text = match entry.what {
                InputKind::Message { text, files, .. } => with_files(text, &files),
                InputKind::Answer { answers, .. } => answered(&answers),
                InputKind::Stop { .. } | InputKind::Archive | InputKind::Retry | InputKind::Fail { .. } => {
                    continue;
                }
            };
            let seq = RecordSeq(stored.sequence);
            let bytes = text.len();
            while self.texts.len() >= TEXTS_KEPT_MAX {
                self.texts.pop_first();
            }
            self.texts.insert(seq, Text { text, traceparent: stored.envelope.traceparent });
            return (seq, bytes);
        }
    }

    /// The text of one frame: what the runtime has to tell, then what was said.
    pub(super) fn text(&self, contents: &Contents, wake: Option<WakeTrigger>, state: &State) -> String {
        let awake = match wake {
            Some(WakeTrigger::ExecutorLost | WakeTrigger::Resume) => Some(CUT_OFF),
            Some(WakeTrigger::SelfFinish) if state.finishing.is_some() => Some(LAST_WAKE),
            _ => None,
        };
        let told = state.fired.iter().filter(|fired| contents.fired.contains(&fired.wait)).map(notes::fired);
        let said = contents.inputs.iter().filter_map(|input| self.texts.get(input));
        let killed = (wake.is_some() && !state.killed.is_empty()).then(|| notes::killed(&state.killed));
        let crashed = state.crashes.untold.as_deref().filter(|_| wake.is_some()).map(notes::crashed);
        let parts = crashed.into_iter().chain(awake.map(str::to_owned)).chain(killed).chain(told);
        parts.chain(said.map(|text| text.text.clone())).collect::<Vec<_>>().join("\n\n")
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

/// The answers to a card, with what was asked.
fn answered(answers: &[Answer]) -> String {
    let one = |Answer { question, text, answer }: &Answer| {
        format!("Answer to your question {question} ({}): {}", text.trim(), answer.join(", "))
    };
    answers.iter().map(one).collect::<Vec<_>>().join("\n")
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
pub(super) async fn former_frames(nats: &Nats, state: &State) -> Vec<(Uuid, Contents)> {
    // A frame of notes alone goes in under an id that follows from them, so it need not be looked up.
    let (Some(first), Some(volume)) = (state.undelivered.first(), state.volume) else { return Vec::new() };
    let outputs = Subject::RecordOut(state.key(), volume).to_string();
    let mut reader = Reader::open(nats, RECORD, outputs, Start::At(first.0));
    let mut frames = Vec::new();
    while let Seen::Message(stored) = reader.next().await {
        if let Ok(OutputEntry { what: Output::InHarness { frame, inputs, fired }, .. }) = stored.decode() {
            frames.push((frame, Contents { inputs, fired }));
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;
    use domain::ids::{AgentId, ConversationId, MessageId, OrgId, QuestionId, UserId};
    use domain::process::{Cause, ConversationKey, Decision, Harness, Input, Mode, StartWith, step};

    use super::*;

    fn inputs(texts: &[&str]) -> Inputs {
        let texts = (1..)
            .map(RecordSeq)
            .zip(texts.iter().map(|text| Text { text: (*text).into(), traceparent: None }));
        Inputs { reader: None, texts: texts.collect() }
    }

    fn state() -> State {
        let key = ConversationKey { org: OrgId::UNKNOWN, conversation: ConversationId::UNKNOWN };
        let start = Some(StartWith { harness: Harness::ClaudeCode, events: None });
        let input = Input::Message { mode: Mode::Auto, start };
        let cause = Cause::Input { seq: RecordSeq(1), from: UserId::UNKNOWN, agent: AgentId::UNKNOWN, input };
        match step(key, None, cause, Timestamp::EPOCH) {
            Ok(Decision::Append(step)) => step.state,
            other => panic!("{other:?}"),
        }
    }

    fn said(inputs: &[u64]) -> Contents {
        Contents { inputs: inputs.iter().copied().map(RecordSeq).collect(), fired: Vec::new() }
    }

    #[test]
    fn waiting_inputs_share_a_frame_in_their_order() {
        let inputs = inputs(&["one", "two"]);
        assert_eq!(inputs.text(&said(&[1, 2]), Some(WakeTrigger::Message), &state()), "one\n\ntwo");
    }

    #[test]
    fn an_agent_that_was_cut_off_is_told_before_anything_else() {
        let text = inputs(&["one"]).text(&said(&[1]), Some(WakeTrigger::ExecutorLost), &state());
        assert!(text.starts_with("[xpander] You were interrupted") && text.ends_with("\n\none"), "{text}");
    }

    #[test]
    fn files_are_named_behind_the_text() {
        assert!(with_files("look".into(), &["a.md".into()]).ends_with("\n- a.md"));
        assert_eq!(with_files("look".into(), &[]), "look");
    }

    #[test]
    fn an_answer_says_what_was_asked() {
        let question = QuestionId::of(MessageId::UNKNOWN, 0);
        let answer = Answer { question, text: "Which one? ".into(), answer: vec!["a".into(), "b".into()] };
        assert_eq!(answered(&[answer]), format!("Answer to your question {question} (Which one?): a, b"));
    }
}
