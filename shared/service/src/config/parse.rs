//! From what was written to a value of the declared kind. Pure; where it was written does not matter here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::config::ValueKind;
use reqwest::Url;
use secrecy::SecretString;

use super::key::Kind;

/// A value that obeys its kind.
#[derive(Debug, Clone)]
pub enum Parsed {
    Text(String),
    Path(PathBuf),
    SocketAddress(SocketAddr),
    Url(Url),
    Integer(i64),
    Duration(Duration),
    Bytes(u64),
    Bool(bool),
    Word(&'static str),
    List(Vec<String>),
    Secret(SecretString),
}

/// How much of a wrong value is repeated to its writer: enough to recognise it, short enough for one line.
const FOUND_CHARS_MAX: usize = 60;

/// `None` where the value breaks the kind's rule; `Kind::allowed` says what the rule is.
pub(crate) fn parse(kind: &Kind, found: &ValueKind) -> Option<Parsed> {
    match kind {
        Kind::Text => text(found).map(|text| Parsed::Text(text.into())),
        Kind::Checked { check, .. } => {
            text(found).filter(|text| check(text)).map(|text| Parsed::Text(text.into()))
        }
        Kind::Path => text(found).map(|text| Parsed::Path(text.into())),
        Kind::SocketAddress => text(found)?.parse().ok().map(Parsed::SocketAddress),
        Kind::Url { schemes } => {
            let url = Url::parse(text(found)?).ok()?;
            (schemes.contains(&url.scheme()) && url.has_host()).then_some(Parsed::Url(url))
        }
        Kind::Integer { min, max, .. } => {
            let integer = match found {
                ValueKind::I64(integer) => *integer,
                _ => text(found)?.parse().ok()?,
            };
            (*min..=*max).contains(&integer).then_some(Parsed::Integer(integer))
        }
        Kind::Duration { min, max } => {
            let duration = duration(text(found)?)?;
            (*min..=*max).contains(&duration).then_some(Parsed::Duration(duration))
        }
        Kind::Bytes { min, max } => {
            let bytes = match found {
                ValueKind::I64(bytes) => u64::try_from(*bytes).ok()?,
                _ => bytes(text(found)?)?,
            };
            (*min..=*max).contains(&bytes).then_some(Parsed::Bytes(bytes))
        }
        Kind::Bool => match found {
            ValueKind::Boolean(value) => Some(Parsed::Bool(*value)),
            _ => text(found)?.parse().ok().map(Parsed::Bool),
        },
        Kind::OneOf(words) => {
            let text = text(found)?;
            words.iter().find(|word| **word == text).map(|word| Parsed::Word(word))
        }
        Kind::List => list(found).map(Parsed::List),
        Kind::Secret => text(found).map(|text| Parsed::Secret(text.into())),
    }
}

/// What was written, for the sentence about it. A secret is not repeated, nor is what stands before the `@` of
/// something that was meant as a URL.
pub(crate) fn describe(kind: &Kind, found: &ValueKind) -> String {
    match found {
        _ if kind.is_secret() => "a value that is not shown".into(),
        ValueKind::String(text) if text.is_empty() => "nothing".into(),
        ValueKind::String(text) => {
            let shown = match (kind, text.rsplit_once('@')) {
                (Kind::Url { .. }, Some((_, rest))) => format!("…@{rest}"),
                _ => text.clone(),
            };
            let end = shown.char_indices().nth(FOUND_CHARS_MAX).map(|(at, _)| at);
            end.map_or_else(|| format!("{shown:?}"), |end| format!("{:?}…", &shown[..end]))
        }
        ValueKind::Table(_) => "a section".into(),
        ValueKind::Array(_) => "a list".into(),
        ValueKind::Nil => "nothing".into(),
        number_or_bool => number_or_bool.to_string(),
    }
}

fn text(found: &ValueKind) -> Option<&str> {
    match found {
        ValueKind::String(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}

fn list(found: &ValueKind) -> Option<Vec<String>> {
    match found {
        ValueKind::Array(items) => items.iter().map(|item| text(&item.kind).map(str::to_owned)).collect(),
        ValueKind::String(items) => {
            Some(items.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect())
        }
        _ => None,
    }
}

/// One or more numbers, each with its unit: `90s`, `1h30m`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    loop {
        let (number, after) = leading_number(rest)?;
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let millis_per_unit: u64 = match &after[..unit_end] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        total = total.checked_add(Duration::from_millis(number.checked_mul(millis_per_unit)?))?;
        rest = &after[unit_end..];
        if rest.is_empty() {
            return Some(total);
        }
    }
}

/// A number of bytes, alone or with a binary or decimal unit.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = leading_number(text.trim())?;
    let per_unit: u64 = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return None,
    };
    number.checked_mul(per_unit)
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::key::{bytes_text, duration_text};

    fn read(kind: Kind, found: impl Into<ValueKind>) -> Option<String> {
        parse(&kind, &found.into()).map(|parsed| format!("{parsed:?}"))
    }

    const MINUTE_TO_DAY: Kind = Kind::duration(Duration::from_mins(1), Duration::from_hours(24));

    #[test]
    fn each_kind_takes_what_it_allows_and_nothing_else() {
        let schemes = Kind::url(&["nats", "tls"]);
        let checked = Kind::Checked {
            allowed: "even length",
            example: "ab",
            check: |text| text.len().is_multiple_of(2),
        };
        let cases: &[(Kind, ValueKind, Option<&str>)] = &[
            (Kind::Text, "a b".into(), Some("Text(\"a b\")")),
            (Kind::Text, "".into(), None),
            (Kind::Text, 7_i64.into(), None),
            (checked, "abcd".into(), Some("Text(\"abcd\")")),
            (checked, "abc".into(), None),
            (Kind::Path, "/var/lib".into(), Some("Path(\"/var/lib\")")),
            (Kind::Path, "".into(), None),
            (Kind::SocketAddress, "[::1]:80".into(), Some("SocketAddress([::1]:80)")),
            (Kind::SocketAddress, "localhost:80".into(), None),
            (schemes, "http://host".into(), None),
            (schemes, "nats:host".into(), None),
            (Kind::integer(1, 9, "things"), 9_i64.into(), Some("Integer(9)")),
            (Kind::integer(1, 9, "things"), "9".into(), Some("Integer(9)")),
            (Kind::integer(1, 9, "things"), "10".into(), None),
            (Kind::integer(1, 9, "things"), 0_i64.into(), None),
            (Kind::integer(1, 9, "things"), ValueKind::Float(2.0), None),
            (MINUTE_TO_DAY, "2m".into(), Some("Duration(120s)")),
            (MINUTE_TO_DAY, "1h30m".into(), Some("Duration(5400s)")),
            (MINUTE_TO_DAY, "59s".into(), None),
            (MINUTE_TO_DAY, "2d".into(), None),
            (MINUTE_TO_DAY, "120".into(), None),
            (MINUTE_TO_DAY, "2 fortnights".into(), None),
            (MINUTE_TO_DAY, 120_i64.into(), None),
            (Kind::bytes(0, 1 << 40), "20GiB".into(), Some("Bytes(21474836480)")),
            (Kind::bytes(0, 1 << 40), "2 kB".into(), Some("Bytes(2000)")),
            (Kind::bytes(0, 1 << 40), 512_i64.into(), Some("Bytes(512)")),
            (Kind::bytes(0, 1 << 40), (-1_i64).into(), None),
            (Kind::bytes(0, 1 << 40), "2TiB".into(), None),
            (Kind::bytes(0, 1 << 40), "99999999999TiB".into(), None),
            (Kind::Bool, true.into(), Some("Bool(true)")),
            (Kind::Bool, "false".into(), Some("Bool(false)")),
            (Kind::Bool, "yes".into(), None),
            (Kind::OneOf(&["json", "text"]), "text".into(), Some("Word(\"text\")")),
            (Kind::OneOf(&["json", "text"]), "yaml".into(), None),
            (Kind::List, " a, b ,".into(), Some("List([\"a\", \"b\"])")),
            (Kind::List, vec!["a", "b,c"].into(), Some("List([\"a\", \"b,c\"])")),
            (Kind::List, vec![1_i64].into(), None),
            (Kind::Secret, "".into(), None),
        ];
        for (kind, found, expected) in cases {
            assert_eq!(read(*kind, found.clone()).as_deref(), *expected, "{kind:?} from {found:?}");
        }
        assert!(matches!(parse(&schemes, &"tls://host:4222".into()), Some(Parsed::Url(_))));
    }

    #[test]
    fn neither_a_secret_nor_a_password_in_a_url_is_repeated() {
        assert_eq!(describe(&Kind::Secret, &"sk-1".into()), "a value that is not shown");
        assert!(!read(Kind::Secret, "sk-1").unwrap().contains("sk-1"));
        let shown = describe(&Kind::url(&["nats"]), &"nats//me:pass@host".into());
        assert_eq!(shown, "\"…@host\"");
    }

    #[test]
    fn a_long_value_is_cut() {
        assert_eq!(
            describe(&Kind::Bool, &"ä".repeat(100).into()),
            format!("{:?}…", "ä".repeat(FOUND_CHARS_MAX))
        );
    }

    #[test]
    fn what_is_written_for_people_reads_back() {
        for millis in [0, 250, 1_000, 90_000, 120_000, 7_200_000, 172_800_000] {
            let expected = Duration::from_millis(millis);
            assert_eq!(duration(&duration_text(expected)), Some(expected));
        }
        for expected in [0, 1, 1_000, 1 << 20, 20 << 30, 3 << 40] {
            assert_eq!(bytes(&bytes_text(expected)), Some(expected));
        }
    }
}
