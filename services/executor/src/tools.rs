//! The calls an agent has, as the MCP server `xpander` over streamable HTTP. What a call means is the segment's, asked
//! through [`Calls`]; here are the names, what they take, and the sentences that the model reads.
//!
//! There are no sessions: each request is answered by itself, in the protocol of 2026-07-28 as in those before it.

mod finish_process;
mod tell_user;
mod wait_for;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::Timestamp;
use domain::ids::QuestionId;
use domain::segment::Ask;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation,
    JsonObject, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::sandbox::inside;

/// The name under which a harness knows these tools; Claude Code shows them to the model as `mcp__xpander__…`.
pub const SERVER: &str = "xpander";

/// A harness gives up a call of which it hears nothing for a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The longest text of a call several times over, so that a longer one is declined with a sentence.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Where Claude Code says which of its tool calls this is.
const CALL_ID: &str = "claudecode/toolUseId";
/// Several times the length of the ids that there are; anything longer is none.
const CALL_ID_BYTES_MAX: usize = 128;
const INSTRUCTIONS: &str = "The calls by which you reach the person you work for and end your process.";

/// The segment, as its tools ask it.
#[async_trait]
pub trait Calls: Send + Sync {
    /// The time it is.
    fn now(&self) -> Timestamp;

    /// Asks for what the log decides.
    async fn ask(&self, ask: Ask) -> Asked;

    /// Puts a card of questions before the person. `call_id` as in `tell`.
    async fn question(&self, questions: Vec<NewQuestion>, call_id: Option<String>) -> Asked;

    /// `call_id` is the harness's own id of the call, where it says one.
    async fn tell(&self, text: String, call_id: Option<String>) -> Result<(), Unavailable>;
}

/// A question as the agent puts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewQuestion {
    pub text: String,
    pub options: Vec<String>,
    pub multiple: bool,
    pub free_text: bool,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Done {
        /// The commands and sub-agents that go on beside the turn.
        running: Vec<String>,
        /// What was asked, where a card was.
        questions: Vec<QuestionId>,
    },
    /// The process had ended before.
    AlreadyEnded { outcome: String },
    /// Nothing was recorded; why, and the way out.
    Refused { why: String },
    /// Nobody could decide now. It says why.
    Unavailable(String),
}

/// A call could not be recorded now. It says why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// The tools of one segment.
#[derive(Clone)]
pub struct Tools {
    calls: Arc<dyn Calls>,
    keep_alive: Duration,
}

// === impl Tools ===

impl Tools {
    pub fn new(calls: Arc<dyn Calls>) -> Self {
        Self { calls, keep_alive: KEEP_ALIVE }
    }

    /// How often a call that takes long shows that it is not forgotten.
    #[must_use]
    pub fn with_keep_alive(self, keep_alive: Duration) -> Self {
        Self { keep_alive, ..self }
    }

    pub(crate) fn into_service(
        self,
        ended: CancellationToken,
    ) -> StreamableHttpService<Self, NeverSessionManager> {
        let hosts = [inside::LISTEN.to_string(), format!("localhost:{}", inside::LISTEN.port())];
        let origins = hosts.each_ref().map(|host| format!("http://{host}"));
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_sse_keep_alive(Some(self.keep_alive))
            .with_max_request_body_bytes(REQUEST_BYTES_MAX)
            .with_allowed_hosts(hosts)
            .with_allowed_origins(origins)
            .with_cancellation_token(ended);
        StreamableHttpService::new(move || Ok(self.clone()), Arc::default(), config)
    }

    async fn call(
        &self,
        name: &str,
        arguments: JsonObject,
        call_id: Option<String>,
    ) -> Option<CallToolResult> {
        match name {
            finish_process::NAME => Some(finish_process::call(&*self.calls, arguments).await),
            tell_user::NAME => Some(tell_user::call(&*self.calls, arguments, call_id).await),
            wait_for::NAME => Some(wait_for::call(&*self.calls, arguments, self.calls.now()).await),
            _ => None,
        }
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tools").field("keep_alive", &self.keep_alive).finish_non_exhaustive()
    }
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(SERVER, env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![finish_process::tool(), tell_user::tool(), wait_for::tool()]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call_id = context.meta.get(CALL_ID).and_then(Value::as_str);
        let call_id = call_id.filter(|id| id.len() <= CALL_ID_BYTES_MAX).map(str::to_owned);
        let call = self.call(&request.name, request.arguments.unwrap_or_default(), call_id);
        let unknown = || {
            ErrorData::invalid_params("there is no such tool; list the tools to see which there are", None)
        };
        let result = with_progress(&context, self.keep_alive, call).await;
        result.map(Into::into).ok_or_else(unknown)
    }
}

/// Shows whoever asked for it that a call goes on. In the protocol of 2026-07-28 an answer has not even begun before
/// that; in the earlier ones it has, and is kept alive by comments too.
async fn with_progress<T>(
    context: &RequestContext<RoleServer>,
    every: Duration,
    call: impl Future<Output = T>,
) -> T {
    let Some(token) = context.meta.get_progress_token() else { return call.await };
    let mut call = std::pin::pin!(call);
    let mut progress = 0.0;
    loop {
        tokio::select! {
            result = &mut call => return result,
            () = tokio::time::sleep(every) => {
                progress += 1.0;
                // It fails when the client is gone; the call goes on to its end all the same.
                let _ = context.peer.notify_progress(ProgressNotificationParam::new(token.clone(), progress)).await;
            }
        }
    }
}

// === what every tool does ===

/// The arguments, or what the model is told of them. `takes` is a sentence without its stop.
fn read<T: DeserializeOwned>(arguments: JsonObject, takes: &str) -> Result<T, CallToolResult> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        declined(format!("Nothing was done: {error}. {takes}. Call it again with that alone."))
    })
}

fn said(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text.into())])
}

fn declined(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text.into())])
}

fn already_ended(outcome: &str) -> CallToolResult {
    said(format!("The process is {outcome} already; this call changed nothing. End your turn now."))
}

fn unavailable(why: &str) -> CallToolResult {
    declined(format!("Nothing was recorded: {why}. Call it again."))
}
