//! The names of spans and fields: one name for one thing, in every role. `tracing` takes them as
//! `info_span!("steer", { names::PROCESS } = %id)`. Where OpenTelemetry has a convention its name is used; those
//! conventions are still in development, so this is the only file to change with them.

// Who and what, in the words of the glossary.
pub const ORG: &str = "org";
pub const AGENT: &str = "agent";
pub const CONVERSATION: &str = "conversation";
pub const PROCESS: &str = "process";
pub const SEGMENT: &str = "segment";
pub const EPOCH: &str = "epoch";
pub const EXECUTOR: &str = "executor";
pub const WAIT: &str = "wait";
pub const MESSAGE: &str = "message_id";
/// The sequence of an input in its record.
pub const INPUT: &str = "input";
/// The number of a segment's report.
pub const REPORT: &str = "report";
pub const REASON: &str = "reason";
pub const ERROR: &str = "error";
pub const DURATION_MS: &str = "duration_ms";

// What happens to a process, as the message of the event that tells it.
pub const PROCESS_START: &str = "process.start";
pub const PROCESS_PARK: &str = "process.park";
pub const PROCESS_WAKE: &str = "process.wake";
pub const PROCESS_CRASH: &str = "process.crash";
pub const PROCESS_FINISH: &str = "process.finish";

// Who speaks.
pub const SERVICE_NAMESPACE: &str = "service.namespace";
pub const SERVICE_INSTANCE_ID: &str = "service.instance.id";

// Messaging. A span is named `<operation> <destination template>`; no id becomes part of a span's name.
pub const MESSAGING_SYSTEM: &str = "messaging.system";
pub const MESSAGING_SYSTEM_NATS: &str = "nats";
pub const MESSAGING_OPERATION: &str = "messaging.operation.name";
pub const MESSAGING_DESTINATION_TEMPLATE: &str = "messaging.destination.template";
pub const MESSAGING_CONVERSATION_ID: &str = "messaging.message.conversation_id";

// Models and tools.
pub const GEN_AI_OPERATION: &str = "gen_ai.operation.name";
pub const GEN_AI_INVOKE_AGENT: &str = "invoke_agent";
pub const GEN_AI_EXECUTE_TOOL: &str = "execute_tool";
pub const GEN_AI_CONVERSATION_ID: &str = "gen_ai.conversation.id";
pub const GEN_AI_REQUEST_MODEL: &str = "gen_ai.request.model";
pub const GEN_AI_TOOL_NAME: &str = "gen_ai.tool.name";
pub const GEN_AI_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub const GEN_AI_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";

// HTTP.
pub const HTTP_METHOD: &str = "http.request.method";
pub const HTTP_ROUTE: &str = "http.route";
pub const HTTP_STATUS: &str = "http.response.status_code";

/// What a trace is carried in, in HTTP and in messages alike.
pub const TRACEPARENT: &str = "traceparent";
