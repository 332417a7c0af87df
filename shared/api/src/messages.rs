//! What clients say to conversations, and what they are answered at once.

use contract::messages::record::{Author, InputEntry, InputKind};
use domain::ids::{ConversationId, MessageId, ProcessId, RecordSeq};
use domain::policy::{ERROR_SHOWN_MAX, MESSAGE_TEXT_MAX};
use domain::process::{Mode, PublicProcess, Stage, State, StopScope};
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::{ENTRY_MAX, FILE_NAME_MAX, FILES_MAX, IDEMPOTENCY_KEY_MAX, NAME_MAX};
use crate::problem::Problem;

/// `POST …/invoke`, with `/async` and `/stream`.
#[derive(Debug, Clone, Deserialize)]
pub struct InvokeBody {
    pub input: MessageInput,
    /// The conversation to go on with; absent, a new one is opened.
    #[serde(default)]
    pub id: Option<String>,
    #[serde(default)]
    pub idempotency_key: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub mode: Mode,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageInput {
    #[serde(default, deserialize_with = "or_default")]
    pub text: String,
    #[serde(default, deserialize_with = "or_default")]
    pub files: Vec<String>,
    /// Whom the client names as the author; shown, never trusted.
    #[serde(default)]
    pub user: Option<Author>,
}

/// `POST …/{conversation_id}/messages`.
#[derive(Debug, Clone, Deserialize)]
pub struct MessageBody {
    #[serde(default, deserialize_with = "or_default")]
    pub text: String,
    #[serde(default, deserialize_with = "or_default")]
    pub files: Vec<String>,
    #[serde(default)]
    pub user: Option<Author>,
    #[serde(default, deserialize_with = "or_default")]
    pub mode: Mode,
    #[serde(default)]
    pub idempotency_key: Option<String>,
}

/// `POST …/{conversation_id}/stop`.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct StopBody {
    #[serde(default, deserialize_with = "or_default")]
    pub scope: StopScope,
}

/// `POST …/{conversation_id}/archive` says all by its address.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct ArchiveBody {}

/// `POST /v1/processes/{process_id}/retry` says all by its address.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryBody {}

/// `POST /v1/processes/{process_id}/fail`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailBody {
    /// Why, for whoever reads the conversation.
    pub why: String,
}

/// What was said, as it is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saying {
    pub what: InputKind,
    pub author: Option<Author>,
    pub idempotency_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageAccepted {
    pub action: Action,
    pub message_id: MessageId,
    pub conversation_id: ConversationId,
    /// Messages that wait for the agent, this one included; 0 where it started the process.
    pub queue_depth: usize,
    pub steer_target: SteerTarget,
}

/// What an accepted message comes to, as things stood when it was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Started,
    Steered,
    Queued,
    Interrupted,
}

/// Where a steer would go. Clients of old know a process as the child of its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SteerTarget {
    None,
    Child,
}

/// The answer to a stop and to archiving.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StopAccepted {
    pub message_id: MessageId,
    pub conversation_id: ConversationId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<StopScope>,
    /// How the process stands with the stop applied; absent where that is not known yet.
    pub process: Option<PublicProcess>,
}

// === impl bodies ===

impl InvokeBody {
    pub fn saying(self) -> Result<Saying, Problem> {
        self.input.saying("input.", self.mode, self.idempotency_key)
    }
}

impl MessageBody {
    pub fn saying(self) -> Result<Saying, Problem> {
        let input = MessageInput { text: self.text, files: self.files, user: self.user };
        input.saying("", self.mode, self.idempotency_key)
    }
}

impl MessageInput {
    /// `prefix` is where the fields stand in the body.
    fn saying(self, prefix: &str, mode: Mode, key: Option<String>) -> Result<Saying, Problem> {
        let field = |name: &str| format!("{prefix}{name}");
        if self.text.len() > MESSAGE_TEXT_MAX {
            let (field, length) = (field("text"), self.text.len());
            let why = format!("{field} has {length} bytes and {MESSAGE_TEXT_MAX} are allowed; shorten it");
            return Err(Problem::TooLarge { field: Some(field), why });
        }
        if self.text.trim().is_empty() && self.files.is_empty() {
            let field = field("text");
            return Err(Problem::invalid(&field, format!("{field} is empty; say what is to be done")));
        }
        if self.files.len() > FILES_MAX || self.files.iter().any(|name| name.len() > FILE_NAME_MAX) {
            let field = field("files");
            let why = format!("{field} may have {FILES_MAX} entries of {FILE_NAME_MAX} bytes; name fewer");
            return Err(Problem::invalid(field, why));
        }
        if let Some(author) = &self.user {
            for (name, value) in [("id", &author.id), ("name", &author.name), ("email", &author.email)] {
                if value.as_ref().is_some_and(|value| value.chars().count() > NAME_MAX) {
                    let field = field(&format!("user.{name}"));
                    let why = format!("{field} is longer than {NAME_MAX} characters; shorten it");
                    return Err(Problem::invalid(field, why));
                }
            }
        }
        if key.as_ref().is_some_and(|key| key.is_empty() || key.len() > IDEMPOTENCY_KEY_MAX) {
            let why = format!("idempotency_key may have 1 to {IDEMPOTENCY_KEY_MAX} bytes; take a UUID");
            return Err(Problem::invalid("idempotency_key", why));
        }
        let what = InputKind::Message { text: self.text, files: self.files, mode };
        Ok(Saying { what, author: self.user, idempotency_key: key })
    }
}

/// What `null` and nothing stand for alike.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl FailBody {
    pub fn saying(self) -> Result<Saying, Problem> {
        let length = self.why.trim().chars().count();
        if length == 0 || length > ERROR_SHOWN_MAX {
            let why = format!(
                "why has {length} characters, and may have 1 to {ERROR_SHOWN_MAX}; say it in a sentence"
            );
            return Err(Problem::invalid("why", why));
        }
        Ok(Saying::control(InputKind::Fail { why: self.why }))
    }
}

// === impl Saying ===

impl Saying {
    /// A stop, or archiving.
    pub const fn control(what: InputKind) -> Self {
        Self { what, author: None, idempotency_key: None }
    }

    pub const fn mode(&self) -> Option<Mode> {
        match &self.what {
            InputKind::Message { mode, .. } => Some(*mode),
            InputKind::Answer { .. }
            | InputKind::Stop { .. }
            | InputKind::Archive
            | InputKind::Retry
            | InputKind::Fail { .. } => None,
        }
    }
}

/// Whether the entry fits into the broker as it is written there: escapes count.
pub fn fits(entry: &InputEntry) -> Result<(), Problem> {
    let length = contract::envelope::encode(entry).len();
    if length <= ENTRY_MAX {
        return Ok(());
    }
    let why = format!(
        "written as JSON the message has {length} bytes and {ENTRY_MAX} are allowed; text of control characters grows \
         sixfold there, so leave them out or send less"
    );
    Err(Problem::TooLarge { field: Some("text".into()), why })
}

// === impl MessageAccepted ===

impl MessageAccepted {
    /// `last` is the state before the message, or any later one where the message was accepted before.
    pub fn new(conversation: ConversationId, input: RecordSeq, mode: Mode, last: Option<&State>) -> Self {
        let live = last.filter(|state| state.is_live());
        let started_it = live.is_none_or(|state| state.process == ProcessId::started_by(conversation, input));
        let (action, queue_depth) = match live {
            Some(state) if !started_it => {
                let waiting = state.undelivered.len() + usize::from(state.handled < input);
                (meets(state, mode), waiting)
            }
            _ => (Action::Started, 0),
        };
        Self {
            action,
            message_id: MessageId::of_input(conversation, input),
            conversation_id: conversation,
            queue_depth,
            steer_target: SteerTarget::of(last),
        }
    }
}

/// How a message meets a live process.
fn meets(state: &State, mode: Mode) -> Action {
    let stage = state.hot().map(|hot| hot.stage);
    match (mode, stage) {
        (Mode::Queue, Some(Stage::Starting | Stage::Working)) => Action::Queued,
        (Mode::Interrupt, Some(Stage::Working)) => Action::Interrupted,
        _ => Action::Steered,
    }
}

impl SteerTarget {
    pub fn of(last: Option<&State>) -> Self {
        if last.is_some_and(State::is_live) { Self::Child } else { Self::None }
    }
}

#[cfg(test)]
mod tests {
    use contract::messages::record::Source;
    use domain::Timestamp;
    use domain::ids::{AgentId, UserId};
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::testing::{conversation, hot, started};

    fn field_of(body: Value) -> String {
        match serde_json::from_value::<InvokeBody>(body).unwrap().saying() {
            Err(Problem::Invalid { field, .. } | Problem::TooLarge { field: Some(field), .. }) => field,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn null_and_unknown_fields_are_as_good_as_nothing() {
        let body = json!({
            "input": { "text": "hello", "files": null, "user": null, "images": [] },
            "id": null, "idempotency_key": null, "mode": null, "output_schema": {},
        });
        let saying = serde_json::from_value::<InvokeBody>(body).unwrap().saying().unwrap();
        assert_eq!(
            saying,
            Saying {
                what: InputKind::Message { text: "hello".into(), files: Vec::new(), mode: Mode::Auto },
                author: None,
                idempotency_key: None,
            }
        );
        let body = json!({ "text": "hi", "mode": "queue", "user": { "name": "Ann", "tz": "CET" }, "x": 1 });
        let saying = serde_json::from_value::<MessageBody>(body).unwrap().saying().unwrap();
        assert_eq!(saying.mode(), Some(Mode::Queue));
        assert_eq!(saying.author.unwrap().name.as_deref(), Some("Ann"));
    }

    #[test]
    fn what_goes_beyond_a_bound_is_named() {
        let text = |text: String| json!({ "input": { "text": text } });
        assert!(
            serde_json::from_value::<InvokeBody>(text("é".repeat(MESSAGE_TEXT_MAX / 2)))
                .unwrap()
                .saying()
                .is_ok()
        );
        assert_eq!(field_of(text("é".repeat(MESSAGE_TEXT_MAX / 2) + "a")), "input.text");
        assert_eq!(field_of(text(" \n".into())), "input.text");
        assert_eq!(
            field_of(json!({ "input": { "text": "a", "files": vec!["f"; FILES_MAX + 1] } })),
            "input.files"
        );
        let name = "n".repeat(NAME_MAX + 1);
        assert_eq!(
            field_of(json!({ "input": { "text": "a", "user": { "name": name } } })),
            "input.user.name"
        );
        for key in ["", &"k".repeat(IDEMPOTENCY_KEY_MAX + 1)] {
            assert_eq!(
                field_of(json!({ "input": { "text": "a" }, "idempotency_key": key })),
                "idempotency_key"
            );
        }
    }

    #[test]
    fn a_text_that_grows_beyond_the_broker_when_it_is_escaped_is_refused() {
        let entry = |text: String| InputEntry {
            at: Timestamp::EPOCH,
            agent: AgentId::from_uuid(Uuid::nil()),
            from: UserId::from_uuid(Uuid::nil()),
            author: None,
            source: Source::Api,
            idempotency_key: None,
            what: InputKind::Message { text, files: Vec::new(), mode: Mode::Auto },
        };
        assert!(fits(&entry("\"".repeat(MESSAGE_TEXT_MAX))).is_ok());
        assert!(matches!(fits(&entry("\u{1}".repeat(MESSAGE_TEXT_MAX))), Err(Problem::TooLarge { .. })));
    }

    #[test]
    fn the_action_follows_from_what_runs() {
        let action = |state: Option<&State>, mode| {
            let accepted = MessageAccepted::new(conversation(), RecordSeq(50), mode, state);
            (accepted.action, accepted.queue_depth, accepted.steer_target)
        };
        let (waking, working, idle) = (started(3), hot(3, Stage::Working), hot(3, Stage::Idle));
        assert_eq!(action(None, Mode::Auto), (Action::Started, 0, SteerTarget::None));
        assert_eq!(action(Some(&waking), Mode::Auto), (Action::Steered, 2, SteerTarget::Child));
        assert_eq!(action(Some(&working), Mode::Auto).0, Action::Steered);
        assert_eq!(action(Some(&working), Mode::Queue).0, Action::Queued);
        assert_eq!(action(Some(&working), Mode::Interrupt).0, Action::Interrupted);
        assert_eq!(action(Some(&idle), Mode::Queue).0, Action::Steered);
        assert_eq!(action(Some(&idle), Mode::Interrupt).0, Action::Steered);
        // The message that started the process, sent again.
        let again = MessageAccepted::new(conversation(), RecordSeq(3), Mode::Auto, Some(&working));
        assert_eq!(again.action, Action::Started);
    }
}
