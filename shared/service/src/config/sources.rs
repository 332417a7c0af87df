//! Where settings come from. The environment is handed in as pairs, so that a test uses a few of its own.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// What begins the name of an environment variable that is meant for us.
pub(crate) const PREFIX: &str = "RESIDENT__";

/// A file, an environment and flags; the later ones win.
#[derive(Clone, Default)]
pub struct Sources {
    pub(crate) file: Option<PathBuf>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) flags: Vec<Flag>,
}

#[derive(Clone)]
pub(crate) struct Flag {
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// The environment of this program: the only place that reads it.
pub fn real_environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os()
}

// === impl Sources ===

impl Sources {
    /// A TOML file, which then must exist.
    #[must_use]
    pub fn file(self, path: impl Into<PathBuf>) -> Self {
        Self { file: Some(path.into()), ..self }
    }

    #[must_use]
    pub fn environment<K, V>(mut self, pairs: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: Into<OsString>,
        V: Into<OsString>,
    {
        self.environment.extend(pairs.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// What a command-line flag says about a key: `flag("--listen", "http.listen", "127.0.0.1:0")`.
    #[must_use]
    pub fn flag(mut self, name: &str, key: &str, value: impl Into<String>) -> Self {
        self.flags.push(Flag { name: name.into(), key: key.into(), value: value.into() });
        self
    }
}

/// Names only: values may be secret.
impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables = self.environment.iter().map(|(name, _)| name);
        let flags = self.flags.iter().map(|flag| &flag.name);
        f.debug_struct("Sources")
            .field("file", &self.file)
            .field("environment", &variables.collect::<Vec<_>>())
            .field("flags", &flags.collect::<Vec<_>>())
            .finish()
    }
}
