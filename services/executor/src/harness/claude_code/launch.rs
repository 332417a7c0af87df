//! How Claude Code is started: its arguments, its whole environment, and the tool server it is pointed at. Pure.

use std::collections::BTreeMap;
use std::ffi::OsString;

use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use uuid::Uuid;

use crate::sandbox::{Launch, inside};
use crate::tools;

/// A call of ours may wait for a person's eye or a child process; the harness's own default is one minute.
const TOOL_TIMEOUT_MS: u32 = 600_000;
/// Tools that would compete with ours (waiting, schedules, questions) or leave the tree.
const DISALLOWED_TOOLS: &str =
    "CronCreate,CronDelete,CronList,ScheduleWakeup,AskUserQuestion,EnterWorktree,ExitWorktree,Workflow";
/// Everything that would call home, update itself or ask for feedback.
const SWITCHED_OFF: [(&str, &str); 12] = [
    ("DISABLE_TELEMETRY", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_GROWTHBOOK", "1"),
    ("DISABLE_BUG_COMMAND", "1"),
    ("DISABLE_FEEDBACK_COMMAND", "1"),
    ("DISABLE_INSTALLATION_CHECKS", "1"),
    ("DISABLE_UPGRADE_COMMAND", "1"),
    ("CLAUDE_CODE_DISABLE_FEEDBACK_SURVEY", "1"),
    ("CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL", "1"),
    ("ENABLE_CLAUDEAI_MCP_SERVERS", "false"),
];

/// What differs between starts.
#[derive(Debug, Clone)]
pub struct LaunchSpec {
    pub session: Session,
    /// The harness's own default where none is named.
    pub model: Option<String>,
    /// The segment's credential, for model calls and tools alike.
    pub token: SecretString,
}

/// The harness session a segment works in. Starting an existing one anew, or resuming one that is not there, ends
/// the harness with code 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    New(Uuid),
    Resume(Uuid),
}

/// Arguments and environment of one start inside the sandbox.
pub fn launch(spec: &LaunchSpec) -> Launch {
    Launch { args: args(spec), env: env(spec) }
}

/// The tool server's configuration. It names the token's variable, not the token.
pub fn mcp_json() -> String {
    let server = json!({
        "type": "http",
        "url": format!("{}/mcp", inside::BASE_URL),
        "headers": {"Authorization": "Bearer ${RESIDENT_TOKEN}"},
        "timeout": TOOL_TIMEOUT_MS,
        "alwaysLoad": true,
    });
    json!({"mcpServers": {tools::SERVER: server}}).to_string()
}

fn args(spec: &LaunchSpec) -> Vec<OsString> {
    let mut args: Vec<OsString> = [
        "-p",
        "--input-format",
        "stream-json",
        "--output-format",
        "stream-json",
        "--verbose",
        "--include-partial-messages",
        "--replay-user-messages",
        // The sandbox is the permission; gated commands are decided by hooks.
        "--dangerously-skip-permissions",
        "--strict-mcp-config",
        "--disallowedTools",
        DISALLOWED_TOOLS,
    ]
    .map(OsString::from)
    .into();
    args.extend(["--append-system-prompt-file".into(), inside::prompt().into()]);
    args.extend(["--mcp-config".into(), inside::mcp().into()]);
    let (flag, session) = match spec.session {
        Session::New(id) => ("--session-id", id),
        Session::Resume(id) => ("--resume", id),
    };
    args.extend([flag.into(), session.to_string().into()]);
    if let Some(model) = &spec.model {
        args.extend(["--model".into(), model.into()]);
    }
    args
}

fn env(spec: &LaunchSpec) -> BTreeMap<String, String> {
    let token = spec.token.expose_secret();
    let tool_timeout = TOOL_TIMEOUT_MS.to_string();
    let path = format!("{}/bin:/usr/local/bin:/usr/bin:/bin", inside::PACKAGES);
    let config = format!("{}/.claude", inside::HOME);
    let ours = [
        ("HOME", inside::HOME),
        ("TMPDIR", inside::TMP),
        ("PATH", &path),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        ("PYTHONUSERBASE", inside::PACKAGES),
        ("NPM_CONFIG_PREFIX", inside::PACKAGES),
        ("CLAUDE_CONFIG_DIR", &config),
        // Output of background commands must survive the segment; /tmp does not.
        ("CLAUDE_CODE_TMPDIR", inside::TMP),
        // Without it there is no sign of idle.
        ("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1"),
        ("MCP_TOOL_TIMEOUT", &tool_timeout),
        ("ANTHROPIC_BASE_URL", inside::BASE_URL),
        ("ANTHROPIC_AUTH_TOKEN", token),
        ("RESIDENT_TOKEN", token),
    ];
    ours.into_iter().chain(SWITCHED_OFF).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(session: Session) -> LaunchSpec {
        LaunchSpec { session, model: None, token: "the-token".to_owned().into() }
    }

    fn words(spec: &LaunchSpec) -> Vec<String> {
        launch(spec).args.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn a_session_is_new_or_resumed_never_both() {
        let id = Uuid::from_u128(7);
        for (session, flag, other) in [
            (Session::New(id), "--session-id", "--resume"),
            (Session::Resume(id), "--resume", "--session-id"),
        ] {
            let words = words(&spec(session));
            let at = words.iter().position(|word| word == flag).unwrap();
            assert_eq!(words[at + 1], id.to_string());
            assert!(!words.iter().any(|word| word == other));
        }
    }

    #[test]
    fn a_model_is_passed_only_when_named() {
        let mut spec = spec(Session::New(Uuid::nil()));
        assert!(!words(&spec).contains(&"--model".to_owned()));
        spec.model = Some("some-model".to_owned());
        assert!(words(&spec).ends_with(&["--model".to_owned(), "some-model".to_owned()]));
    }

    #[test]
    fn the_token_is_only_where_it_must_be() {
        let launch = launch(&spec(Session::New(Uuid::nil())));
        let holders: Vec<&str> = launch
            .env
            .iter()
            .filter(|(_, value)| *value == "the-token")
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(holders, ["ANTHROPIC_AUTH_TOKEN", "RESIDENT_TOKEN"]);
        assert!(!format!("{:?}", launch.args).contains("the-token"));
        assert!(!mcp_json().contains("the-token"));
        assert!(!format!("{:?}", spec(Session::New(Uuid::nil()))).contains("the-token"));
    }

    #[test]
    fn the_tool_server_is_reached_through_the_shim() {
        let config: serde_json::Value = serde_json::from_str(&mcp_json()).unwrap();
        assert_eq!(config["mcpServers"]["xpander"]["url"], "http://127.0.0.1:18080/mcp");
        assert_eq!(config["mcpServers"]["xpander"]["headers"]["Authorization"], "Bearer ${RESIDENT_TOKEN}");
    }
}
