//! What is wrong with a configuration, for the person who wrote it: which key, where it was set, what was found, and
//! what is allowed.

use std::fmt;

/// All mistakes of one reading, in the order of their keys. Its text has one line for each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Mistakes(pub Vec<Mistake>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    pub key: String,
    /// The file, the environment variable or the flag.
    pub source: String,
    pub fault: Fault,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    Invalid {
        found: String,
        allowed: String,
    },
    Missing {
        variable: String,
        allowed: String,
    },
    /// Its value is not shown: it may be a secret under a misspelt name.
    Unknown {
        nearest: Option<String>,
    },
    /// The source as a whole; `key` is empty.
    Unreadable {
        reason: String,
    },
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("the configuration has one mistake:")?,
            count => write!(f, "the configuration has {count} mistakes:")?,
        }
        self.0.iter().try_for_each(|mistake| write!(f, "\n  {mistake}"))
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, source, fault } = self;
        match fault {
            Fault::Invalid { found, allowed } => {
                write!(f, "{key}, from {source}: found {found}; allowed is {allowed}")
            }
            Fault::Missing { variable, allowed } => {
                write!(f, "{key}: not set; set it in the file or as {variable}; allowed is {allowed}")
            }
            Fault::Unknown { nearest: Some(nearest) } => {
                write!(f, "{key}, from {source}: there is no such setting; did you mean {nearest}?")
            }
            Fault::Unknown { nearest: None } => {
                write!(f, "{key}, from {source}: there is no such setting; remove it")
            }
            Fault::Unreadable { reason } => write!(f, "{source}: {reason}"),
        }
    }
}
