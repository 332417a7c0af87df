//! The record of a conversation, folded into what is shown of it: the lines of the thread, the cards of its processes,
//! and what has become of each input. Pure; it holds a bounded part however long the record is.

use std::collections::VecDeque;

use contract::messages::record::{InputEntry, InputKind, Output, OutputEntry, StateEntry};
use domain::Timestamp;
use domain::ids::{Epoch, MessageId, ProcessId, RecordSeq};
use domain::policy::UNDELIVERED_MAX;
use domain::process::{CardClosed, ConversationKey, Fact, PublicProcess, Status, Substate};

use crate::ahead::Undecided;
use crate::entry::{Entry, Said};
use crate::messages::MessageInput;
use crate::receipt::{Progress, Receipt, progress};
use crate::record::{Activity, CardStatus, Content, Fate, Happened, ProcessCard, Speaker, ToolResult};

/// Lines in one answer. A page shows fewer at once; older ones are had by `?before=`.
pub const ACTIVITY_MAX: usize = 500;

/// Cards in one answer: the latest processes of the chain.
const CARDS_MAX: usize = 200;

/// Messages whose process may still show up. A process shows up within moments of the message that starts it, so only
/// a flood of messages into an ended conversation comes near.
const RECENT_MAX: usize = 64;

/// What a person is asked of a process that nobody has needed for long.
const STILL_NEEDED: &str = "Is this still needed? A message keeps it open, and stopping it ends it; without either it \
                            finishes itself after a while.";

/// The beginning of a message as a card's title, in characters.
const TITLE_MAX: usize = 120;

#[derive(Debug)]
pub struct Thread {
    key: ConversationKey,
    /// Lines from this place on are not taken.
    before: Option<u64>,
    /// What the log holds already.
    handled: RecordSeq,
    activity: VecDeque<Activity>,
    older: bool,
    cards: VecDeque<ProcessCard>,
    recent: VecDeque<(ProcessId, MessageInput)>,
    first_input: Option<MessageInput>,
    /// The message that started the process of the last card.
    input: Option<(ProcessId, MessageInput)>,
    created_at: Option<Timestamp>,
    claimed: Epoch,
    said: Option<(ProcessId, String)>,
    shown: Option<(ProcessId, Status, Option<Substate>, String)>,
    undecided: Vec<Undecided>,
}

// === impl Thread ===

impl Thread {
    /// `handled` is the last input that the log holds; the log is read first, then the record.
    pub fn new(key: ConversationKey, handled: RecordSeq, before: Option<u64>) -> Self {
        Self {
            key,
            before,
            handled,
            activity: VecDeque::new(),
            older: false,
            cards: VecDeque::new(),
            recent: VecDeque::new(),
            first_input: None,
            input: None,
            created_at: None,
            claimed: Epoch(0),
            said: None,
            shown: None,
            undecided: Vec::new(),
        }
    }

    /// Takes the next entry of the record.
    pub fn push(&mut self, entry: &Entry) {
        match &entry.said {
            Said::In(said) => self.on_input(entry, said),
            Said::Out(said) => self.on_output(entry, said),
            Said::State(state) => self.on_state(entry, state),
            Said::Unknown { kind } => {
                self.line(entry, entry.at, None, false, Happened::Unknown { kind: kind.clone() });
            }
        }
        for progress in progress(self.key.conversation, entry) {
            self.apply(progress);
        }
    }

    fn on_input(&mut self, entry: &Entry, said: &InputEntry) {
        let seq = RecordSeq(entry.sequence);
        self.created_at.get_or_insert(said.at);
        if seq > self.handled && self.undecided.len() < UNDELIVERED_MAX {
            self.undecided.push(Undecided::new(seq, said));
        }
        let fate = Fate {
            message_id: MessageId::of_input(self.key.conversation, seq),
            from: said.from,
            receipt: Receipt::Accepted,
            reason: None,
        };
        let what = match &said.what {
            InputKind::Message { text, files, mode } => {
                let input =
                    MessageInput { text: text.clone(), files: files.clone(), user: said.author.clone() };
                self.first_input.get_or_insert_with(|| input.clone());
                keep(
                    &mut self.recent,
                    RECENT_MAX,
                    (ProcessId::started_by(self.key.conversation, seq), input),
                );
                let content = Content { text: text.clone(), files: files.clone() };
                let user = said.author.clone();
                Happened::UserMessage { role: Speaker::User, content, mode: *mode, user, fate }
            }
            InputKind::Stop { scope } => Happened::Stop { scope: *scope, fate },
            InputKind::Answer { card, answers } => {
                Happened::Answers { decision_id: *card, answers: answers.clone(), fate }
            }
            InputKind::Archive => Happened::Archive { fate },
            InputKind::Retry => Happened::Retry { fate },
            InputKind::Fail { why } => Happened::Fail { why: why.clone(), fate },
        };
        self.line(entry, said.at, None, false, what);
    }

    fn on_output(&mut self, entry: &Entry, said: &OutputEntry) {
        let late = said.epoch < self.claimed;
        let what = match &said.what {
            Output::InHarness { .. } | Output::MessageStarted { .. } | Output::MessageDropped { .. } => {
                return;
            }
            Output::TurnStarted { turn } => Happened::TurnStarted { turn: *turn },
            Output::Text { message_id, text } => {
                if !late {
                    self.said = Some((said.process, text.clone()));
                }
                let content = Content { text: text.clone(), files: Vec::new() };
                Happened::AgentMessage { role: Speaker::Agent, content, message_id: *message_id }
            }
            Output::ToolCall { id, name, input } => Happened::ToolCall {
                tool_call_id: id.clone(),
                tool_name: name.clone(),
                payload: input.clone(),
                result: None,
            },
            Output::ToolResult { id, output, is_error } => {
                let result = ToolResult { at: said.at, output: output.clone(), is_error: *is_error };
                match self.open_call(id) {
                    Some(slot) => return *slot = Some(result),
                    None => Happened::ToolResult { tool_call_id: id.clone(), result },
                }
            }
            Output::Plan { items } => Happened::Plan { items: items.clone() },
            Output::Card { card, questions } => Happened::AskUserQuestions {
                decision_id: *card,
                status: CardStatus::Asking,
                questions: questions.clone(),
            },
            Output::Note { text } => Happened::Note { text: text.clone() },
            Output::TurnEnded { turn, outcome, .. } => {
                Happened::TurnFinished { turn: *turn, outcome: *outcome }
            }
            Output::Notice { text } => Happened::Notice { text: text.clone() },
        };
        self.line(entry, said.at, Some(said.process), late, what);
    }

    fn on_state(&mut self, entry: &Entry, state: &StateEntry) {
        for dated in &state.facts {
            if let Some(text) = notice(&dated.fact) {
                let what = Happened::Notice { text };
                self.line(entry, dated.at, Some(state.process.id), false, what);
            }
            match &dated.fact {
                Fact::Claimed { epoch, .. } => self.claimed = self.claimed.max(*epoch),
                Fact::Asked { card } => self.card_is(*card, CardStatus::Open),
                Fact::CardClosed { card, closed } => self.card_is(*card, CardStatus::from(*closed)),
                _ => {}
            }
        }
        let process = &state.process;
        if process.status == Status::Pending {
            return;
        }
        self.show(process);
        let shown = (process.id, process.status, process.substate, process.state.clone());
        if self.shown.as_ref() != Some(&shown) {
            let what = Happened::ProcessState { process: Box::new(process.clone()) };
            self.line(entry, process.since, Some(process.id), false, what);
            self.shown = Some(shown);
        }
    }

    /// Brings the process's card up to date.
    pub(crate) fn show(&mut self, process: &PublicProcess) {
        match self.cards.iter_mut().find(|card| card.id == process.id) {
            Some(card) => *card = ProcessCard::new(process, card.title.take()),
            None => {
                let started_it = self.recent.iter().find(|(id, _)| *id == process.id);
                let title = started_it.map(|(_, input)| title(&input.text));
                if let Some(started_it) = started_it {
                    self.input = Some(started_it.clone());
                }
                keep(&mut self.cards, CARDS_MAX, ProcessCard::new(process, title));
            }
        }
    }

    fn line(&mut self, entry: &Entry, at: Timestamp, process: Option<ProcessId>, late: bool, what: Happened) {
        if self.before.is_none_or(|before| entry.sequence < before) {
            let line = Activity { id: entry.sequence, created_at: at, process_id: process, late, what };
            self.older |= keep(&mut self.activity, ACTIVITY_MAX, line);
        }
    }

    fn apply(&mut self, progress: Progress) {
        let Ok(place) = self.activity.binary_search_by_key(&progress.input.0, |line| line.id) else { return };
        if progress.receipt == Receipt::Duplicate {
            // The thread shows what was said once.
            self.activity.remove(place);
            return;
        }
        let line = &mut self.activity[place];
        line.process_id = progress.process.or(line.process_id);
        if let Some(fate) = line.what.fate()
            && progress.receipt > fate.receipt
        {
            fate.receipt = progress.receipt;
            fate.reason = progress.reason;
        }
    }

    fn card_is(&mut self, card: MessageId, now: CardStatus) {
        let found = self.activity.iter_mut().rev().find_map(|line| match &mut line.what {
            Happened::AskUserQuestions { decision_id, status, .. } if *decision_id == card => Some(status),
            _ => None,
        });
        if let Some(status) = found {
            *status = now;
        }
    }

    fn open_call(&mut self, id: &str) -> Option<&mut Option<ToolResult>> {
        self.activity.iter_mut().rev().find_map(|line| match &mut line.what {
            Happened::ToolCall { tool_call_id, result, .. } if tool_call_id == id => Some(result),
            _ => None,
        })
    }
}

/// What the record of the conversation is made of.
impl Thread {
    pub fn undecided(&self) -> &[Undecided] {
        &self.undecided
    }

    /// A stop that ended its process is told of by nothing but its number.
    pub(crate) fn settle_controls(&mut self) {
        for line in &mut self.activity {
            let decided = line.id <= self.handled.0;
            if let Happened::Stop { fate, .. }
            | Happened::Archive { fate }
            | Happened::Retry { fate }
            | Happened::Fail { fate, .. } = &mut line.what
                && decided
            {
                fate.receipt = fate.receipt.max(Receipt::Consumed);
            }
        }
    }

    pub(crate) fn last_text(&self, process: ProcessId) -> Option<&str> {
        self.said.as_ref().filter(|(id, _)| *id == process).map(|(_, text)| text.as_str())
    }

    pub(crate) fn first_input(&self) -> Option<MessageInput> {
        self.first_input.clone()
    }

    pub(crate) fn input_of(&self, process: ProcessId) -> Option<MessageInput> {
        self.input.as_ref().filter(|(id, _)| *id == process).map(|(_, input)| input.clone())
    }

    pub(crate) const fn created_at(&self) -> Option<Timestamp> {
        self.created_at
    }

    pub(crate) fn before(&self) -> Option<u64> {
        self.activity.front().filter(|_| self.older).map(|line| line.id)
    }

    pub(crate) fn take_cards(&mut self) -> Vec<ProcessCard> {
        std::mem::take(&mut self.cards).into()
    }

    pub(crate) fn take_activity(&mut self) -> Vec<Activity> {
        std::mem::take(&mut self.activity).into()
    }
}

/// What a person is told of a fact, beside how the process stands.
pub(crate) fn notice(fact: &Fact) -> Option<String> {
    match fact {
        Fact::Nudged => Some(STILL_NEEDED.into()),
        Fact::TaskKilled { label, .. } => Some(format!(
            "It ran in the background and was killed when its process left its machine: {label}"
        )),
        _ => None,
    }
}

impl Happened {
    fn fate(&mut self) -> Option<&mut Fate> {
        match self {
            Self::UserMessage { fate, .. }
            | Self::Answers { fate, .. }
            | Self::Stop { fate, .. }
            | Self::Archive { fate }
            | Self::Retry { fate }
            | Self::Fail { fate, .. } => Some(fate),
            _ => None,
        }
    }
}

impl From<CardClosed> for CardStatus {
    fn from(closed: CardClosed) -> Self {
        match closed {
            CardClosed::Answered => Self::Answered,
            CardClosed::Withdrawn => Self::Withdrawn,
            CardClosed::Expired => Self::Expired,
        }
    }
}

/// Appends, and says whether the oldest had to make room.
fn keep<T>(all: &mut VecDeque<T>, max: usize, item: T) -> bool {
    let full = all.len() >= max;
    if full {
        all.pop_front();
    }
    all.push_back(item);
    full
}

/// The first line that says something, shortened.
fn title(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    match line.char_indices().nth(TITLE_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests;
