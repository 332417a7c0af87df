//! Who may depend on whom: `domain ← contract ← bus ← services → service`. A new arrow is the rarest kind of change, so
//! it has to be written down here.

use crate::tree::{Crate, Dependency, crates, none};

/// What each library may know of ours.
const LIBRARIES: [(&str, &[&str]); 7] = [
    ("domain", &[]),
    ("service", &["domain"]),
    ("scripted-model", &[]),
    ("contract", &["domain"]),
    ("api", &["contract", "domain", "service"]),
    ("bus", &["contract", "domain"]),
    ("reads", &["api", "bus", "contract", "domain"]),
];

/// What a role may know of ours: never another role.
const A_ROLE: &[&str] = &["api", "bus", "contract", "domain", "reads", "service"];

/// The one program is made of all roles.
const PROGRAM: &str = "resident";
const SUITES: &str = "tests";

/// The crates that may name the broker's client.
const NAME_THE_CLIENT: [&str; 2] = ["bus", SUITES];

/// The crates that wait for nothing.
const SYNCHRONOUS: [&str; 2] = ["domain", "contract"];

#[test]
fn crates_know_only_whom_they_may() {
    let offenders =
        arrows().filter(|(from, to)| to.ours && !may_know(from, to)).map(said).collect::<Vec<_>>();
    none(
        &offenders,
        "move the code to where the arrow already points, or argue for it in tests/tidy/arrows.rs",
    );
}

#[test]
fn every_library_is_in_the_table() {
    let known = |name: &str| LIBRARIES.iter().any(|(library, _)| *library == name);
    let offenders: Vec<_> = crates()
        .iter()
        .filter(|one| !one.dir.starts_with("services/") && one.name != SUITES && !known(&one.name))
        .map(|one| one.dir.clone())
        .collect();
    none(&offenders, "say in tests/tidy/arrows.rs what this library may depend on");
}

#[test]
fn only_the_bus_names_the_broker_s_client() {
    let named = |(from, to): &(&Crate, &Dependency)| {
        to.name == "async-nats" && !NAME_THE_CLIENT.contains(&from.name.as_str())
    };
    let offenders = arrows().filter(named).map(said).collect::<Vec<_>>();
    none(&offenders, "give jetstream/bus what is missing and use that");
}

#[test]
fn meaning_and_shapes_wait_for_nothing() {
    let named = |(from, to): &(&Crate, &Dependency)| {
        to.name == "tokio" && !to.dev && SYNCHRONOUS.contains(&from.name.as_str())
    };
    let offenders = arrows().filter(named).map(said).collect::<Vec<_>>();
    none(&offenders, "decide without waiting here, and wait in the crate that calls it");
}

fn arrows() -> impl Iterator<Item = (&'static Crate, &'static Dependency)> {
    crates().iter().flat_map(|one| one.dependencies.iter().map(move |dependency| (one, dependency)))
}

fn may_know(from: &Crate, to: &Dependency) -> bool {
    if to.name == SUITES {
        return false;
    }
    if from.name == SUITES || from.name == PROGRAM || (to.dev && to.name == "scripted-model") {
        return true;
    }
    let library = LIBRARIES.iter().find(|(library, _)| *library == from.name);
    library.map_or(A_ROLE, |(_, known)| known).contains(&to.name.as_str())
}

fn said((from, to): (&Crate, &Dependency)) -> String {
    format!("{} → {}{}", from.name, to.name, if to.dev { " (for its tests)" } else { "" })
}
