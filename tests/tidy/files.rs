//! Rules for single files: each is reached, says what it is, and can be read in one sitting.

use std::collections::BTreeSet;

use crate::tree::{crates, exists, files_named, none, read};

/// What is longer has two subjects.
const LINES_MAX: usize = 450;

/// Printed, so nobody reads them in one sitting.
const PRINTED: [&str; 2] = ["docs/bus.md", "docs/config.md"];

#[test]
fn no_file_is_forgotten() {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<(String, bool)> =
        crates().iter().flat_map(|one| one.roots.iter().map(|root| (root.clone(), true))).collect();
    while let Some((file, is_root)) = waiting.pop() {
        // A target whose file is missing is cargo's to tell.
        if exists(&file) && reached.insert(file.clone()) {
            waiting.extend(modules(&read(&file)).filter_map(|name| module_file(&file, is_root, name)));
        }
    }
    let offenders: Vec<_> =
        files_named(".rs").filter(|file| !reached.contains(*file)).map(str::to_owned).collect();
    none(&offenders, "write `mod <name>;` in the file above, or delete it; nothing compiles it");
}

#[test]
fn a_module_lies_where_its_name_says() {
    // Built from halves, so that this file does not offend.
    let attribute = ["#[", "path"].concat();
    let offenders: Vec<_> =
        files_named(".rs").filter(|file| read(file).contains(&attribute)).map(str::to_owned).collect();
    none(&offenders, "name the file like its module and drop the attribute");
}

#[test]
fn every_file_says_what_it_is() {
    let offenders: Vec<_> =
        files_named(".rs").filter(|file| !read(file).starts_with("//! ")).map(str::to_owned).collect();
    none(&offenders, "begin the file with a `//!` sentence: what this is, and what it is not");
}

#[test]
fn every_file_can_be_read_in_one_sitting() {
    let readable = files_named(".rs").chain(files_named(".md")).chain(files_named(".toml"));
    let offenders: Vec<_> = readable
        .filter(|file| !PRINTED.contains(file))
        .map(|file| (file, read(file).lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(file, lines)| format!("{file} has {lines} lines"))
        .collect();
    none(&offenders, &format!("split the file by subject; {LINES_MAX} lines are the most"));
}

/// The modules that a file declares and does not hold itself.
fn modules(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (before, name) = line.strip_suffix(';')?.rsplit_once("mod ")?;
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let declares = before.trim().is_empty() || before.trim_start().starts_with("pub");
        (plain && declares).then_some(name)
    })
}

/// Where a module declared in `file` lies; `None` where there is no file, which the compiler tells.
fn module_file(file: &str, is_root: bool, name: &str) -> Option<(String, bool)> {
    let (folder, own) = file.rsplit_once('/')?;
    let folder = match own {
        _ if is_root => folder.to_owned(),
        "mod.rs" => folder.to_owned(),
        _ => format!("{folder}/{}", own.strip_suffix(".rs")?),
    };
    [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")]
        .into_iter()
        .find(|path| exists(path))
        .map(|path| (path, false))
}
