//! Lists by cursor. A cursor is opaque to clients: it is the sort value and the name of the last item given.

use serde::{Deserialize, Serialize};

use crate::problem::Problem;

/// Items in one answer, and how many when nothing is said.
const LIMIT_MAX: usize = 200;
const LIMIT_DEFAULT: usize = 50;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct List<T> {
    pub items: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `?limit=…&cursor=…`
#[derive(Debug, Clone, Default, Deserialize)]
pub struct PageParams {
    pub limit: Option<String>,
    pub cursor: Option<String>,
}

/// The same where a misspelt parameter is to be noticed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrictPageParams {
    limit: Option<String>,
    cursor: Option<String>,
}

impl From<StrictPageParams> for PageParams {
    fn from(StrictPageParams { limit, cursor }: StrictPageParams) -> Self {
        Self { limit, cursor }
    }
}

impl PageParams {
    /// The page of all `items`, newest first. `place` gives an item's time in milliseconds and its id, which together
    /// are its place.
    pub fn page<T>(
        &self,
        mut items: Vec<T>,
        place: impl Fn(&T) -> (i64, String),
    ) -> Result<List<T>, Problem> {
        let limit = self.limit()?;
        items.sort_by_cached_key(|item| std::cmp::Reverse(place(item)));
        if let Some(cursor) = &self.cursor {
            let after = parse(cursor).ok_or_else(|| {
                Problem::invalid("cursor", "the cursor is none of ours; pass next_cursor on as it was given")
            })?;
            items.retain(|item| place(item) < after);
        }
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = items.last().filter(|_| more).map(|last| {
            let (at, id) = place(last);
            format!("{at}-{id}")
        });
        Ok(List { items, next_cursor })
    }

    fn limit(&self) -> Result<usize, Problem> {
        let Some(text) = &self.limit else { return Ok(LIMIT_DEFAULT) };
        text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit)).ok_or_else(|| {
            Problem::invalid("limit", format!("limit is {text:?}; a number from 1 to {LIMIT_MAX} is allowed"))
        })
    }
}

fn parse(cursor: &str) -> Option<(i64, String)> {
    let (at, id) = cursor.split_once('-')?;
    Some((at.parse().ok()?, id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(item: &(i64, u32)) -> (i64, String) {
        (item.0, format!("{:03}", item.1))
    }

    #[test]
    fn the_pages_together_are_the_list() {
        let items: Vec<(i64, u32)> = (0..23).map(|n| (i64::from(n / 4), n)).collect();
        let mut params = PageParams { limit: Some("5".into()), cursor: None };
        let mut seen = Vec::new();
        for _ in 0..10 {
            let page = params.page(items.clone(), place).unwrap();
            seen.extend(page.items);
            match page.next_cursor {
                Some(cursor) => params.cursor = Some(cursor),
                None => break,
            }
        }
        let newest_first: Vec<_> = items.into_iter().rev().collect();
        assert_eq!(seen, newest_first);
    }

    #[test]
    fn a_bad_limit_or_cursor_is_named() {
        for (limit, cursor, field) in [
            (Some("0"), None, "limit"),
            (Some("201"), None, "limit"),
            (Some("x"), None, "limit"),
            (None, Some("x"), "cursor"),
        ] {
            let params = PageParams { limit: limit.map(Into::into), cursor: cursor.map(Into::into) };
            match params.page(vec![(1, 1)], place) {
                Err(Problem::Invalid { field: found, .. }) => assert_eq!(found, field),
                other => panic!("{other:?}"),
            }
        }
    }
}
