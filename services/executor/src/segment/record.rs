//! What a segment says in the record: one entry after the other, each until it is acknowledged.

use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, Nats, Outgoing, Port};
use contract::Subject;
use contract::messages::assign::Assignment;
use contract::messages::record::{Output, OutputEntry};
use domain::ids::{Epoch, ExecutorId, ProcessId};
use domain::process::ConversationKey;
use serde_json::Value;
use service::clock::Clock;
use service::telemetry::traceparent_of;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::Instrument;

use crate::Executor;

/// Entries that wait to be written. Beyond it the harness's events are not taken any more, and the harness waits.
const ENTRIES_MAX: usize = 1_024;

/// The text of a tool's input or output that is kept; more is in the harness's transcript.
const VALUE_BYTES_MAX: usize = 256 * 1024;

const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(2);

/// How long the last entries of a segment may take once it has left.
const LAST_ENTRIES_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Recorder {
    entries: mpsc::Sender<(Output, oneshot::Sender<()>)>,
    task: JoinHandle<()>,
}

struct Writer {
    nats: Nats,
    clock: Arc<dyn Clock>,
    key: ConversationKey,
    process: ProcessId,
    epoch: Epoch,
    executor: ExecutorId,
}

// === impl Recorder ===

impl Recorder {
    pub(super) fn start(executor: &Executor, assignment: &Assignment) -> Self {
        let (entries, mut waiting) = mpsc::channel::<(Output, oneshot::Sender<()>)>(ENTRIES_MAX);
        let writer = Writer {
            nats: executor.nats.clone(),
            clock: Arc::clone(&executor.clock),
            key: assignment.key,
            process: assignment.process,
            epoch: assignment.epoch,
            executor: executor.id,
        };
        let task = tokio::spawn(
            async move {
                while let Some((output, stored)) = waiting.recv().await {
                    writer.write(output).await;
                    // Few wait for it.
                    let _ = stored.send(());
                }
            }
            .in_current_span(),
        );
        Self { entries, task }
    }

    /// Takes an entry up. What it returns resolves when the entry is stored.
    pub(super) async fn send(&self, output: Output) -> oneshot::Receiver<()> {
        let (stored, receiver) = oneshot::channel();
        if self.entries.send((output, stored)).await.is_err() {
            tracing::error!("the record's writer has ended; an entry is lost");
        }
        receiver
    }

    /// Lets the last entries be written.
    pub(super) async fn finish(self) {
        drop(self.entries);
        if tokio::time::timeout(LAST_ENTRIES_WITHIN, self.task).await.is_err() {
            tracing::error!("the last entries of the record were not written: the broker did not take them");
        }
    }
}

// === impl Writer ===

impl Writer {
    async fn write(&self, output: Output) {
        let entry = OutputEntry {
            at: self.clock.now(),
            process: self.process,
            epoch: self.epoch,
            what: bounded(output),
        };
        // The same name on every try, so that one whose acknowledgement was lost is not stored twice.
        let name = format!("{}-{}", self.epoch, service::fresh::uuid().simple());
        let mut delay = RETRY_FIRST;
        loop {
            let message = Outgoing::message(&Subject::RecordOut(self.key, self.executor), &entry)
                .traced(traceparent_of(&tracing::Span::current()))
                .with_id(&name);
            match self.nats.publish(message).await {
                Ok(_) => return,
                Err(BusError::Rejected(why)) => {
                    tracing::error!(why, "the record refused an entry; it is lost");
                    return;
                }
                Err(error) => tracing::debug!(%error, "the entry is written again"),
            }
            self.clock.sleep(delay).await;
            delay = (delay * 2).min(RETRY_LAST);
        }
    }
}

/// The entry with its free values cut to what a message may hold.
fn bounded(output: Output) -> Output {
    match output {
        Output::ToolCall { id, name, input } => Output::ToolCall { id, name, input: cut(input) },
        Output::ToolResult { id, output, is_error } => {
            Output::ToolResult { id, output: cut(output), is_error }
        }
        Output::Text { message_id, text } => Output::Text { message_id, text: cut_text(text) },
        Output::TurnEnded { turn, outcome, text } => {
            Output::TurnEnded { turn, outcome, text: text.map(cut_text) }
        }
        other => other,
    }
}

fn cut(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(cut_text(text)),
        other => {
            let text = other.to_string();
            if text.len() <= VALUE_BYTES_MAX { other } else { Value::String(cut_text(text)) }
        }
    }
}

fn cut_text(mut text: String) -> String {
    if text.len() > VALUE_BYTES_MAX {
        let whole = text.len();
        text.truncate(text.floor_char_boundary(VALUE_BYTES_MAX));
        text.push_str(&format!("\n[cut: {whole} bytes in all]"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_at_a_character_and_says_so() {
        let long = "é".repeat(VALUE_BYTES_MAX);
        let Value::String(text) = cut(Value::String(long)) else { panic!() };
        assert!(text.len() < VALUE_BYTES_MAX + 100);
        assert!(text.ends_with(&format!("[cut: {} bytes in all]", 2 * VALUE_BYTES_MAX)));
        let small = serde_json::json!({ "command": "ls" });
        assert_eq!(cut(small.clone()), small);
    }
}
