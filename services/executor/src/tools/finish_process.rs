//! `finish_process`: the only way by which an agent ends its process.

use domain::policy::SUMMARY_MAX;
use domain::segment::Ask;
use rmcp::handler::server::tool::schema_for_type;
use rmcp::model::{CallToolResult, JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Asked, Calls, already_ended, declined, read, said, unavailable};

pub(super) const NAME: &str = "finish_process";

const DESCRIPTION: &str = "Ends your process: the task turns Completed with this summary. It is the only way to end \
    it; plain text is a message to the person and leaves the process open. Call it once, when everything asked for is \
    done or cannot be done. While something is still open the call is held: nothing is recorded, and the answer says \
    what is open and what to do.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// What was done and what came of it, for someone who has not followed. At most 8192 bytes.
    summary: String,
}

pub(super) fn tool() -> Tool {
    Tool::new(NAME, DESCRIPTION, schema_for_type::<Arguments>())
}

pub(super) async fn call(calls: &dyn Calls, arguments: JsonObject) -> CallToolResult {
    let takes = format!("{NAME} takes one argument, summary: a text of 1 to {SUMMARY_MAX} bytes");
    let Arguments { summary } = match read(arguments, &takes) {
        Ok(arguments) => arguments,
        Err(answer) => return answer,
    };
    if summary.trim().is_empty() {
        return declined(format!(
            "Nothing was recorded: the summary is empty. {takes}. Call it again with one."
        ));
    }
    if summary.len() > SUMMARY_MAX {
        return declined(format!(
            "Nothing was recorded: the summary has {} bytes, and may have {SUMMARY_MAX}. Put what is longer into a \
             file of the working tree, say in the summary where it is, and call it again.",
            summary.len()
        ));
    }
    match calls.ask(Ask::Finish { summary }).await {
        Asked::Done { .. } => said("Recorded: the process is Completed. End your turn now."),
        Asked::AlreadyEnded { outcome } => already_ended(&outcome),
        Asked::Refused { why } => said(format!(
            "held: {why}. Nothing was recorded and the process stays open; call {NAME} again after that."
        )),
        Asked::Unavailable(why) => unavailable(&why),
    }
}
