//! The check that a section reads exactly what it declares. It is for tests and fails by panicking.

use super::key::{Kind, Presence};
use super::parse::parse;
use super::values::{Entries, Entry};
use super::{Section, Values, full_name};

/// Every key is well formed, has a value that its kind allows, is read, and is read as a type that its kind gives,
/// for every word of a closed set, set or not where it is optional; nothing undeclared is read.
///
/// # Panics
///
/// Where one of these does not hold, with the key's name.
pub fn assert_reads_all_keys<S: Section>() {
    let mut names: Vec<&str> = S::KEYS.iter().map(|key| key.name).collect();
    names.sort_unstable();
    assert!(
        names.windows(2).all(|pair| pair[0] != pair[1]),
        "{}: a key is declared twice: {names:?}",
        S::NAME
    );
    for name in S::NAME.split('.').chain(names.iter().copied()) {
        assert!(is_snake_case(name), "{}: {name:?} is no name; write it in snake case", S::NAME);
    }
    assert!(S::KEYS.iter().all(|key| !key.about.is_empty()), "{}: a key does not say what it is", S::NAME);

    read_with::<S>(&entries::<S>(false, 0));
    read_with::<S>(&entries::<S>(true, 0));
    let words_max = S::KEYS.iter().map(|key| words(&key.kind).len()).max().unwrap_or(0);
    for nth in 1..words_max {
        read_with::<S>(&entries::<S>(false, nth));
    }
}

fn read_with<S: Section>(entries: &Entries) {
    let values = Values::new(S::NAME, entries);
    let outcome = S::read(&values);
    assert!(outcome.is_ok(), "{}: {:?}", S::NAME, outcome.err());
    let asked = values.asked.into_inner();
    let unread: Vec<&str> = S::KEYS.iter().map(|key| key.name).filter(|name| !asked.contains(name)).collect();
    assert!(unread.is_empty(), "{}: declared but never read: {unread:?}", S::NAME);
}

/// A value for every key: the `nth` word of a closed set, else the default, else an example.
fn entries<S: Section>(absent_where_optional: bool, nth: usize) -> Entries {
    let entries = S::KEYS.iter().map(|key| {
        let name = full_name(S::NAME, key.name);
        if absent_where_optional && key.presence == Presence::Optional {
            return (name, None);
        }
        let text = match (words(&key.kind).get(nth), key.presence) {
            (Some(word), _) => (*word).to_owned(),
            (None, Presence::Default(value)) => value.to_owned(),
            (None, _) => key.kind.example(),
        };
        let parsed = parse(&key.kind, &text.as_str().into());
        assert!(parsed.is_some(), "{name}: {text:?} is not {}", key.kind.allowed());
        (name, parsed.map(|parsed| Entry { parsed, origin: "an example".into() }))
    });
    entries.collect()
}

fn words(kind: &Kind) -> &'static [&'static str] {
    match kind {
        Kind::OneOf(words) => words,
        _ => &[],
    }
}

fn is_snake_case(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(plain) && !name.contains("__")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Key, Misread};

    const KEYS: &[Key] = &[
        Key::new("slots", Kind::integer(1, 9, "segments"), "Slots").default("4"),
        Key::new("format", Kind::OneOf(&["json", "text"]), "Format").default("json"),
        Key::new("home", Kind::Path, "Home").optional(),
    ];

    macro_rules! section {
        ($name:ident, $keys:expr, |$values:ident| $read:expr) => {
            #[derive(Debug)]
            struct $name;
            impl Section for $name {
                const NAME: &'static str = "sample";
                const KEYS: &'static [Key] = $keys;
                fn read($values: &Values<'_>) -> Result<Self, Misread> {
                    $read;
                    Ok(Self)
                }
            }
        };
    }

    section!(Good, KEYS, |values| {
        values.get::<u16>("slots")?;
        values.get::<Option<std::path::PathBuf>>("home")?;
        values.choose("format", &[("json", 1), ("text", 2)])?
    });
    section!(Misspelt, KEYS, |values| values.get::<u16>("slotz")?);
    section!(OtherType, KEYS, |values| values.get::<String>("slots")?);
    section!(Unread, KEYS, |values| values.get::<u16>("slots")?);
    section!(NotOptional, &[Key::new("home", Kind::Path, "Home").optional()], |values| values
        .get::<std::path::PathBuf>(
        "home"
    )?);
    section!(WordForgotten, KEYS, |values| {
        values.get::<u16>("slots")?;
        values.get::<Option<std::path::PathBuf>>("home")?;
        values.choose("format", &[("json", 1)])?
    });
    section!(
        BadDefault,
        &[Key::new("slots", Kind::integer(1, 9, "segments"), "Slots").default("10")],
        |values| values.get::<u16>("slots")?
    );

    #[test]
    fn what_is_declared_and_read_alike_passes() {
        assert_reads_all_keys::<Good>();
    }

    #[test]
    fn every_way_to_part_from_the_declaration_fails() {
        let fails = |check: fn()| std::panic::catch_unwind(check).is_err();
        assert!(fails(assert_reads_all_keys::<Misspelt>));
        assert!(fails(assert_reads_all_keys::<OtherType>));
        assert!(fails(assert_reads_all_keys::<Unread>));
        assert!(fails(assert_reads_all_keys::<NotOptional>));
        assert!(fails(assert_reads_all_keys::<WordForgotten>));
        assert!(fails(assert_reads_all_keys::<BadDefault>));
    }
}
