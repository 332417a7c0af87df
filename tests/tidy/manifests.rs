//! One table for versions, one for lints, one for what all packages share: the workspace's. Members point to it.

use toml::{Table, Value};

use crate::tree::{Crate, crates, none, toml};

/// What a member may say of a dependency besides that the workspace has it.
const DEPENDENCY_KEYS: [&str; 3] = ["workspace", "features", "optional"];

#[test]
fn every_crate_takes_the_workspace_s_lints() {
    let offenders: Vec<_> = crates()
        .iter()
        .map(Crate::manifest)
        .filter(|manifest| !is_workspace(toml(manifest).get("lints")))
        .collect();
    none(&offenders, "add `[lints]` with `workspace = true`");
}

#[test]
fn every_crate_takes_what_all_packages_share_from_the_workspace() {
    let workspace = toml("Cargo.toml");
    let shared = workspace["workspace"]["package"].as_table().expect("a table");
    let mut offenders = Vec::new();
    for manifest in crates().iter().map(Crate::manifest) {
        let table = toml(&manifest);
        let package = table["package"].as_table().expect("a table");
        for field in shared.keys().filter(|field| !is_workspace(package.get(*field))) {
            offenders.push(format!("{manifest}: {field}"));
        }
    }
    none(&offenders, "write `<field>.workspace = true`");
}

#[test]
fn every_dependency_is_the_workspace_s() {
    let mut offenders = Vec::new();
    for manifest in crates().iter().map(Crate::manifest) {
        for (name, dependency) in dependencies(&toml(&manifest)) {
            let plain = dependency.as_table().is_some_and(|keys| {
                is_workspace(Some(&dependency))
                    && keys.keys().all(|key| DEPENDENCY_KEYS.contains(&key.as_str()))
            });
            if !plain {
                offenders.push(format!("{manifest}: {name}"));
            }
        }
    }
    none(
        &offenders,
        "put the version or path into the workspace's table and write `<name>.workspace = true`",
    );
}

#[test]
fn every_crate_says_what_it_is() {
    let described = |manifest: &String| {
        toml(manifest)["package"]
            .get("description")
            .and_then(Value::as_str)
            .is_some_and(|text| !text.is_empty())
    };
    let offenders: Vec<_> =
        crates().iter().map(Crate::manifest).filter(|manifest| !described(manifest)).collect();
    none(&offenders, "give the package a `description` of one line");
}

/// Every dependency of a manifest, of whatever kind and for whatever target.
fn dependencies(manifest: &Table) -> Vec<(String, Value)> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(|targets| targets.values().filter_map(Value::as_table));
    tables
        .chain([manifest])
        .flat_map(|table| {
            ["dependencies", "dev-dependencies", "build-dependencies"].map(|kind| table.get(kind))
        })
        .flatten()
        .filter_map(Value::as_table)
        .flat_map(Table::clone)
        .collect()
}

fn is_workspace(value: Option<&Value>) -> bool {
    value.and_then(|value| value.get("workspace")) == Some(&Value::Boolean(true))
}
