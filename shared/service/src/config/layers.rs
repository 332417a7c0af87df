//! From each source to a layer: its values by the full name of their key, and a mistake for every name that nobody
//! knows.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::path::Path;

use ::config::{ConfigError, File, FileFormat, Source, Value, ValueKind};

use super::key::{Key, Presence};
use super::mistake::Fault;
use super::nearest::nearest;
use super::read::{Known, Reading};
use super::sources::PREFIX;
use super::{full_name, variable_name};

/// Where a value stands that nobody has set.
pub(super) const DEFAULT_ORIGIN: &str = "its default";

/// One source's values by full name; each value says where it stands.
#[derive(Debug, Clone, Default)]
pub(super) struct Layer(HashMap<String, Value>);

// === impl Reading ===

impl Reading<'_> {
    pub(super) fn defaults(&self) -> Layer {
        let mut layer = Layer::default();
        for (name, known) in &self.known {
            if let Presence::Default(value) = known.key.presence {
                layer.set(name, DEFAULT_ORIGIN, value);
            }
        }
        layer
    }

    pub(super) fn file(&mut self) -> Layer {
        let mut layer = Layer::default();
        if let Some(path) = &self.sources.file {
            let source = path.display().to_string();
            match table(path) {
                Ok(table) => self.flatten("", table, &source, &mut layer),
                Err(reason) => self.mistake("", &source, Fault::Unreadable { reason }),
            }
        }
        layer
    }

    /// Takes the known keys out of nested tables.
    fn flatten(&mut self, prefix: &str, table: HashMap<String, Value>, source: &str, layer: &mut Layer) {
        for (name, value) in table {
            let name = if prefix.is_empty() { name } else { full_name(prefix, &name) };
            let section_start = format!("{name}.");
            if self.known.contains_key(&name) {
                layer.0.insert(name, Value::new(Some(&source.to_owned()), value.kind));
            } else if self.known.keys().any(|known| known.starts_with(&section_start)) {
                match value.kind {
                    ValueKind::Table(table) => self.flatten(&name, table, source, layer),
                    // What stands here may be a secret that lost its key.
                    _ => self.mistake(
                        &name,
                        source,
                        Fault::Invalid {
                            found: "a single value".into(),
                            allowed: format!("a section, which begins with [{name}]"),
                        },
                    ),
                }
            } else {
                let nearest = nearest(&name, self.names());
                self.mistake(&name, source, Fault::Unknown { nearest });
            }
        }
    }

    pub(super) fn aliases(&mut self) -> Layer {
        let mut layer = Layer::default();
        for (name, known) in self.known.clone() {
            for alias in known.key.aliases {
                let given = self.sources.environment.iter().find(|(variable, _)| variable == alias);
                if let Some((_, value)) = given {
                    self.variable(&name, known.key, alias, value, &mut layer);
                }
            }
        }
        layer
    }

    pub(super) fn variables(&mut self) -> Layer {
        let mut layer = Layer::default();
        let by_variable: BTreeMap<String, (String, Known)> =
            self.known.iter().map(|(name, known)| (variable_name(name), (name.clone(), *known))).collect();
        for (variable, value) in &self.sources.environment {
            let variable = variable.to_string_lossy();
            match by_variable.get(variable.as_ref()) {
                Some((name, known)) => self.variable(name, known.key, &variable, value, &mut layer),
                None if variable.starts_with(PREFIX) => {
                    let nearest = nearest(&variable, by_variable.keys().cloned());
                    self.mistake(&variable, "the environment", Fault::Unknown { nearest });
                }
                None => {}
            }
        }
        layer
    }

    /// An empty variable is one that is not set: compose files pass on what the caller lacks as empty.
    fn variable(&mut self, name: &str, key: &Key, variable: &str, value: &OsStr, layer: &mut Layer) {
        let source = format!("environment variable {variable}");
        match value.to_str() {
            Some("") => {}
            Some(value) => layer.set(name, &source, value),
            None => {
                let found = "bytes that are not UTF-8".into();
                self.mistake(name, &source, Fault::Invalid { found, allowed: key.kind.allowed() });
            }
        }
    }

    pub(super) fn flags(&mut self) -> Layer {
        let mut layer = Layer::default();
        for flag in &self.sources.flags {
            let source = format!("flag {}", flag.name);
            if self.known.contains_key(&flag.key) {
                layer.set(&flag.key, &source, &flag.value);
            } else {
                let nearest = nearest(&flag.key, self.names());
                self.mistake(&flag.key, &source, Fault::Unknown { nearest });
            }
        }
        layer
    }

    /// Every key and every section, as a misspelt name may be either.
    fn names(&self) -> impl Iterator<Item = String> {
        let sections =
            self.known.keys().filter_map(|name| name.rsplit_once('.')).map(|(section, _)| section.to_owned());
        self.known.keys().cloned().chain(sections)
    }
}

// === impl Layer ===

impl Layer {
    fn set(&mut self, name: &str, source: &str, value: &str) {
        self.0.insert(name.into(), Value::new(Some(&source.to_owned()), value));
    }
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<HashMap<String, Value>, ConfigError> {
        Ok(self.0.clone())
    }
}

/// The file's content, or a sentence about why there is none. The parser's message draws the line it stopped at,
/// which may hold a secret: only where and what it expected is passed on.
fn table(path: &Path) -> Result<HashMap<String, Value>, String> {
    File::from(path).format(FileFormat::Toml).collect().map_err(|error| match error {
        ConfigError::FileParse { cause, .. } => {
            let message = cause.to_string();
            let lines: Vec<&str> = message.lines().filter(|line| !line.contains('|')).collect();
            format!("{}; mend the file or leave it out", lines.join(": "))
        }
        other => format!("cannot be read: {other}; name a file that can, or leave it out"),
    })
}
