//! docs/invariants.md and the functions that check them name each other.

use std::collections::BTreeMap;

use crate::tree::{none, read};

const PAGE: &str = "docs/invariants.md";
const CHECKS: &str = "tests/kit/invariants.rs";

/// The lines of the page that name functions.
const CHECKED_BY: &str = "Checked by ";

#[test]
fn every_invariant_names_its_checks_and_every_check_its_invariant() {
    let (page, checks) = (read(PAGE), read(CHECKS));
    let mut named: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut number = "";
    let mut offenders = Vec::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            number = title.split_whitespace().next().unwrap_or_default();
            named.entry(number).or_default();
        } else if let Some(functions) = line.strip_prefix(CHECKED_BY) {
            let functions: Vec<_> = functions.split('`').skip(1).step_by(2).collect();
            offenders.extend(
                functions
                    .iter()
                    .filter(|function| !checks.contains(&format!("fn {function}(")))
                    .map(|function| format!("{PAGE} {number}: there is no function {function}")),
            );
            named.entry(number).or_default().extend(functions);
        }
    }
    for (number, function) in table(&checks) {
        if !named.get(number).is_some_and(|functions| functions.contains(&function)) {
            offenders.push(format!("{PAGE} {number}: the function {function} is not named"));
        }
    }
    none(&offenders, "make docs/invariants.md and tests/kit/invariants.rs name each other");
}

/// The numbers and functions of the table of checks.
fn table(source: &str) -> Vec<(&str, &str)> {
    let rows: Vec<_> = source
        .lines()
        .filter_map(|line| {
            let (name, function) =
                line.trim().strip_prefix("(\"")?.strip_suffix("),")?.rsplit_once("\", ")?;
            Some((name.split_whitespace().next()?, function))
        })
        .collect();
    assert!(
        !rows.is_empty(),
        "{CHECKS} has no table of checks that can be read; mend tests/tidy/invariants.rs"
    );
    rows
}
