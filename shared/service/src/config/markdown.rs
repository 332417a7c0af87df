//! The page of settings, written from the same data that reads them.

use std::fmt::Write;

use super::key::{Key, Presence};
use super::{Catalogue, Declared, full_name, variable_name};

// === impl Catalogue ===

impl Catalogue {
    /// One heading and table per section, in the order they were declared.
    pub fn markdown(&self) -> String {
        self.sections.iter().map(section).collect::<Vec<_>>().join("\n")
    }
}

fn section(section: &Declared) -> String {
    let mut page = format!(
        "## `{}`\n\n| key | environment | allowed | default | what it is |\n|---|---|---|---|---|\n",
        section.name
    );
    for key in section.keys {
        // Writing to a string does not fail.
        let _ = writeln!(page, "{}", row(section.name, key));
    }
    page
}

fn row(section: &str, key: &Key) -> String {
    let name = full_name(section, key.name);
    let variables: Vec<String> = std::iter::once(variable_name(&name))
        .chain(key.aliases.iter().map(|&alias| alias.to_owned()))
        .map(|variable| format!("`{variable}`"))
        .collect();
    let default = match key.presence {
        Presence::Required => "required".into(),
        Presence::Optional => "none".into(),
        Presence::Default(value) => format!("`{value}`"),
    };
    let cells = [format!("`{name}`"), variables.join(" or "), key.kind.allowed(), default, key.about.into()];
    format!("| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

#[cfg(test)]
mod tests {
    use crate::config::{Catalogue, Key, Kind, Misread, Section, Values};

    struct Sample;

    impl Section for Sample {
        const NAME: &'static str = "sample";
        const KEYS: &'static [Key] = &[
            Key::new("format", Kind::OneOf(&["json", "text"]), "A or | B").default("json"),
            Key::new("api_key", Kind::Secret, "The key").aliases(&["API_KEY"]),
            Key::new("home", Kind::Path, "Where").optional(),
        ];

        fn read(_: &Values<'_>) -> Result<Self, Misread> {
            Ok(Self)
        }
    }

    #[test]
    fn every_key_has_its_row() {
        assert_eq!(
            Catalogue::default().needs::<Sample>().markdown(),
            "## `sample`\n\n\
             | key | environment | allowed | default | what it is |\n|---|---|---|---|---|\n\
             | `sample.format` | `RESIDENT__SAMPLE__FORMAT` | json or text | `json` | A or \\| B |\n\
             | `sample.api_key` | `RESIDENT__SAMPLE__API_KEY` or `API_KEY` | a secret text that is not empty \
             | required | The key |\n\
             | `sample.home` | `RESIDENT__SAMPLE__HOME` | a path | none | Where |\n"
        );
    }
}
