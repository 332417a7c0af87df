//! What we are made of may be used as we use it: every dependency's license is on the list in deny.toml.

use std::process::Command;

use serde_json::Value;

use crate::tree::{array, cargo_metadata, none, run, toml};

#[test]
fn every_dependency_s_license_is_allowed() {
    let deny = toml("deny.toml");
    let allowed: Vec<_> = deny["licenses"]["allow"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|license| license.as_str().expect("a name"))
        .collect();
    // Only this machine's packages are here; those of other systems may never have been fetched.
    let metadata = cargo_metadata(&["--filter-platform", &host()]);
    let packages = array(&metadata["packages"]);
    assert!(packages.len() > 100, "cargo knows only {} packages", packages.len());
    let mut offenders: Vec<_> = packages
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(|license| is_met(license, &allowed)))
        .map(|package| format!("{} {}", text(&package["name"]), text(&package["license"])))
        .collect();
    let used = |license: &&&str| packages.iter().any(|package| text(&package["license"]).contains(**license));
    offenders.extend(
        allowed
            .iter()
            .filter(|license| !used(license))
            .map(|license| format!("{license} is allowed, not used")),
    );
    none(&offenders, "use another crate, or argue for the license in deny.toml");
}

#[test]
fn expressions_are_read_as_spdx_has_them() {
    let met = |expression| is_met(expression, &["MIT", "Apache-2.0 WITH LLVM-exception"]);
    assert!(met("MIT"));
    assert!(met("GPL-3.0 OR MIT"));
    assert!(met("GPL-3.0/MIT"));
    assert!(met("MIT AND (GPL-3.0 OR Apache-2.0 WITH LLVM-exception)"));
    assert!(!met("MIT AND GPL-3.0"));
    assert!(!met("(MIT OR GPL-3.0) AND GPL-3.0"));
    assert!(!met("Apache-2.0"));
    assert!(!met(""));
}

/// Whether an expression holds where only the allowed licenses do. OR binds weaker than AND.
fn is_met(expression: &str, allowed: &[&str]) -> bool {
    let expression = expression.replace('/', " OR ").trim().to_owned();
    for (word, any) in [(" OR ", true), (" AND ", false)] {
        let parts = split_outside(&expression, word);
        if parts.len() > 1 {
            let met = |part: &&str| is_met(part, allowed);
            return if any { parts.iter().any(met) } else { parts.iter().all(met) };
        }
    }
    match expression.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => is_met(inner, allowed),
        None => allowed.contains(&expression.as_str()),
    }
}

/// Splits at a word that stands outside of parentheses.
fn split_outside<'a>(expression: &'a str, word: &str) -> Vec<&'a str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0);
    for (at, character) in expression.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ' ' if depth == 0 && expression[at..].starts_with(word) => {
                parts.push(&expression[begin..at]);
                begin = at + word.len();
            }
            _ => {}
        }
    }
    parts.push(&expression[begin..]);
    parts
}

fn host() -> String {
    let said = run(Command::new("rustc").arg("-vV"));
    said.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host").to_owned()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("without a license")
}
