//! The pages that are printed from the code say what the code says. `make docs` writes them anew.

use std::process::Command;

use crate::tree::{read, root};

#[test]
fn the_page_of_the_bus_is_fresh() {
    is_fresh("docs/bus.md", &contract::catalogue::page());
}

#[test]
fn the_page_of_the_settings_is_fresh() {
    let program = tests::installation::program("resident");
    // Nothing of whoever runs the test may show on the page.
    let output = Command::new(&program)
        .arg("settings")
        .env_clear()
        .current_dir(tempfile::tempdir().expect("a temporary directory").path())
        .output()
        .unwrap_or_else(|error| panic!("{} does not run: {error}", program.display()));
    assert!(output.status.success(), "`resident settings`: {}", String::from_utf8_lossy(&output.stderr));
    is_fresh("docs/config.md", &String::from_utf8(output.stdout).expect("text"));
}

fn is_fresh(page: &str, printed: &str) {
    if std::env::var_os("RESIDENT_WRITE_DOCS").is_some() {
        std::fs::write(root().join(page), printed).unwrap_or_else(|error| panic!("{page}: {error}"));
    }
    assert!(crate::tree::exists(page), "{page} is missing; run `make docs`");
    let there = read(page);
    let differs = there.lines().zip(printed.lines()).find(|(there, printed)| there != printed);
    let (there_line, printed_line) = differs.unwrap_or(("its end", "more or fewer lines"));
    assert!(
        there == printed,
        "{page} is not what the code prints; run `make docs` and read what changed. First difference:\n  \
         page: {there_line}\n  code: {printed_line}"
    );
}
