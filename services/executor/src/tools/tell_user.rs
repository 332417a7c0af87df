//! `tell_user`: a note of progress to the person.

use rmcp::handler::server::tool::schema_for_type;
use rmcp::model::{CallToolResult, JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Calls, declined, read, said, unavailable};

pub(super) const NAME: &str = "tell_user";

/// A note is read in passing, in a chat; what is longer belongs into a file or the agent's own text.
const TEXT_BYTES_MAX: usize = 16 * 1024;

const DESCRIPTION: &str = "Tells the person how the work stands, while it goes on: one or two sentences, at once \
    visible in the conversation. It is a note, not an exit: it ends neither your turn nor your process, and nobody \
    answers it. To ask something, ask in plain text and end your turn; the answer comes as a message.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The note. At most 16384 bytes.
    text: String,
}

pub(super) fn tool() -> Tool {
    Tool::new(NAME, DESCRIPTION, schema_for_type::<Arguments>())
}

pub(super) async fn call(
    calls: &dyn Calls,
    arguments: JsonObject,
    call_id: Option<String>,
) -> CallToolResult {
    let takes = format!("{NAME} takes one argument, text: a note of 1 to {TEXT_BYTES_MAX} bytes");
    let Arguments { text } = match read(arguments, &takes) {
        Ok(arguments) => arguments,
        Err(answer) => return answer,
    };
    if text.trim().is_empty() {
        return declined(format!("Nothing was told: the text is empty. {takes}. Call it again with one."));
    }
    if text.len() > TEXT_BYTES_MAX {
        return declined(format!(
            "Nothing was told: the text has {} bytes, and may have {TEXT_BYTES_MAX}. Put what is longer into a file \
             of the working tree, say where it is, and call it again.",
            text.len()
        ));
    }
    match calls.tell(text, call_id).await {
        Ok(()) => said("Told. Go on with the work."),
        Err(why) => unavailable(&why.0),
    }
}
