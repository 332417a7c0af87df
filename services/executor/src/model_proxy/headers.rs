//! Which headers pass between a harness and the provider. Lists of what may pass, since a credential or a header of
//! the connection must not pass because nobody thought of it.

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Where the providers' own clients put the key.
pub(crate) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

const TO_PROVIDER: [HeaderName; 3] = [ACCEPT, CONTENT_TYPE, USER_AGENT];
const TO_PROVIDER_TOO: [&str; 3] = ["anthropic-beta", "anthropic-version", "x-app"];
const TO_PROVIDER_BEGIN: [&str; 2] = ["x-claude-code-", "x-stainless-"];

const TO_CLIENT: [HeaderName; 3] = [CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER];
const TO_CLIENT_TOO: [&str; 2] = ["request-id", "x-should-retry"];
const TO_CLIENT_BEGIN: [&str; 1] = ["anthropic-ratelimit-"];

/// The headers of a request as the provider gets them.
pub(super) fn to_provider(given: &HeaderMap, key: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = passed(given, &TO_PROVIDER, &TO_PROVIDER_TOO, &TO_PROVIDER_BEGIN);
    // The bytes are forwarded as they come, and are to be readable on the way.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    // The length of the body, which is streamed: without it the provider would be sent chunks.
    if let Some(length) = given.get(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, length.clone());
    }
    if let Some(key) = key {
        headers.insert(API_KEY, key.clone());
    }
    headers
}

/// The headers of an answer as the harness gets them.
pub(super) fn to_client(given: &HeaderMap) -> HeaderMap {
    passed(given, &TO_CLIENT, &TO_CLIENT_TOO, &TO_CLIENT_BEGIN)
}

fn passed(given: &HeaderMap, names: &[HeaderName], more: &[&str], beginnings: &[&str]) -> HeaderMap {
    let passes = |name: &HeaderName| {
        names.contains(name)
            || more.contains(&name.as_str())
            || beginnings.iter().any(|beginning| name.as_str().starts_with(beginning))
    };
    let chosen = given.iter().filter(|(name, _)| passes(name));
    chosen.fold(HeaderMap::new(), |mut headers, (name, value)| {
        headers.append(name, value.clone());
        headers
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers<const N: usize>(pairs: [(&'static str, &'static str); N]) -> HeaderMap {
        let pair = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        pairs.map(pair).into_iter().collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn no_credential_and_nothing_of_the_connection_goes_to_the_provider() {
        let given = headers([
            ("accept", "application/json"),
            ("accept-encoding", "gzip, br"),
            ("anthropic-beta", "a,b"),
            ("anthropic-version", "2023-06-01"),
            ("authorization", "Bearer segment"),
            ("connection", "keep-alive"),
            ("content-length", "12"),
            ("content-type", "application/json"),
            ("cookie", "a=b"),
            ("forwarded", "for=1.2.3.4"),
            ("host", "127.0.0.1:18080"),
            ("proxy-authorization", "Basic x"),
            ("traceparent", "00-1-2-01"),
            ("transfer-encoding", "chunked"),
            ("user-agent", "claude-cli"),
            ("x-api-key", "segment"),
            ("x-app", "cli"),
            ("x-claude-code-session-id", "s"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-stainless-lang", "js"),
        ]);
        let key = HeaderValue::from_static("the-provider-key");
        let sent = to_provider(&given, Some(&key));
        let expected = [
            "accept",
            "accept-encoding",
            "anthropic-beta",
            "anthropic-version",
            "content-length",
            "content-type",
            "user-agent",
            "x-api-key",
            "x-app",
            "x-claude-code-session-id",
            "x-stainless-lang",
        ];
        assert_eq!(names(&sent), expected);
        assert_eq!((&sent[API_KEY], &sent[ACCEPT_ENCODING]), (&key, &HeaderValue::from_static("identity")));
        assert!(!to_provider(&given, None).contains_key(API_KEY), "without a key of ours there is none");
    }

    #[test]
    fn the_harness_gets_what_it_decides_by() {
        let given = headers([
            ("anthropic-organization-id", "org"),
            ("anthropic-ratelimit-tokens-remaining", "5"),
            ("connection", "close"),
            ("content-length", "12"),
            ("content-type", "text/event-stream"),
            ("location", "https://elsewhere.example"),
            ("request-id", "req_1"),
            ("retry-after", "3"),
            ("set-cookie", "a=b"),
            ("x-should-retry", "false"),
        ]);
        let expected = [
            "anthropic-ratelimit-tokens-remaining",
            "content-type",
            "request-id",
            "retry-after",
            "x-should-retry",
        ];
        assert_eq!(names(&to_client(&given)), expected);
    }

    #[test]
    fn a_header_given_twice_stays_twice() {
        let mut given = headers([("anthropic-beta", "a")]);
        given.append("anthropic-beta", HeaderValue::from_static("b"));
        assert_eq!(to_provider(&given, None).get_all("anthropic-beta").iter().count(), 2);
    }
}
