//! A model server that says what a script tells it to say, on the providers' own wires. Tests put it where the paid
//! model would be; `resident dev` runs its demo model when no provider key is given, so that the real harness does a
//! small real job. It is no model and no proxy: nothing here thinks, and nothing is forwarded.
//!
//! * [`RequestView`] is one request as a script sees it, whichever wire it came on.
//! * [`Reply`] is what is answered: text, tool calls, an error, and how it is paced, held or cut.
//! * [`Script`] chooses the reply: the steps of a [`Scenario`] first, then a [`Responder`], then the default.
//! * [`ScriptedModel`] is the running server; it ends when it is dropped.
//! * [`DemoModel`] is the responder that works without any script.
//!
//! A wire (`wire/<name>.rs`) reads a provider's request into the view and writes a reply as that provider would.

mod demo;
mod handle;
mod reply;
mod request;
mod script;
mod seen;
mod server;
mod wire;

pub use demo::DemoModel;
pub use handle::{ScriptedModel, StartError};
pub use reply::{Failure, Reply, ToolCall, Usage};
pub use request::{AgentKind, Item, ItemKind, RequestView, Role};
pub use script::{Responder, Scenario, ScenarioError, Script, Step, When};
pub use seen::{AnsweredBy, Exchange, Fault, NotSeen, Progress, Seen};
pub use wire::Wire;
