//! The public HTTP surface as shapes: what clients send and get, the problems they are answered, the events of a stream,
//! and who may ask. Everything but reading a body and writing a stream is pure; nothing here knows of the bus, whose
//! side of it the two HTTP roles bring along.

mod access;
mod agents;
mod ahead;
mod answers;
mod conversations;
mod entry;
mod events;
mod explain;
mod extract;
mod fleet;
pub mod limits;
mod messages;
pub mod middleware;
mod page;
mod problem;
mod receipt;
mod record;
mod resume;
mod run_state;
mod settled;
mod sse;
#[cfg(test)]
mod testing;
mod thread;

pub use access::{Access, Caller, Directory};
pub use agents::{AgentBody, AgentView};
pub use ahead::{Undecided, ahead};
pub use answers::AnswersBody;
pub use conversations::ConversationItem;
pub use entry::{Entry, Said};
pub use events::{Begin, Event, Events};
pub use explain::{Explanation, HistoryStep};
pub use extract::{Ids, JsonBody, Params};
pub use fleet::{FleetFilter, FleetProcess};
pub use messages::{
    Action, ArchiveBody, FailBody, InvokeBody, MessageAccepted, MessageBody, MessageInput, RetryBody, Saying,
    SteerTarget, StopAccepted, StopBody, fits,
};
pub use page::{List, PageParams, StrictPageParams};
pub use problem::Problem;
pub use receipt::{MessageReceipt, Progress, Receipt, ReceiptTimes, progress};
pub use record::{Activity, ConversationRecord, Fate, Happened, ProcessCard, ToolResult};
pub use resume::ResumeParams;
pub use run_state::{QUEUED_SHOWN_MAX, QueuedMessage, RunState};
pub use settled::{Settled, Waiting};
pub use sse::{Next, Opening, Source, Until, stream};
pub use thread::{ACTIVITY_MAX, Thread};
