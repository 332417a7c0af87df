//! The record and the live text of a conversation as the events of one connection. Pure: entries and deltas go in,
//! events come out, and each character of a text comes out once, whatever the deltas do on their way.

mod texts;

use std::collections::VecDeque;

use contract::messages::live::Delta;
use contract::messages::record::{InputEntry, InputKind, Output, OutputEntry, StateEntry};
use domain::ids::{MessageId, ProcessId, RecordSeq};
use domain::policy::UNDELIVERED_MAX;
use domain::process::{ConversationKey, Fact, PublicProcess};
use serde_json::{Value, json};

use crate::entry::{Entry, Said};
use crate::messages::MessageInput;
use crate::receipt::{Progress, Receipt, progress};
use crate::record::{ConversationRecord, result};
use crate::thread::notice;
pub(crate) use texts::Heard;
use texts::Texts;

/// What is kept of a message until it is consumed, in characters, to be shown then. The whole of it was in its receipt.
const BEGINNING_MAX: usize = 4_000;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// A record sequence, on the last event of an entry: who comes back with it has missed nothing before it.
    pub id: Option<u64>,
    pub name: &'static str,
    pub data: Value,
}

/// Where a connection begins to tell. What comes before is read and kept to itself.
#[derive(Debug, Clone)]
pub enum Begin {
    /// Behind this record sequence.
    After(u64),
    /// With the message that started this process.
    Process(Box<PublicProcess>),
}

/// One connection.
#[derive(Debug)]
pub struct Events {
    key: ConversationKey,
    /// Until when nothing is told.
    quiet: Option<Begin>,
    /// The process that the client knows of.
    announced: Option<ProcessId>,
    texts: Texts,
    /// Messages that are accepted and not consumed.
    waiting: VecDeque<Underway>,
    said: Option<(ProcessId, String)>,
    turn_runs: bool,
}

/// A message on its way to the agent.
#[derive(Debug)]
struct Underway {
    seq: RecordSeq,
    beginning: MessageInput,
    /// How far the client was told that it is.
    told: Receipt,
}

// === impl Events ===

impl Events {
    /// `announced` is the process that the client was told of by other means.
    pub fn new(key: ConversationKey, begin: Begin, announced: Option<ProcessId>) -> Self {
        Self {
            key,
            quiet: Some(begin),
            announced,
            texts: Texts::default(),
            waiting: VecDeque::new(),
            said: None,
            turn_runs: false,
        }
    }

    /// Said first on every connection.
    pub(crate) fn connected(&self) -> Event {
        event("connected", json!({ "conversation_id": self.key.conversation }))
    }

    /// What an entry of the record tells.
    pub(crate) fn entry(&mut self, entry: &Entry) -> Vec<Event> {
        let mut told = self.begin(entry);
        match &entry.said {
            Said::In(said) => self.on_input(entry, said, &mut told),
            Said::Out(said) => self.on_output(entry, said, &mut told),
            Said::State(state) => self.on_state(entry, state, &mut told),
            Said::Unknown { .. } => {}
        }
        if self.quiet.is_some() {
            told.clear();
        }
        if let Some(last) = told.last_mut() {
            last.id = Some(entry.sequence);
        }
        told
    }

    /// What a piece of a text tells.
    pub(crate) fn delta(&mut self, delta: &Delta) -> Heard {
        if self.quiet.is_some() { Heard::nothing() } else { self.texts.delta(delta) }
    }

    /// Everything that was there at the beginning has been read.
    pub(crate) fn caught_up(&mut self) {
        self.quiet = None;
    }

    /// Said once what came before is told; from then on it is as it happens.
    pub(crate) fn all_told(&self) -> Event {
        event("caught_up", json!({ "conversation_id": self.key.conversation }))
    }

    /// Whether a text has a gap that only its executor can close.
    pub(crate) fn wants_text(&self) -> bool {
        self.texts.have_gap()
    }

    /// Whether a turn has started and its end has not been told.
    pub(crate) const fn turn_runs(&self) -> bool {
        self.turn_runs
    }

    /// Ends the quiet where the connection begins with this entry.
    fn begin(&mut self, entry: &Entry) -> Vec<Event> {
        match &self.quiet {
            Some(Begin::After(sequence)) if entry.sequence > *sequence => self.quiet = None,
            Some(Begin::Process(process)) => {
                let starts = ProcessId::started_by(self.key.conversation, RecordSeq(entry.sequence));
                if let Said::In(said) = &entry.said
                    && process.id == starts
                {
                    let started =
                        task_created(&ConversationRecord::of_start(self.key.org, process, input(said)));
                    self.announced = Some(process.id);
                    self.quiet = None;
                    return vec![started];
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn on_input(&mut self, entry: &Entry, said: &InputEntry, told: &mut Vec<Event>) {
        let seq = RecordSeq(entry.sequence);
        let mut data = json!({
            "conversation_id": self.key.conversation,
            "message_id": MessageId::of_input(self.key.conversation, seq),
            "receipt": Receipt::Accepted,
            "at": said.at,
            "from": said.from,
            "user": said.author,
        });
        match &said.what {
            InputKind::Message { text, files, mode } => {
                data["kind"] = json!("message");
                data["text"] = json!(text);
                data["files"] = json!(files);
                data["mode"] = json!(mode);
                let beginning =
                    MessageInput { text: beginning(text), files: files.clone(), user: said.author.clone() };
                if self.waiting.len() >= UNDELIVERED_MAX {
                    self.waiting.pop_front();
                }
                self.waiting.push_back(Underway { seq, beginning, told: Receipt::Accepted });
            }
            InputKind::Stop { scope } => {
                data["kind"] = json!("stop");
                data["scope"] = json!(scope);
            }
            InputKind::Answer { card, answers } => {
                data["kind"] = json!("answer");
                data["decision_id"] = json!(card);
                data["answers"] = json!(answers);
            }
            InputKind::Archive => data["kind"] = json!("archive"),
            InputKind::Retry => data["kind"] = json!("retry"),
            InputKind::Fail { why } => {
                data["kind"] = json!("fail");
                data["why"] = json!(why);
            }
        }
        told.push(event("message_receipt", data));
    }

    fn on_output(&mut self, entry: &Entry, said: &OutputEntry, told: &mut Vec<Event>) {
        let first = told.len();
        let late = said.epoch < self.texts.living();
        match &said.what {
            Output::InHarness { .. } => {
                for progress in progress(self.key.conversation, entry) {
                    self.tell_receipt(&progress, told);
                }
            }
            Output::TurnStarted { turn } => {
                self.turn_runs = !late;
                told.push(event("turn_started", json!({ "turn": turn })));
            }
            Output::MessageStarted { message_id } => self.texts.started(*message_id, said.epoch),
            Output::MessageDropped { message_id } => told.push(self.texts.dropped(*message_id)),
            Output::Text { message_id, text } => {
                if !late {
                    self.said = Some((said.process, text.clone()));
                }
                let quiet = self.quiet.is_some();
                told.extend(self.texts.whole(*message_id, text, quiet));
            }
            Output::ToolCall { id, name, input } => told.push(event(
                "tool_call_request",
                json!({ "tool_call_id": id, "tool_name": name, "payload": input }),
            )),
            Output::ToolResult { id, output, is_error } => told.push(event(
                "tool_call_result",
                json!({ "tool_call_id": id, "result": output, "is_error": is_error }),
            )),
            Output::Plan { items } => told.push(event("plan_updated", json!({ "items": items }))),
            Output::Note { text } => {
                told.push(event("process_update", json!({ "text": text, "at": said.at })));
            }
            Output::Card { card, questions } => {
                let data = json!({ "decision_id": card, "status": "open", "questions": questions });
                told.push(event("ask_user_questions", data));
            }
            Output::TurnEnded { turn, outcome, text } => {
                self.turn_runs = false;
                let data = json!({ "turn": turn, "result": text, "outcome": outcome });
                told.push(event("turn_finished", data));
            }
            Output::Notice { text } => told.push(event("notice", json!({ "text": text }))),
        }
        for event in &mut told[first..] {
            event.data["conversation_id"] = json!(self.key.conversation);
            event.data["process_id"] = json!(said.process);
            if late {
                event.data["late"] = json!(true);
            }
        }
    }

    fn on_state(&mut self, entry: &Entry, state: &StateEntry, told: &mut Vec<Event>) {
        let process = &state.process;
        for dated in &state.facts {
            if let Some(text) = notice(&dated.fact) {
                let data = json!({
                    "conversation_id": self.key.conversation,
                    "process_id": process.id,
                    "text": text,
                });
                told.push(event("notice", data));
            }
            match &dated.fact {
                Fact::Claimed { epoch, .. } => told.extend(self.texts.over_before(*epoch)),
                Fact::Lost { epoch, .. } => {
                    self.turn_runs = false;
                    told.extend(self.texts.over_before(epoch.next()));
                }
                Fact::CardClosed { card, closed } => {
                    let data = json!({
                        "conversation_id": self.key.conversation,
                        "process_id": process.id,
                        "decision_id": card,
                        "status": closed,
                    });
                    told.push(event("ask_user_questions", data));
                }
                Fact::Started { .. } if self.announced != Some(process.id) => {
                    self.announced = Some(process.id);
                    let input = self.starting_input(process.id);
                    told.push(task_created(&ConversationRecord::of_start(self.key.org, process, input)));
                }
                _ => {}
            }
        }
        for progress in progress(self.key.conversation, entry) {
            self.tell_receipt(&progress, told);
            if progress.receipt == Receipt::Consumed {
                told.extend(self.steer_applied(&progress, process.id));
            }
            if progress.receipt >= Receipt::Consumed {
                self.waiting.retain(|underway| underway.seq != progress.input);
            }
        }
        let data = json!({ "conversation_id": self.key.conversation, "process": process });
        told.push(event("process_state_changed", data));
        if state.facts.iter().any(|dated| matches!(dated.fact, Fact::Ended { .. })) {
            let said = self.said.as_ref().filter(|(id, _)| *id == process.id).map(|(_, text)| text.clone());
            told.push(event(
                "task_finished",
                json!({
                    "id": self.key.conversation,
                    "conversation_id": self.key.conversation,
                    "process_id": process.id,
                    "status": process.status,
                    "result": result(process, said),
                    "process": process,
                }),
            ));
        }
    }

    /// Receipts are told in their order and once, although the executor and the registry write at their own pace: what
    /// goes into the harness has been routed, whoever of them is quicker.
    fn tell_receipt(&mut self, progress: &Progress, told: &mut Vec<Event>) {
        if let Some(underway) = self.waiting.iter_mut().find(|underway| underway.seq == progress.input) {
            let before = underway.told;
            if progress.receipt <= before {
                return;
            }
            underway.told = progress.receipt;
            if (before, progress.receipt) == (Receipt::Accepted, Receipt::InHarness) {
                told.push(self.receipt(&Progress { receipt: Receipt::Routed, ..progress.clone() }));
            }
        }
        told.push(self.receipt(progress));
    }

    fn receipt(&self, progress: &Progress) -> Event {
        let mut data = json!({
            "conversation_id": self.key.conversation,
            "message_id": MessageId::of_input(self.key.conversation, progress.input),
            "receipt": progress.receipt,
            "at": progress.at,
            "process_id": progress.process,
        });
        if let Some(reason) = &progress.reason {
            data["reason"] = json!(reason);
        }
        event("message_receipt", data)
    }

    /// A message went into a process that it had not started: the agent has read it now.
    fn steer_applied(&self, progress: &Progress, process: ProcessId) -> Option<Event> {
        let underway = self.waiting.iter().find(|underway| underway.seq == progress.input)?;
        let started_it = process == ProcessId::started_by(self.key.conversation, progress.input);
        (!started_it).then(|| {
            event(
                "gateway_steer_applied",
                json!({
                    "conversation_id": self.key.conversation,
                    "message_id": MessageId::of_input(self.key.conversation, progress.input),
                    "at": "child",
                    "execution_id": process,
                    "message": underway.beginning.text,
                }),
            )
        })
    }

    fn starting_input(&self, process: ProcessId) -> Option<MessageInput> {
        let starts = |seq| ProcessId::started_by(self.key.conversation, seq) == process;
        self.waiting.iter().find(|underway| starts(underway.seq)).map(|underway| underway.beginning.clone())
    }
}

/// That there is a task, with what is known of it.
pub(crate) fn task_created(record: &ConversationRecord) -> Event {
    event("task_created", json!(record))
}

fn event(name: &'static str, data: Value) -> Event {
    Event { id: None, name, data }
}

fn input(said: &InputEntry) -> Option<MessageInput> {
    match &said.what {
        InputKind::Message { text, files, .. } => {
            Some(MessageInput { text: text.clone(), files: files.clone(), user: said.author.clone() })
        }
        InputKind::Answer { .. }
        | InputKind::Stop { .. }
        | InputKind::Archive
        | InputKind::Retry
        | InputKind::Fail { .. } => None,
    }
}

fn beginning(text: &str) -> String {
    match text.char_indices().nth(BEGINNING_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
