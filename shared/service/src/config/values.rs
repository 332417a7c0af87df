//! Typed access to settings that have been read.

use std::any::type_name;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use secrecy::SecretString;

use super::layers::DEFAULT_ORIGIN;
use super::parse::Parsed;
use super::{Section, full_name};

/// Everything that was read, without a mistake.
#[derive(Clone)]
pub struct Settings {
    pub(super) needed: BTreeSet<&'static str>,
    pub(super) entries: Entries,
}

/// A declared key by its full name; `None` where it is optional and set nowhere.
pub(super) type Entries = BTreeMap<String, Option<Entry>>;

#[derive(Clone)]
pub(super) struct Entry {
    pub(super) parsed: Parsed,
    pub(super) origin: String,
}

/// The values of one section.
pub struct Values<'a> {
    section: &'static str,
    entries: &'a Entries,
    /// The keys that were asked for, so that a test can tell which are declared in vain.
    pub(super) asked: RefCell<BTreeSet<&'static str>>,
}

/// A section asked for something that it does not declare. Only a change of the program mends it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misread {
    #[error("section {0} was read, but the program's catalogue does not need it; declare it with `needs`")]
    SectionNotNeeded(&'static str),
    #[error("setting {0} was read, but is not among the keys of its section; declare it there")]
    NotDeclared(String),
    #[error(
        "setting {key} was read as {wanted}, which its kind or its absence does not give; change one of them"
    )]
    OtherKind { key: String, wanted: &'static str },
}

/// A type that a setting can be read as; the set is closed, as that of the kinds is. `None` is a key that is optional
/// and set nowhere.
pub trait Setting: Sized {
    fn from_parsed(parsed: Option<&Parsed>) -> Option<Self>;
}

// === impl Settings ===

impl Settings {
    pub fn section<S: Section>(&self) -> Result<S, Misread> {
        if !self.needed.contains(S::NAME) {
            return Err(Misread::SectionNotNeeded(S::NAME));
        }
        S::read(&Values::new(S::NAME, &self.entries))
    }

    /// Where a setting's value comes from, for a sentence about what went wrong with it later.
    pub fn origin(&self, key: &str) -> Option<&str> {
        self.entries.get(key)?.as_ref().map(|entry| entry.origin.as_str())
    }

    /// Whether somebody has set the key.
    pub fn is_set(&self, key: &str) -> bool {
        self.origin(key).is_some_and(|origin| origin != DEFAULT_ORIGIN)
    }
}

// === impl Values ===

impl<'a> Values<'a> {
    pub(super) fn new(section: &'static str, entries: &'a Entries) -> Self {
        Self { section, entries, asked: RefCell::default() }
    }

    /// The value of a key, as the type of the field it goes into.
    pub fn get<T: Setting>(&self, name: &'static str) -> Result<T, Misread> {
        T::from_parsed(self.entry(name)?).ok_or_else(|| self.other_kind::<T>(name))
    }

    /// The value of a key with a closed set of words, each with what it stands for.
    pub fn choose<T: Clone>(&self, name: &'static str, choices: &[(&str, T)]) -> Result<T, Misread> {
        let choice = match self.entry(name)? {
            Some(Parsed::Word(word)) => choices.iter().find(|(choice, _)| choice == word),
            _ => None,
        };
        choice.map(|(_, value)| value.clone()).ok_or_else(|| self.other_kind::<T>(name))
    }

    fn entry(&self, name: &'static str) -> Result<Option<&Parsed>, Misread> {
        self.asked.borrow_mut().insert(name);
        let key = full_name(self.section, name);
        match self.entries.get(&key) {
            Some(entry) => Ok(entry.as_ref().map(|entry| &entry.parsed)),
            None => Err(Misread::NotDeclared(key)),
        }
    }

    fn other_kind<T>(&self, name: &str) -> Misread {
        Misread::OtherKind { key: full_name(self.section, name), wanted: type_name::<T>() }
    }
}

// === impl Setting ===

impl<T: Setting> Setting for Option<T> {
    fn from_parsed(parsed: Option<&Parsed>) -> Option<Self> {
        match parsed {
            None => Some(None),
            given => T::from_parsed(given).map(Some),
        }
    }
}

macro_rules! settings {
    ($($type:ty: $pattern:pat => $value:expr),* $(,)?) => {$(
        impl Setting for $type {
            fn from_parsed(parsed: Option<&Parsed>) -> Option<Self> {
                match parsed? {
                    $pattern => $value,
                    _ => None,
                }
            }
        }
    )*};
}

settings! {
    String: Parsed::Text(text) => Some(text.clone()),
    PathBuf: Parsed::Path(path) => Some(path.clone()),
    SocketAddr: Parsed::SocketAddress(address) => Some(*address),
    Url: Parsed::Url(url) => Some(url.clone()),
    i64: Parsed::Integer(integer) => Some(*integer),
    u16: Parsed::Integer(integer) => (*integer).try_into().ok(),
    u32: Parsed::Integer(integer) => (*integer).try_into().ok(),
    u64: Parsed::Bytes(bytes) => Some(*bytes),
    usize: Parsed::Integer(integer) => (*integer).try_into().ok(),
    Duration: Parsed::Duration(duration) => Some(*duration),
    bool: Parsed::Bool(value) => Some(*value),
    Vec<String>: Parsed::List(items) => Some(items.clone()),
    SecretString: Parsed::Secret(secret) => Some(secret.clone()),
}

// Names only: a value may be a secret.

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.entries.keys()).finish()
    }
}

impl fmt::Debug for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").field("section", &self.section).finish_non_exhaustive()
    }
}
