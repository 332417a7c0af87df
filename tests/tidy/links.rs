//! What the prose points to is there: links between pages, and paths into the tree.

use std::collections::BTreeSet;

use crate::tree::{exists, files_named, none, read};

/// A path in backticks is one of ours when it begins with one of these.
const ROOTS: [&str; 7] = ["docs/", "jetstream/", "k8s/", "services/", "shared/", "tests/", "tools/"];

/// Marks of a pattern, which names no single file.
const PATTERN: [char; 6] = ['<', '*', '{', '…', '$', ' '];

#[test]
fn every_link_leads_somewhere() {
    let mut offenders = Vec::new();
    for page in files_named(".md") {
        let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
        let text = read(page);
        for target in links(&text) {
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty()
                && !path.contains("://")
                && !exists(format!("{folder}/{path}").trim_start_matches('/'))
            {
                offenders.push(format!("{page}: {target}"));
            }
        }
    }
    none(&offenders, "mend the link, or write the page");
}

#[test]
fn every_path_in_the_prose_is_there() {
    let mut offenders = Vec::new();
    for page in files_named(".md") {
        for path in paths(&read(page)) {
            if !exists(path) {
                offenders.push(format!("{page}: {path}"));
            }
        }
    }
    none(&offenders, "name the file as it is called now");
}

/// The targets of a page's links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// The paths of a page: in backticks below our folders, and below docs/ also in plain text.
fn paths(text: &str) -> BTreeSet<&str> {
    let quoted = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|path| ROOTS.iter().any(|root| path.starts_with(root)) && !path.contains(PATTERN));
    let plain = text
        .split(|character: char| character.is_whitespace() || "()[]`\",;:".contains(character))
        .filter(|word| word.starts_with("docs/") && !word.contains(PATTERN))
        .map(|word| word.trim_end_matches('.'));
    quoted.chain(plain).collect()
}
