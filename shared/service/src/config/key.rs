//! A setting as data: what it is called, what may be written for it, and what holds when nothing is.
//! Reading a value is in `parse`, finding it in `read`.

use std::time::Duration;

/// One setting of a section. Declared as a constant:
///
/// ```
/// use service::config::{Key, Kind};
/// const SLOTS: Key = Key::new("slots", Kind::integer(1, 256, "segments"), "Segments run at once").default("4");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The name within its section, in snake case.
    pub name: &'static str,
    pub kind: Kind,
    /// One line for the page of settings.
    pub about: &'static str,
    pub presence: Presence,
    /// Environment variables that also set it; the `RESIDENT__` form wins over them.
    pub aliases: &'static [&'static str],
}

/// What holds when no source sets the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Required,
    Optional,
    /// Written as a person would write it, and read by the same rules.
    Default(&'static str),
}

/// What may be written for a key.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Text,
    /// Text with a rule of its own. The rule is a sentence too, for whoever breaks it.
    Checked {
        allowed: &'static str,
        example: &'static str,
        check: fn(&str) -> bool,
    },
    Path,
    SocketAddress,
    Url {
        schemes: &'static [&'static str],
    },
    Integer {
        min: i64,
        max: i64,
        unit: &'static str,
    },
    Duration {
        min: Duration,
        max: Duration,
    },
    Bytes {
        min: u64,
        max: u64,
    },
    Bool,
    OneOf(&'static [&'static str]),
    /// Texts: a list in the file, comma-separated elsewhere.
    List,
    /// Text that is never shown, neither in a mistake nor in a log.
    Secret,
}

// === impl Key ===

impl Key {
    /// A required key; `default` and `optional` make it another.
    pub const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, kind, about, presence: Presence::Required, aliases: &[] }
    }

    #[must_use]
    pub const fn default(self, value: &'static str) -> Self {
        Self { presence: Presence::Default(value), ..self }
    }

    #[must_use]
    pub const fn optional(self) -> Self {
        Self { presence: Presence::Optional, ..self }
    }

    #[must_use]
    pub const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }
}

// === impl Kind ===

impl Kind {
    pub const fn integer(min: i64, max: i64, unit: &'static str) -> Self {
        Self::Integer { min, max, unit }
    }

    pub const fn duration(min: Duration, max: Duration) -> Self {
        Self::Duration { min, max }
    }

    pub const fn bytes(min: u64, max: u64) -> Self {
        Self::Bytes { min, max }
    }

    pub const fn url(schemes: &'static [&'static str]) -> Self {
        Self::Url { schemes }
    }

    pub const fn is_secret(&self) -> bool {
        matches!(self, Self::Secret)
    }

    /// What may be written, as the rest of a sentence that begins with "allowed is".
    pub fn allowed(&self) -> String {
        match self {
            Self::Text => "text that is not empty".into(),
            Self::Checked { allowed, .. } => (*allowed).into(),
            Self::Path => "a path".into(),
            Self::SocketAddress => "an IP address with a port, such as 127.0.0.1:8080 or [::1]:8080".into(),
            Self::Url { schemes } => format!("a URL that begins with {}", alternatives(schemes, "://")),
            Self::Integer { min, max, unit } => format!("an integer from {min} to {max} ({unit})"),
            Self::Duration { min, max } => format!(
                "a duration from {} to {}, such as 90s, 2m or 250ms",
                duration_text(*min),
                duration_text(*max)
            ),
            Self::Bytes { min, max } => {
                format!("a size from {} to {}, such as 512MiB or 20GiB", bytes_text(*min), bytes_text(*max))
            }
            Self::Bool => "true or false".into(),
            Self::OneOf(words) => alternatives(words, ""),
            Self::List => "a list of texts, or texts separated by commas".into(),
            Self::Secret => "a secret text that is not empty".into(),
        }
    }

    /// Something that is allowed, for the check that a section reads what it declares.
    pub(crate) fn example(&self) -> String {
        match self {
            Self::Text | Self::List | Self::Secret => "example".into(),
            Self::Checked { example, .. } => (*example).into(),
            Self::Path => "/example".into(),
            Self::SocketAddress => "127.0.0.1:8080".into(),
            Self::Url { schemes } => format!("{}://example.org", schemes.first().unwrap_or(&"http")),
            Self::Integer { min, .. } => min.to_string(),
            Self::Duration { min, .. } => duration_text(*min),
            Self::Bytes { min, .. } => bytes_text(*min),
            Self::Bool => "true".into(),
            Self::OneOf(words) => words.first().copied().unwrap_or_default().into(),
        }
    }
}

/// `a, b or c`, each with the suffix.
fn alternatives(words: &[&str], suffix: &str) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("{word}{suffix}")).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

/// In the largest unit that says it exactly.
pub(crate) fn duration_text(duration: Duration) -> String {
    let millis = duration.as_millis();
    [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")]
        .into_iter()
        .find(|(unit, _)| millis > 0 && millis.is_multiple_of(*unit))
        .map_or_else(|| format!("{millis}ms"), |(unit, name)| format!("{}{name}", millis / unit))
}

/// In the largest binary unit that says it exactly.
pub(crate) fn bytes_text(bytes: u64) -> String {
    [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")]
        .into_iter()
        .find(|(bits, _)| bytes > 0 && bytes.is_multiple_of(1 << bits))
        .map_or_else(|| format!("{bytes}B"), |(bits, name)| format!("{}{name}", bytes >> bits))
}
