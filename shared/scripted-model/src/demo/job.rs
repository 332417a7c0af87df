//! How far the demo's job in a conversation has come, read from the request alone: the items are folded in order, and
//! what is left over at the end is the present. Deciding what to say about it is the parent module's.

use serde_json::Value;

use crate::request::{Item, ItemKind, RequestView, Role};

pub(super) const PROGRAM_FILE: &str = "hello.sh";
pub(super) const CHECK_FILE: &str = "hello_check.sh";
pub(super) const RUN_CHECK: &str = "sh hello_check.sh";
pub(super) const NOTES: &str = "NOTES.md";

/// A deed that failed so often is given up until somebody speaks again.
const TRIES: usize = 2;

/// One thing that the demo does, recognised again by its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Tell,
    Program,
    Check,
    Run,
    Note,
    Finish,
}

/// The job since the last accepted finish.
#[derive(Debug, Default)]
pub(super) struct Job<'a> {
    /// Jobs of this conversation that are finished.
    pub number: usize,
    /// What was said since then; the first of it is the job's message.
    pub messages: Vec<&'a str>,
    /// Those of it that no reply has seen yet.
    pub fresh: Vec<&'a str>,
    /// Whether the job's own message is among the fresh ones.
    pub is_opening: bool,
    /// What a call was answered with when it was held, until somebody speaks again.
    pub held: Option<&'a str>,
    ended_its_turn: bool,
    done: Vec<(Deed, &'a str)>,
    failed: Vec<(Deed, &'a str)>,
}

// === impl Job ===

impl<'a> Job<'a> {
    pub(super) fn read(request: &'a RequestView) -> Self {
        let can_finish = request.offers("mcp/finish_process");
        let mut job = Self::default();
        let mut open: Vec<(&str, Deed)> = Vec::new();
        for item in &request.items {
            match &item.kind {
                _ if item.is_said_by_user() => {
                    // Without the call that ends a process, a turn that ended in words alone was the job's end.
                    if !can_finish && job.ended_its_turn && job.held.is_none() {
                        job.finishes();
                    }
                    job.hears(&item.text);
                }
                ItemKind::ToolCall { id, name, input } => {
                    job.replies(false);
                    open.extend(Deed::of(request, name, input).map(|deed| (id.as_str(), deed)));
                }
                ItemKind::ToolResult { call, is_error } => {
                    if let Some((_, deed)) = open.iter().find(|(id, _)| id == call) {
                        job.learns(*deed, item, *is_error);
                    }
                }
                ItemKind::Text if item.role == Role::Assistant => job.replies(true),
                _ => {}
            }
        }
        job
    }

    /// The deeds to do now, to be called for in one reply; none is left when it is empty.
    pub(super) fn next(&self, request: &RequestView) -> Vec<Deed> {
        if self.messages.is_empty() {
            return Vec::new();
        }
        let plan: &[&[Deed]] = match self.number {
            0 => &[&[Deed::Tell], &[Deed::Program, Deed::Check], &[Deed::Run], &[Deed::Finish]],
            _ => &[&[Deed::Note], &[Deed::Finish]],
        };
        let left = |group: &&[Deed]| -> Vec<Deed> {
            group
                .iter()
                .copied()
                .filter(|deed| !self.is_settled(*deed) && self.is_possible(*deed, request))
                .collect()
        };
        plan.iter().map(left).find(|left| !left.is_empty()).unwrap_or_default()
    }

    pub(super) fn output_of(&self, deed: Deed) -> Option<&'a str> {
        self.done.iter().rfind(|(done, _)| *done == deed).map(|(_, output)| *output)
    }

    /// The last error of a deed that is not done.
    pub(super) fn error_of(&self, deed: Deed) -> Option<&'a str> {
        let failed = self.failed.iter().rfind(|(failed, _)| *failed == deed).map(|(_, error)| *error);
        failed.filter(|_| self.output_of(deed).is_none())
    }

    fn hears(&mut self, text: &'a str) {
        self.is_opening |= self.messages.is_empty();
        self.messages.push(text);
        self.fresh.push(text);
        self.held = None;
        self.failed.clear();
        self.ended_its_turn = false;
    }

    /// A reply's words come before its calls, so that the last item tells whether it had any.
    fn replies(&mut self, in_words: bool) {
        self.fresh.clear();
        self.is_opening = false;
        self.ended_its_turn = in_words;
    }

    fn learns(&mut self, deed: Deed, result: &'a Item, is_error: bool) {
        let text = result.text.as_str();
        match () {
            () if is_held(deed, text) => self.held = Some(text),
            () if is_error => self.failed.push((deed, text)),
            () if deed == Deed::Finish => self.finishes(),
            () => self.done.push((deed, text)),
        }
    }

    fn finishes(&mut self) {
        *self = Self { number: self.number + 1, ..Self::default() };
    }

    fn is_settled(&self, deed: Deed) -> bool {
        let tries = self.failed.iter().filter(|(failed, _)| *failed == deed).count();
        self.output_of(deed).is_some() || tries >= TRIES
    }

    fn is_possible(&self, deed: Deed, request: &RequestView) -> bool {
        let has_shell = request.offers("shell");
        match deed {
            Deed::Tell => request.offers("mcp/tell_user"),
            Deed::Program | Deed::Check => {
                has_shell || (request.offers("Write") && request.working_directory().is_some())
            }
            Deed::Run => {
                has_shell && [Deed::Program, Deed::Check].iter().all(|file| self.output_of(*file).is_some())
            }
            Deed::Note => has_shell,
            Deed::Finish => request.offers("mcp/finish_process"),
        }
    }
}

// === impl Deed ===

impl Deed {
    fn of(request: &RequestView, name: &str, input: &Value) -> Option<Self> {
        let is = |alias: &str| request.wire.tool_name(alias) == name;
        if is("mcp/tell_user") {
            return Some(Self::Tell);
        }
        if is("mcp/finish_process") {
            return Some(Self::Finish);
        }
        let field = |field: &str| input.get(field).and_then(Value::as_str).unwrap_or_default();
        let (path, command) = (field("file_path"), field("command"));
        let writes = |file: &str| {
            path.ends_with(&format!("/{file}")) || command.starts_with(&format!("cat > {file} "))
        };
        let deeds = [
            (writes(PROGRAM_FILE), Self::Program),
            (writes(CHECK_FILE), Self::Check),
            (command == RUN_CHECK, Self::Run),
            (command.ends_with(NOTES), Self::Note),
        ];
        deeds.into_iter().find_map(|(matches, deed)| matches.then_some(deed))
    }
}

/// Whether the runtime keeps the call back: a finish while work is open, or a command that a person must allow.
fn is_held(deed: Deed, result: &str) -> bool {
    let result = result.trim_start().to_lowercase();
    result.starts_with("held") || (deed == Deed::Finish && result.contains("still open"))
}
