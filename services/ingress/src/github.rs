//! What GitHub tells, as events of pull requests. Pure. Text from there is shortened and goes on as data.

use contract::messages::event::EventEntry;
use domain::Timestamp;
use domain::policy::EVENT_TEXT_MAX;
use domain::process::{EventKey, GITHUB_KINDS};
use serde_json::Value;

/// A name or title that is shown, in characters.
const SHOWN_MAX: usize = 200;

/// Pull requests that one event may be about. A commit is the head of a handful at most.
const PULLS_MAX: usize = 16;

/// What one delivery comes to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    pub(crate) repo: String,
    /// The pull requests it is about; for a check none where GitHub does not name them.
    pub(crate) numbers: Vec<u64>,
    /// The head that it saw: of its pull request, or the commit that was checked.
    pub(crate) commit: Option<String>,
    entry: EventEntry,
}

// === impl Told ===

impl Told {
    /// `None` where the event is about no pull request, or of a kind that nobody can wait for.
    pub(crate) fn read(event: &str, payload: &Value, app: Option<&str>, at: Timestamp) -> Option<Self> {
        GITHUB_KINDS.iter().find(|(name, _)| *name == event)?;
        let repo = text(&payload["repository"]["full_name"])?.to_owned();
        let action = text(&payload["action"]).unwrap_or_default();
        let subject = &payload[subject_of(event)];
        // A comment on an issue that is no pull request.
        if event == "issue_comment" && payload["issue"]["pull_request"].is_null() {
            return None;
        }
        let numbers = numbers(event, payload);
        let pull = ["pull_request", "issue"].map(|name| &payload[name]);
        let title = pull.into_iter().find_map(|of| text(&of["title"])).map(|title| cut(title, SHOWN_MAX));
        let author = text(&subject["user"]["login"]).or_else(|| text(&payload["sender"]["login"]));
        let sender = text(&payload["sender"]["login"]);
        let own = app.is_some_and(|app| sender.is_some_and(|sender| sender.eq_ignore_ascii_case(app)));
        let entry = EventEntry {
            at,
            key: EventKey::Github { repo: repo.clone(), number: 0 },
            kind: format!("{event}.{}", cut(action, SHOWN_MAX)),
            own,
            summary: summary(event, action, payload, title.as_deref()),
            url: text(&subject["html_url"])
                .filter(|url| url.starts_with("https://"))
                .map(|url| cut(url, 500)),
            author: author.map(|author| cut(author, SHOWN_MAX)),
            association: text(&subject["author_association"]).map(|text| cut(text, SHOWN_MAX)),
            text: text(&subject["body"]).filter(|_| speaks(event)).map(|body| cut(body, EVENT_TEXT_MAX)),
        };
        let commit = [&payload["pull_request"]["head"]["sha"], &subject["head_sha"]];
        let commit = commit.into_iter().find_map(text).map(str::to_owned);
        Some(Self { repo, numbers, commit, entry })
    }

    /// Whether it says which commit is the head of its pull request.
    pub(crate) fn names_head(&self) -> bool {
        self.entry.kind.starts_with("pull_request")
    }

    /// The event of one pull request.
    pub(crate) fn of(&self, number: u64) -> EventEntry {
        EventEntry { key: EventKey::Github { repo: self.repo.clone(), number }, ..self.entry.clone() }
    }
}

/// Where the payload has what the event is about.
fn subject_of(event: &str) -> &'static str {
    match event {
        "pull_request_review" => "review",
        "pull_request_review_comment" | "issue_comment" => "comment",
        "check_suite" => "check_suite",
        "check_run" => "check_run",
        "workflow_run" => "workflow_run",
        _ => "pull_request",
    }
}

/// Whether the body of its subject is something that somebody says now.
fn speaks(event: &str) -> bool {
    matches!(event, "pull_request_review" | "pull_request_review_comment" | "issue_comment")
}

fn numbers(event: &str, payload: &Value) -> Vec<u64> {
    let one = match event {
        "issue_comment" => payload["issue"]["number"].as_u64(),
        _ => payload["pull_request"]["number"].as_u64().or_else(|| payload["number"].as_u64()),
    };
    let listed = payload[subject_of(event)]["pull_requests"].as_array().into_iter().flatten();
    let mut numbers: Vec<_> =
        one.into_iter().chain(listed.filter_map(|pull| pull["number"].as_u64())).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.truncate(PULLS_MAX);
    numbers
}

/// One sentence of ours; what comes from outside in it is a name or a state.
fn summary(event: &str, action: &str, payload: &Value, title: Option<&str>) -> String {
    let of = title.map(|title| format!(" ({title:?})")).unwrap_or_default();
    let state = |value: &Value| text(value).map_or_else(|| "unknown".to_owned(), |text| cut(text, 40));
    match (event, action) {
        ("pull_request", "closed") if payload["pull_request"]["merged"] == Value::Bool(true) => {
            format!("The pull request{of} was merged.")
        }
        ("pull_request", "closed") => format!("The pull request{of} was closed without a merge."),
        ("pull_request_review", "submitted") => {
            format!("A review of the pull request{of} was submitted: {}.", state(&payload["review"]["state"]))
        }
        ("issue_comment", "created") => format!("A comment on the pull request{of} was created."),
        ("check_suite" | "check_run" | "workflow_run", "completed") => {
            let subject = &payload[subject_of(event)];
            let name = [&subject["name"], &subject["app"]["name"]].into_iter().find_map(text);
            let name = name.map(|name| format!(" {:?}", cut(name, SHOWN_MAX))).unwrap_or_default();
            format!("The {event}{name} was completed: {}.", state(&subject["conclusion"]))
        }
        _ => format!("{event} of the pull request{of}: {}.", cut(action, 40)),
    }
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(event: &str, payload: &Value) -> Option<Told> {
        Told::read(event, payload, Some("our-app[bot]"), Timestamp::EPOCH)
    }

    fn payload(extra: &Value) -> Value {
        let mut payload =
            json!({ "repository": { "full_name": "owner/na.me" }, "sender": { "login": "someone" } });
        for (name, value) in extra.as_object().cloned().unwrap_or_default() {
            payload[name] = value;
        }
        payload
    }

    #[test]
    fn a_merge_and_a_close_are_told_apart() {
        let pull = |merged| {
            json!({ "number": 7, "title": "Mend it", "merged": merged, "head": { "sha": "abc" },
            "html_url": "https://github.com/owner/na.me/pull/7", "user": { "login": "author" }, "author_association": "MEMBER" })
        };
        let merged = payload(&json!({ "action": "closed", "number": 7, "pull_request": pull(true) }));
        let told = read("pull_request", &merged).unwrap();
        assert_eq!((told.numbers.as_slice(), told.commit.as_deref()), (&[7][..], Some("abc")));
        let event = told.of(7);
        assert_eq!(event.key, EventKey::Github { repo: "owner/na.me".into(), number: 7 });
        assert_eq!(event.kind, "pull_request.closed");
        assert!(event.summary.contains("was merged") && event.text.is_none(), "{event:?}");
        let closed = payload(&json!({ "action": "closed", "pull_request": pull(false) }));
        assert!(read("pull_request", &closed).unwrap().of(7).summary.contains("without a merge"));
    }

    #[test]
    fn what_an_outsider_says_is_cut_and_named() {
        let comment = json!({ "body": "x".repeat(5_000), "user": { "login": "mallory" }, "author_association": "NONE",
            "html_url": "javascript:alert(1)" });
        let issue = json!({ "number": 9, "title": "t", "pull_request": {} });
        let told = read(
            "issue_comment",
            &payload(&json!({ "action": "created", "issue": issue, "comment": comment })),
        );
        let event = told.unwrap().of(9);
        assert_eq!(event.text.unwrap().chars().count(), EVENT_TEXT_MAX + 1);
        assert_eq!((event.author.as_deref(), event.association.as_deref()), (Some("mallory"), Some("NONE")));
        assert_eq!(event.url, None, "no address but a web page's");
        let plain = payload(&json!({ "action": "created", "issue": { "number": 9 }, "comment": {} }));
        assert_eq!(read("issue_comment", &plain), None, "an issue is no pull request");
    }

    #[test]
    fn a_check_names_its_pull_requests_or_its_commit() {
        let suite = |pulls: Value| {
            payload(&json!({ "action": "completed", "check_suite": {
                "head_sha": "abc", "conclusion": "success", "app": { "name": "CI" }, "pull_requests": pulls } }))
        };
        let named =
            read("check_suite", &suite(json!([{ "number": 3 }, { "number": 2 }, { "number": 3 }]))).unwrap();
        assert_eq!(named.numbers, [2, 3]);
        let forked = read("check_suite", &suite(json!([]))).unwrap();
        assert_eq!((forked.numbers.len(), forked.commit.as_deref()), (0, Some("abc")));
        assert!(forked.of(3).summary.contains("\"CI\" was completed: success"), "{:?}", forked.of(3));
        assert!(!forked.names_head());
    }

    #[test]
    fn our_own_doings_are_marked_and_the_rest_of_the_world_is_left_out() {
        let mut own = payload(
            &json!({ "action": "submitted", "pull_request": { "number": 1 }, "review": { "state": "approved" } }),
        );
        own["sender"]["login"] = "our-app[bot]".into();
        assert!(read("pull_request_review", &own).unwrap().of(1).own);
        assert_eq!(read("star", &payload(&json!({ "action": "created" }))), None);
        assert_eq!(read("pull_request", &json!({ "action": "closed", "number": 1 })), None, "no repository");
    }
}
