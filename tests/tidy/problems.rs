//! Every kind of problem has a page in docs/errors, and every page a kind. The type of a problem is the page's address,
//! so a missing page is a dead link in a client's hands.

use std::collections::BTreeSet;

use crate::tree::{files, none, read};

/// The one place that says what each kind is called.
const KINDS: &str = "shared/api/src/problem.rs";

const PAGES: &str = "docs/errors/";

#[test]
fn every_kind_of_problem_has_a_page_and_every_page_a_kind() {
    let slugs = slugs();
    let pages: BTreeSet<_> = files()
        .iter()
        .filter_map(|file| file.strip_prefix(PAGES)?.strip_suffix(".md"))
        .map(str::to_owned)
        .collect();
    let missing = slugs.difference(&pages).map(|slug| format!("{PAGES}{slug}.md is missing; write it"));
    let unused = pages.difference(&slugs).map(|page| format!("{PAGES}{page}.md has no kind; delete it"));
    none(&missing.chain(unused).collect::<Vec<_>>(), "make docs/errors and the kinds of problems agree");
}

/// The names of all kinds: those of the API beside their status or in the table of refusals, and those of programs that
/// write the address themselves.
fn slugs() -> BTreeSet<String> {
    let kinds = read(KINDS);
    let kinds = kinds.split("#[cfg(test)]").next().unwrap_or_default();
    let beside_status = kinds
        .split("StatusCode::")
        .skip(1)
        .filter_map(|rest| {
            rest.trim_start_matches(|c: char| c.is_ascii_uppercase() || c == '_').strip_prefix(',')
        })
        .filter_map(|rest| quoted(rest.trim_start()));
    let of_refusals = kinds.split("=> (").skip(1).filter_map(quoted);
    let mut slugs: BTreeSet<_> = beside_status.chain(of_refusals).collect();
    assert!(slugs.len() > 10, "{KINDS} has no kinds that can be read; mend tests/tidy/problems.rs");
    for file in files().iter().filter(|file| file.contains("/src/") && file.ends_with(".rs")) {
        let text = read(file);
        slugs.extend(text.split("\"/docs/errors/").skip(1).filter_map(|rest| slug(rest.split_once('"')?.0)));
    }
    slugs
}

fn quoted(text: &str) -> Option<String> {
    slug(text.strip_prefix('"')?.split_once('"')?.0)
}

fn slug(text: &str) -> Option<String> {
    text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-').then(|| text.to_owned())
}
