//! Where a client that comes back goes on: behind the last event it has.

use axum::http::HeaderMap;
use serde::Deserialize;

use crate::problem::Problem;

/// `?after=…`, for clients that cannot send a header.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ResumeParams {
    pub after: Option<String>,
}

impl ResumeParams {
    /// The id of the last event that the client has; `None` where it comes for the first time. The header is what a
    /// browser sends by itself, so it is the newer one of the two.
    pub fn last_seen(&self, headers: &HeaderMap) -> Result<Option<u64>, Problem> {
        let header = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("unreadable"));
        let (name, text) = match (header, &self.after) {
            (Some(text), _) => ("Last-Event-ID", text),
            (None, Some(text)) => ("after", text.as_str()),
            (None, None) => return Ok(None),
        };
        text.parse().map(Some).map_err(|_| Problem::Malformed {
            field: Some(name.into()),
            why: format!("{name} is none of ours; pass the id of an event on as it was given"),
        })
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn last_seen(header: Option<&'static str>, after: Option<&str>) -> Result<Option<u64>, Problem> {
        let headers = header.map(|value| ("last-event-id".parse().unwrap(), HeaderValue::from_static(value)));
        ResumeParams { after: after.map(Into::into) }.last_seen(&headers.into_iter().collect())
    }

    #[test]
    fn the_header_wins_over_the_address() {
        assert_eq!(last_seen(None, None), Ok(None));
        assert_eq!(last_seen(None, Some("4")), Ok(Some(4)));
        assert_eq!(last_seen(Some("5"), Some("4")), Ok(Some(5)));
        for (header, after) in
            [(Some("x"), None), (None, Some("-1")), (Some("99999999999999999999999"), None)]
        {
            assert!(matches!(last_seen(header, after), Err(Problem::Malformed { field: Some(_), .. })));
        }
    }
}
