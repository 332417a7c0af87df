//! Nothing in the tree is unfinished, and nothing names the machine or the desk it was written at.

use crate::tree::{files, none, root};

const UNWANTED: [&str; 6] = ["/work/", "/root/", "helper-", "TODO", "FIXME", "XXX"];

/// Where an unwanted string is meant, and why.
const MEANT: [(&str, &str, &str); 2] = [
    ("shared/scripted-model/src/demo/tests.rs", "/work/", "a working directory as a harness would name it"),
    ("tests/tidy/words.rs", "", "the list itself"),
];

#[test]
fn nothing_is_unfinished_or_names_a_machine() {
    let mut offenders = Vec::new();
    let mut used = [false; MEANT.len()];
    for file in files() {
        // A file that is no text names nothing.
        let Ok(text) = std::fs::read_to_string(root().join(file)) else { continue };
        for (number, line) in text.lines().enumerate() {
            for unwanted in UNWANTED.into_iter().filter(|unwanted| line.contains(unwanted)) {
                let meant = MEANT.iter().position(|(path, word, _)| path == file && unwanted.contains(word));
                match meant {
                    Some(at) => used[at] = true,
                    None => offenders.push(format!("{file}:{}: {unwanted}", number + 1)),
                }
            }
        }
    }
    let stale = MEANT.iter().zip(used).filter(|(_, used)| !used);
    offenders.extend(
        stale.map(|((path, word, _), _)| format!("{path}: the exception for {word:?} is not needed")),
    );
    none(
        &offenders,
        "finish it, or say it without the place; what is meant goes into tests/tidy/words.rs with its reason",
    );
}
