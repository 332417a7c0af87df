//! The settings of a program: from defaults, one TOML file, the environment and the command line, each over the one
//! before. Every component declares its own section as data and gets its own struct; every mistake in all of them is
//! reported at once. What is *not* here: any component's settings, and any rule that needs two of them.
//!
//! ```
//! use std::time::Duration;
//! use service::config::{Catalogue, Key, Kind, Misread, Section, Sources, Values};
//!
//! struct Parking {
//!     after: Duration,
//! }
//!
//! impl Section for Parking {
//!     const NAME: &'static str = "parking";
//!     const KEYS: &'static [Key] = &[Key::new(
//!         "after",
//!         Kind::duration(Duration::from_secs(1), Duration::from_secs(3600)),
//!         "How long an idle segment is kept",
//!     )
//!     .default("2m")];
//!
//!     fn read(values: &Values<'_>) -> Result<Self, Misread> {
//!         Ok(Self { after: values.get("after")? })
//!     }
//! }
//!
//! let sources = Sources::default().environment([("RESIDENT__PARKING__AFTER", "90s")]);
//! let settings = Catalogue::default().needs::<Parking>().read(&sources).unwrap();
//! assert_eq!(settings.section::<Parking>().unwrap().after, Duration::from_secs(90));
//! ```

mod check;
mod key;
mod layers;
mod markdown;
mod mistake;
mod nearest;
mod parse;
mod read;
mod sources;
mod values;

pub use check::assert_reads_all_keys;
pub use key::{Key, Kind, Presence};
pub use mistake::{Fault, Mistake, Mistakes};
pub use reqwest::Url;
pub use sources::{Sources, real_environment};
pub use values::{Misread, Setting, Settings, Values};

/// A component's settings.
pub trait Section: Sized {
    /// What stands before the key's name: `executor`, or `providers.anthropic`.
    const NAME: &'static str;
    const KEYS: &'static [Key];

    /// Takes the values, which obey their kinds by now. It fails only where it asks for what is not declared, and
    /// [`assert_reads_all_keys`] finds that in a test.
    fn read(values: &Values<'_>) -> Result<Self, Misread>;
}

/// The sections that a program knows. A file is shared by programs of several roles: a section that is only known
/// may stand in it, is checked as far as it is written, and may be incomplete.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    sections: Vec<Declared>,
}

#[derive(Debug, Clone, Copy)]
struct Declared {
    name: &'static str,
    keys: &'static [Key],
    needed: bool,
}

// === impl Catalogue ===

impl Catalogue {
    /// The program reads this section: its required keys must be set.
    #[must_use]
    pub fn needs<S: Section>(self) -> Self {
        self.declare::<S>(true)
    }

    /// The section belongs to another role.
    #[must_use]
    pub fn knows<S: Section>(self) -> Self {
        self.declare::<S>(false)
    }

    fn declare<S: Section>(mut self, needed: bool) -> Self {
        match self.sections.iter_mut().find(|section| section.name == S::NAME) {
            Some(section) => section.needed |= needed,
            None => self.sections.push(Declared { name: S::NAME, keys: S::KEYS, needed }),
        }
        self
    }
}

/// `executor.slots`
fn full_name(section: &str, key: &str) -> String {
    format!("{section}.{key}")
}

/// `RESIDENT__EXECUTOR__SLOTS`
fn variable_name(full_name: &str) -> String {
    format!("{}{}", sources::PREFIX, full_name.replace('.', "__").to_uppercase())
}
