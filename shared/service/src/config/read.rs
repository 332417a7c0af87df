//! Reading: the layers are merged and every key is parsed. Mistakes are collected on the way and come back together.

use std::collections::BTreeMap;

use ::config::builder::DefaultState;
use ::config::{Config, ConfigBuilder, Value, ValueKind};

use super::key::{Key, Presence};
use super::layers::Layer;
use super::mistake::{Fault, Mistake, Mistakes};
use super::parse::{describe, parse};
use super::sources::Sources;
use super::values::{Entries, Entry, Settings};
use super::{Catalogue, full_name, variable_name};

/// One reading on its way.
pub(super) struct Reading<'a> {
    /// Every key of every section, by full name.
    pub(super) known: BTreeMap<String, Known>,
    pub(super) sources: &'a Sources,
    mistakes: Vec<Mistake>,
}

#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) key: &'static Key,
    needed: bool,
}

// === impl Catalogue ===

impl Catalogue {
    /// All values of all declared sections, or all mistakes in them.
    pub fn read(&self, sources: &Sources) -> Result<Settings, Mistakes> {
        let known = self.sections.iter().flat_map(|section| {
            section
                .keys
                .iter()
                .map(|key| (full_name(section.name, key.name), Known { key, needed: section.needed }))
        });
        let mut reading = Reading { known: known.collect(), sources, mistakes: Vec::new() };
        let layers =
            [reading.defaults(), reading.file(), reading.aliases(), reading.variables(), reading.flags()];
        let entries = reading.merge(layers);
        if reading.mistakes.is_empty() {
            let needed = self.sections.iter().filter(|section| section.needed).map(|section| section.name);
            return Ok(Settings { needed: needed.collect(), entries });
        }
        reading.mistakes.sort_by(|a, b| (&a.key, &a.source).cmp(&(&b.key, &b.source)));
        Err(Mistakes(reading.mistakes))
    }
}

// === impl Reading ===

impl Reading<'_> {
    fn merge(&mut self, layers: impl IntoIterator<Item = Layer>) -> Entries {
        let builder = layers.into_iter().fold(Config::builder(), ConfigBuilder::<DefaultState>::add_source);
        let merged = match builder.build() {
            Ok(config) => config.cache,
            Err(error) => {
                let reason =
                    format!("the settings could not be merged: {error}; check the names of the keys");
                self.mistake("", "all sources together", Fault::Unreadable { reason });
                return Entries::new();
            }
        };
        let known = self.known.clone();
        known.into_iter().map(|(name, known)| (name.clone(), self.entry(&name, known, &merged))).collect()
    }

    fn entry(&mut self, name: &str, known: Known, merged: &Value) -> Option<Entry> {
        let kind = &known.key.kind;
        let Some(value) = find(merged, name) else {
            if known.needed && known.key.presence == Presence::Required {
                let fault = Fault::Missing { variable: variable_name(name), allowed: kind.allowed() };
                self.mistake(name, "", fault);
            }
            return None;
        };
        let origin = value.origin().unwrap_or_default().to_owned();
        let Some(parsed) = parse(kind, &value.kind) else {
            let fault = Fault::Invalid { found: describe(kind, &value.kind), allowed: kind.allowed() };
            self.mistake(name, &origin, fault);
            return None;
        };
        Some(Entry { parsed, origin })
    }

    pub(super) fn mistake(&mut self, key: &str, source: &str, fault: Fault) {
        self.mistakes.push(Mistake { key: key.into(), source: source.into(), fault });
    }
}

fn find<'a>(merged: &'a Value, name: &str) -> Option<&'a Value> {
    name.split('.').try_fold(merged, |value, part| match &value.kind {
        ValueKind::Table(table) => table.get(part),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::SocketAddr;
    use std::os::unix::ffi::OsStringExt;
    use std::time::Duration;

    use secrecy::{ExposeSecret, SecretString};

    use super::*;
    use crate::config::{Kind, Misread, Section, Values};

    #[derive(Debug)]
    struct Executor {
        slots: u16,
        park_after: Duration,
        listen: Option<SocketAddr>,
    }

    impl Section for Executor {
        const NAME: &'static str = "executor";
        const KEYS: &'static [Key] = &[
            Key::new("slots", Kind::integer(1, 64, "segments"), "Segments at once").default("4"),
            Key::new(
                "park_after",
                Kind::duration(Duration::from_secs(1), Duration::from_hours(1)),
                "Idle time",
            )
            .default("2m"),
            Key::new("listen", Kind::SocketAddress, "Where it listens").optional(),
        ];

        fn read(values: &Values<'_>) -> Result<Self, Misread> {
            Ok(Self {
                slots: values.get("slots")?,
                park_after: values.get("park_after")?,
                listen: values.get("listen")?,
            })
        }
    }

    #[derive(Debug)]
    struct Anthropic {
        api_key: SecretString,
    }

    impl Section for Anthropic {
        const NAME: &'static str = "providers.anthropic";
        const KEYS: &'static [Key] =
            &[Key::new("api_key", Kind::Secret, "The provider's key").aliases(&["ANTHROPIC_API_KEY"])];

        fn read(values: &Values<'_>) -> Result<Self, Misread> {
            Ok(Self { api_key: values.get("api_key")? })
        }
    }

    fn catalogue() -> Catalogue {
        Catalogue::default().needs::<Executor>().knows::<Anthropic>()
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn mistakes(sources: &Sources) -> Vec<String> {
        catalogue().read(sources).unwrap_err().0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_source_wins_over_the_one_before() {
        let file = file("[executor]\nslots = 5\npark_after = \"5m\"\nlisten = \"127.0.0.1:5\"\n");
        let defaults = catalogue().read(&Sources::default()).unwrap();
        let sources = Sources::default()
            .file(file.path())
            .environment([("RESIDENT__EXECUTOR__SLOTS", "6"), ("RESIDENT__EXECUTOR__PARK_AFTER", "6m")])
            .flag("--park-after", "executor.park_after", "7m");
        let all = catalogue().read(&sources).unwrap();

        let (before, after) = (defaults.section::<Executor>().unwrap(), all.section::<Executor>().unwrap());
        assert_eq!((before.slots, before.park_after, before.listen), (4, Duration::from_mins(2), None));
        assert_eq!((after.slots, after.park_after), (6, Duration::from_mins(7)));
        assert_eq!(after.listen, Some("127.0.0.1:5".parse().unwrap()));
        assert_eq!(all.origin("executor.slots"), Some("environment variable RESIDENT__EXECUTOR__SLOTS"));
        assert_eq!(all.origin("executor.park_after"), Some("flag --park-after"));
        assert_eq!(all.origin("executor.listen"), file.path().to_str());
        assert_eq!(defaults.origin("executor.slots"), Some("its default"));
    }

    #[test]
    fn all_mistakes_come_at_once_each_with_its_source() {
        let file = file("slots = 1\nexecuter = 2\n[executor]\nslots = 99\n");
        let sources = Sources::default()
            .file(file.path())
            .environment([
                ("RESIDENT__EXECUTOR__LISTEN", "here"),
                ("RESIDENT__EXECUTOR__SLOT", "1"),
                ("RESIDENT__WHOLLY__OTHER", "1"),
                ("PATH", "/bin"),
            ])
            .flag("--park-after", "executor.park_after", "soon");
        let path = file.path().display();
        assert_eq!(
            mistakes(&sources),
            [
                "RESIDENT__EXECUTOR__SLOT, from the environment: there is no such setting; \
                 did you mean RESIDENT__EXECUTOR__SLOTS?"
                    .to_owned(),
                "RESIDENT__WHOLLY__OTHER, from the environment: there is no such setting; remove it".into(),
                format!("executer, from {path}: there is no such setting; did you mean executor?"),
                "executor.listen, from environment variable RESIDENT__EXECUTOR__LISTEN: found \"here\"; \
                 allowed is an IP address with a port, such as 127.0.0.1:8080 or [::1]:8080"
                    .into(),
                "executor.park_after, from flag --park-after: found \"soon\"; \
                 allowed is a duration from 1s to 1h, such as 90s, 2m or 250ms"
                    .into(),
                format!(
                    "executor.slots, from {path}: found 99; allowed is an integer from 1 to 64 (segments)"
                ),
                format!("slots, from {path}: there is no such setting; did you mean executor.slots?"),
            ]
        );
        let text = catalogue().read(&sources).unwrap_err().to_string();
        assert!(text.starts_with("the configuration has 7 mistakes:\n  RESIDENT__EXECUTOR__SLOT, from"));
    }

    #[test]
    fn a_required_key_is_missed_only_where_its_section_is_needed() {
        let needs = catalogue().needs::<Anthropic>();
        assert_eq!(
            needs.read(&Sources::default()).unwrap_err().to_string(),
            "the configuration has one mistake:\n  providers.anthropic.api_key: not set; set it in the file or as \
             RESIDENT__PROVIDERS__ANTHROPIC__API_KEY; allowed is a secret text that is not empty"
        );
        let settings = catalogue().read(&Sources::default()).unwrap();
        let misread = settings.section::<Anthropic>().unwrap_err();
        assert_eq!(misread, Misread::SectionNotNeeded("providers.anthropic"));
    }

    #[test]
    fn an_alias_sets_the_key_and_its_own_name_wins() {
        let key = |variables: &[(&'static str, &'static str)]| {
            let sources = Sources::default().environment(variables.to_vec());
            let settings = catalogue().needs::<Anthropic>().read(&sources).unwrap();
            settings.section::<Anthropic>().unwrap().api_key.expose_secret().to_owned()
        };
        let (alias, own) = (("ANTHROPIC_API_KEY", "a"), ("RESIDENT__PROVIDERS__ANTHROPIC__API_KEY", "b"));
        assert_eq!(key(&[alias]), "a");
        assert_eq!(key(&[alias, own]), "b");
        assert_eq!(key(&[own, alias]), "b");
        assert_eq!(key(&[alias, (own.0, "")]), "a", "an empty variable is one that is not set");
    }

    #[test]
    fn no_secret_reaches_a_mistake_or_a_debug_text() {
        let texts = [
            "[providers.anthropic]\napi_key = [\"sk-hidden\"]\n",
            "[providers.anthropic]\napi_kye = \"sk-hidden\"\n",
            "[providers]\nanthropic = \"sk-hidden\"\n",
            "[providers.anthropic]\napi_key = \"sk-hidden\n",
            "[providers.anthropic]\napi_key = sk-hidden\n",
            "[providers.anthropic]\napi_key = \"sk-hidden\" \"sk-hidden\"\n",
            "[providers.anthropic]\napi_key = '''sk-hidden\nsk-hidden\n",
        ];
        for text in texts {
            let file = file(text);
            let mistakes = catalogue().read(&Sources::default().file(file.path())).unwrap_err();
            assert!(!format!("{mistakes} {mistakes:?}").contains("hidden"), "{text}: {mistakes}");
        }
        let sources = Sources::default().environment([("ANTHROPIC_API_KEY", "sk-hidden")]);
        let settings = catalogue().read(&sources).unwrap();
        assert!(!format!("{sources:?} {settings:?}").contains("hidden"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_mistake_beside_the_others() {
        let broken = file("[executor\n");
        let sources = Sources::default().environment([("RESIDENT__EXECUTOR__SLOTS", "0")]);
        let found = mistakes(&sources.clone().file(broken.path()));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains(broken.path().to_str().unwrap()) && found[0].contains("line 1"),
            "{}",
            found[0]
        );

        let found = mistakes(&sources.file("/nowhere/resident.toml"));
        assert!(found[0].starts_with("/nowhere/resident.toml: cannot be read"), "{}", found[0]);
    }

    #[test]
    fn a_variable_that_is_not_text_is_a_mistake() {
        let value = std::ffi::OsString::from_vec(vec![0xff]);
        let found = mistakes(&Sources::default().environment([("RESIDENT__EXECUTOR__SLOTS", value)]));
        assert!(found[0].contains("bytes that are not UTF-8"), "{found:?}");
    }

    #[test]
    fn a_single_value_in_the_place_of_a_section_is_a_mistake() {
        let file = file("executor = 3\n");
        let found = mistakes(&Sources::default().file(file.path()));
        assert!(
            found[0].ends_with("found a single value; allowed is a section, which begins with [executor]")
        );
    }
}
