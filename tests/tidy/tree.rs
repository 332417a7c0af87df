//! The tree as the rules see it: its files by git, its crates by cargo. It knows no rule.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

/// One of our crates.
#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// Where it lies, from the root of the tree.
    pub(crate) dir: String,
    pub(crate) dependencies: Vec<Dependency>,
    /// The files its targets begin with, from the root of the tree.
    pub(crate) roots: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// One of our crates.
    pub(crate) ours: bool,
    pub(crate) dev: bool,
}

static CRATES: LazyLock<Vec<Crate>> = LazyLock::new(|| {
    let metadata = cargo_metadata(&["--no-deps"]);
    array(&metadata["packages"]).iter().map(Crate::new).collect()
});

static FILES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let listed =
        run(Command::new("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]));
    // What is deleted and not committed yet is still listed.
    listed.split('\0').filter(|path| root().join(path).is_file()).map(str::to_owned).collect()
});

pub(crate) fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the tree").to_owned()
    });
    &ROOT
}

pub(crate) fn crates() -> &'static [Crate] {
    &CRATES
}

/// Every file that git tracks or would, from the root of the tree.
pub(crate) fn files() -> &'static [String] {
    &FILES
}

pub(crate) fn files_named(suffix: &str) -> impl Iterator<Item = &'static str> {
    FILES.iter().map(String::as_str).filter(move |path| path.ends_with(suffix))
}

pub(crate) fn exists(path: &str) -> bool {
    root().join(path).exists()
}

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn toml(path: &str) -> toml::Table {
    read(path).parse().unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What cargo knows, from what is on this machine already.
pub(crate) fn cargo_metadata(arguments: &[&str]) -> Value {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--offline"]).args(arguments);
    serde_json::from_str(&run(&mut cargo)).expect("cargo speaks JSON")
}

/// What a program says on standard output when it is run at the root of the tree.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command
        .current_dir(root())
        .output()
        .unwrap_or_else(|error| panic!("{command:?} does not run: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

pub(crate) fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Fails with what to do where a rule has offenders.
#[track_caller]
pub(crate) fn none(offenders: &[String], what_to_do: &str) {
    assert!(offenders.is_empty(), "{what_to_do}:\n  {}\n", offenders.join("\n  "));
}

// === impl Crate ===

impl Crate {
    fn new(package: &Value) -> Self {
        let manifest = package["manifest_path"].as_str().expect("a manifest");
        let dir = Path::new(manifest).parent().expect("a manifest lies in a folder");
        Self {
            name: text(&package["name"]),
            dir: from_root(dir),
            dependencies: array(&package["dependencies"]).iter().map(Dependency::new).collect(),
            roots: array(&package["targets"])
                .iter()
                .map(|target| from_root(Path::new(target["src_path"].as_str().expect("a source"))))
                .collect(),
        }
    }

    pub(crate) fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.dir)
    }
}

impl Dependency {
    fn new(dependency: &Value) -> Self {
        Self {
            name: text(&dependency["name"]),
            ours: dependency["path"].is_string(),
            dev: dependency["kind"] == "dev",
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

fn from_root(path: &Path) -> String {
    path.strip_prefix(root()).expect("it lies in the tree").to_str().expect("a plain name").to_owned()
}
