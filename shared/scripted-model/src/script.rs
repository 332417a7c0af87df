//! What is answered to what: steps used once, then a responder, then the default. Pure; the server asks.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::demo::DemoModel;
use crate::reply::Reply;
use crate::request::{AgentKind, RequestView};
use crate::seen::AnsweredBy;

/// An ordered list of steps. Written as JSON it can be handed to another program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    #[serde(default)]
    pub steps: Vec<Step>,
    /// What is answered when no step matches.
    #[serde(default = "ok")]
    pub default: Reply,
}

/// The first unused step that matches a request answers it, once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub id: String,
    #[serde(default)]
    pub when: When,
    pub reply: Reply,
}

/// All that is given must hold. Nothing given: any request of the main agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    pub agent: AgentKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Stands in the last text of a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_tool_result: Option<String>,
    /// Stands anywhere in the conversation or the system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
}

/// The scenario is not one.
#[derive(Debug, thiserror::Error)]
#[error("the scenario could not be read; it is a JSON object with `steps` and, if wanted, `default`")]
pub struct ScenarioError(#[source] serde_json::Error);

/// Answers from code. `None` leaves the request to the default. It is asked one request at a time, so it must neither
/// wait nor use the server's handle.
pub trait Responder: Send + Sync {
    fn respond(&self, request: &RequestView) -> Option<Reply>;
}

/// Everything a server needs to answer.
#[derive(Clone)]
pub struct Script {
    steps: VecDeque<Step>,
    responder: Option<Arc<dyn Responder>>,
    default: Reply,
}

fn ok() -> Reply {
    Reply::text("ok")
}

// === impl Scenario ===

impl Scenario {
    pub fn from_json(text: &str) -> Result<Self, ScenarioError> {
        serde_json::from_str(text).map_err(ScenarioError)
    }
}

// === impl Step ===

impl Step {
    pub fn new(id: impl Into<String>, reply: Reply) -> Self {
        Self { id: id.into(), when: When::default(), reply }
    }

    #[must_use]
    pub fn when(self, when: When) -> Self {
        Self { when, ..self }
    }
}

// === impl When ===

impl Default for When {
    fn default() -> Self {
        Self {
            agent: AgentKind::Main,
            session: None,
            last_user: None,
            last_tool_result: None,
            contains: None,
        }
    }
}

impl When {
    pub fn last_user(text: impl Into<String>) -> Self {
        Self { last_user: Some(text.into()), ..Self::default() }
    }

    pub fn last_tool_result(text: impl Into<String>) -> Self {
        Self { last_tool_result: Some(text.into()), ..Self::default() }
    }

    pub fn session(session: impl Into<String>) -> Self {
        Self { session: Some(session.into()), ..Self::default() }
    }

    pub fn agent(agent: AgentKind) -> Self {
        Self { agent, ..Self::default() }
    }

    pub fn matches(&self, request: &RequestView) -> bool {
        let has = |wanted: &Option<String>, text: Option<&str>| {
            wanted.as_ref().is_none_or(|wanted| text.is_some_and(|text| text.contains(wanted)))
        };
        self.agent == request.agent
            && (self.session.is_none() || self.session == request.session)
            && has(&self.last_user, request.last_user())
            && has(&self.last_tool_result, request.last_tool_result())
            && self.contains.as_ref().is_none_or(|wanted| request.contains(wanted))
    }
}

// === impl Script ===

impl Script {
    pub fn new() -> Self {
        Self::default()
    }

    /// The demo model, for as many conversations as come.
    pub fn demo() -> Self {
        Self::from_responder(DemoModel)
    }

    pub fn from_responder(responder: impl Responder + 'static) -> Self {
        Self { responder: Some(Arc::new(responder)), ..Self::default() }
    }

    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.push(step);
        self
    }

    #[must_use]
    pub fn default_reply(self, default: Reply) -> Self {
        Self { default, ..self }
    }

    pub(crate) fn push(&mut self, step: Step) {
        self.steps.push_back(step);
    }

    pub(crate) fn unused(&self) -> Vec<String> {
        self.steps.iter().map(|step| step.id.clone()).collect()
    }

    /// The reply to a request, and whose it is. A step that is chosen is gone.
    pub(crate) fn answer(&mut self, request: &RequestView) -> (AnsweredBy, Reply) {
        let chosen = self.steps.iter().position(|step| step.when.matches(request));
        if let Some(step) = chosen.and_then(|at| self.steps.remove(at)) {
            return (AnsweredBy::Step(step.id), step.reply);
        }
        let responded = self.responder.as_ref().and_then(|responder| responder.respond(request));
        match responded {
            Some(reply) => (AnsweredBy::Responder, reply),
            None => (AnsweredBy::Default, self.default.clone()),
        }
    }
}

impl Default for Script {
    fn default() -> Self {
        Self { steps: VecDeque::new(), responder: None, default: ok() }
    }
}

impl From<Scenario> for Script {
    fn from(scenario: Scenario) -> Self {
        Self { steps: scenario.steps.into(), responder: None, default: scenario.default }
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("unused", &self.unused()).finish_non_exhaustive()
    }
}

impl<F> Responder for F
where
    F: Fn(&RequestView) -> Option<Reply> + Send + Sync,
{
    fn respond(&self, request: &RequestView) -> Option<Reply> {
        self(request)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use serde_json::json;

    use super::*;
    use crate::wire::Wire;

    fn request(session: &'static str, agent: Option<&'static str>, user: &str) -> RequestView {
        let mut headers = HeaderMap::new();
        headers.insert("x-claude-code-session-id", session.parse().unwrap());
        if let Some(agent) = agent {
            headers.insert("x-claude-code-agent-id", agent.parse().unwrap());
        }
        let body = json!({"model": "m", "messages": [{"role": "user", "content": user}]});
        Wire::AnthropicMessages.read(1, headers, body.to_string().into()).unwrap()
    }

    fn by(script: &mut Script, request: &RequestView) -> AnsweredBy {
        script.answer(request).0
    }

    #[test]
    fn the_first_unused_step_that_matches_answers_once() {
        let mut script = Script::new()
            .step(Step::new("other", Reply::text("x")).when(When::last_user("nothing of it")))
            .step(Step::new("one", Reply::text("1")))
            .step(Step::new("two", Reply::text("2")));
        let go = request("s", None, "go");
        assert_eq!(by(&mut script, &go), AnsweredBy::Step("one".into()));
        assert_eq!(by(&mut script, &go), AnsweredBy::Step("two".into()));
        assert_eq!(by(&mut script, &go), AnsweredBy::Default);
        assert_eq!(script.unused(), ["other"]);
    }

    #[test]
    fn a_step_without_a_condition_is_not_used_up_by_a_sub_agent_or_a_compaction() {
        let mut script = Script::new().step(Step::new("main", Reply::text("1")));
        assert_eq!(by(&mut script, &request("s", Some("a1"), "go")), AnsweredBy::Default);
        let compaction = request("s", None, "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.");
        assert_eq!(by(&mut script, &compaction), AnsweredBy::Default);
        assert_eq!(by(&mut script, &request("s", None, "go")), AnsweredBy::Step("main".into()));
    }

    #[test]
    fn conversations_are_told_apart_by_their_session() {
        let mut script = Script::new().step(Step::new("b", Reply::text("1")).when(When::session("b")));
        assert_eq!(by(&mut script, &request("a", None, "go")), AnsweredBy::Default);
        assert_eq!(by(&mut script, &request("b", None, "go")), AnsweredBy::Step("b".into()));
    }

    #[test]
    fn a_responder_comes_after_the_steps_and_before_the_default() {
        let responder =
            |request: &RequestView| (request.last_user()? == "go").then(|| Reply::text("from code"));
        let mut script = Script::from_responder(responder).step(Step::new("one", Reply::text("1")));
        assert_eq!(by(&mut script, &request("s", None, "go")), AnsweredBy::Step("one".into()));
        assert_eq!(by(&mut script, &request("s", None, "go")), AnsweredBy::Responder);
        assert_eq!(by(&mut script, &request("s", None, "stay")), AnsweredBy::Default);
    }

    #[test]
    fn a_scenario_is_read_from_json() {
        let scenario = Scenario::from_json(
            r#"{"steps": [
                {"id": "s1", "when": {"agent": "sub", "contains": "report"}, "reply": {"text": "r", "delay_ms": 200}},
                {"id": "hang", "reply": {"text": "partial", "hold": "gate"}},
                {"id": "budget", "reply": {"fail": {"status": 402, "message": "stopped",
                                                    "headers": {"x-should-retry": "false"}}}}]}"#,
        )
        .unwrap();
        assert_eq!(scenario.default, Reply::text("ok"));
        assert_eq!(scenario.steps[0].when.agent, AgentKind::Sub);
        assert_eq!(scenario.steps[1].reply, Reply::text("partial").held("gate"));
        assert_eq!(
            scenario.steps[2].reply,
            Reply::fail(402, "stopped").with_header("x-should-retry", "false")
        );
        assert!(Scenario::from_json(r#"{"steps": [{"id": "x"}]}"#).is_err(), "a step needs a reply");
    }
}
