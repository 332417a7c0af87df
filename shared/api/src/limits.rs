//! How much a request may hold, and the scan of a body before it is parsed: how deep it is nested, and whether all of
//! its text can be stored. The scan is no parser: what it lets through still has to be JSON.

use domain::policy::MESSAGE_TEXT_MAX;

/// The longest text with each of its bytes escaped (`\u001f`), and room for the fields around it.
pub const BODY_MAX: usize = 6 * MESSAGE_TEXT_MAX + 64 * 1024;

/// What remains of a body that is too large is read and thrown away up to here, so that a client that only looks at the
/// answer once it has sent everything gets to see it.
pub const DISCARDED_MAX: usize = 4 * BODY_MAX;

/// An entry of the record as it is stored; the broker takes 1 MiB with the headers.
pub const ENTRY_MAX: usize = 1_000_000;

/// Levels of objects and lists in a body; ours have four, and what a client adds of its own is small.
pub const DEPTH_MAX: usize = 32;

/// Files named in one message, and the length of a name in bytes.
pub const FILES_MAX: usize = 32;
pub const FILE_NAME_MAX: usize = 2_048;

/// An idempotency key, in bytes. Any id in use fits.
pub const IDEMPOTENCY_KEY_MAX: usize = 255;

/// A name, an address or an id that is only shown, in characters.
pub const NAME_MAX: usize = 200;

/// An agent's description, in characters.
pub const DESCRIPTION_MAX: usize = 4_000;

/// An agent's instructions, in bytes.
pub const INSTRUCTIONS_MAX: usize = MESSAGE_TEXT_MAX;

/// What is shown of a key in a sentence, in bytes.
const KEY_SHOWN_MAX: usize = 64;

/// Why a body is not even parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// The keys on the way to the place, joined by dots; absent at the top.
    pub field: Option<String>,
    pub what: FlawKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlawKind {
    NotUtf8,
    TooDeep,
    Nul,
    LoneSurrogate,
}

/// Looks over a body once.
pub fn scan(body: &[u8]) -> Result<(), Flaw> {
    if std::str::from_utf8(body).is_err() {
        return Err(Flaw { field: None, what: FlawKind::NotUtf8 });
    }
    Scan { body, levels: Vec::new() }.run()
}

struct Scan<'a> {
    body: &'a [u8],
    /// For each open object or list, the key that was read last in it.
    levels: Vec<Option<&'a [u8]>>,
}

// === impl Flaw ===

impl Flaw {
    pub fn sentence(&self) -> String {
        let place = self.field.as_deref().unwrap_or("the body");
        match self.what {
            FlawKind::NotUtf8 => format!("{place} is not UTF-8; encode it so"),
            FlawKind::TooDeep => format!("{place} is nested deeper than {DEPTH_MAX} levels; flatten it"),
            FlawKind::Nul => format!("{place} holds a NUL character, which cannot be stored; remove it"),
            FlawKind::LoneSurrogate => {
                format!(
                    "{place} holds half of a surrogate pair, which is no character; send the whole pair or none"
                )
            }
        }
    }
}

// === impl Scan ===

impl<'a> Scan<'a> {
    fn run(mut self) -> Result<(), Flaw> {
        let mut at = 0;
        while let Some(byte) = self.body.get(at) {
            match byte {
                b'{' | b'[' => {
                    if self.levels.len() == DEPTH_MAX {
                        return Err(self.flaw(FlawKind::TooDeep));
                    }
                    self.levels.push(None);
                }
                b'}' | b']' => drop(self.levels.pop()),
                b'"' => {
                    at = self.string(at + 1)?;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        Ok(())
    }

    /// Reads the string that begins at `start` and returns where it is over.
    fn string(&mut self, start: usize) -> Result<usize, Flaw> {
        let mut at = start;
        let mut found = None;
        while let Some(byte) = self.body.get(at) {
            match byte {
                b'"' => break,
                b'\\' => {
                    let (length, flaw) = escape(&self.body[at..]);
                    found = found.or(flaw);
                    at += length;
                }
                0 => {
                    found = found.or(Some(FlawKind::Nul));
                    at += 1;
                }
                _ => at += 1,
            }
        }
        let end = at.min(self.body.len());
        let behind = self.body.get(end + 1..).unwrap_or_default();
        if behind.trim_ascii_start().first() == Some(&b':')
            && let Some(level) = self.levels.last_mut()
        {
            *level = Some(&self.body[start..end]);
        }
        match found {
            Some(what) => Err(self.flaw(what)),
            None => Ok(end + 1),
        }
    }

    fn flaw(&self, what: FlawKind) -> Flaw {
        let keys: Vec<_> = self.levels.iter().flatten().copied().map(shown).collect();
        Flaw { field: (!keys.is_empty()).then(|| keys.join(".")), what }
    }
}

/// The length of the escape that `text` begins with, and what is wrong with it. A whole surrogate pair is one.
fn escape(text: &[u8]) -> (usize, Option<FlawKind>) {
    const ONE: usize = "\\u0000".len();
    match code_unit(text) {
        None => (2, None),
        Some(0) => (ONE, Some(FlawKind::Nul)),
        Some(0xD800..=0xDBFF) => match code_unit(&text[ONE..]) {
            Some(0xDC00..=0xDFFF) => (2 * ONE, None),
            _ => (ONE, Some(FlawKind::LoneSurrogate)),
        },
        Some(0xDC00..=0xDFFF) => (ONE, Some(FlawKind::LoneSurrogate)),
        Some(_) => (ONE, None),
    }
}

/// The UTF-16 code unit of an escape such as `\u00e9` at the beginning of `text`.
fn code_unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u16::from_str_radix(digits, 16).ok()
}

fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[..key.len().min(KEY_SHOWN_MAX)]).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flaw(body: &str) -> Option<(Option<String>, FlawKind)> {
        scan(body.as_bytes()).err().map(|flaw| (flaw.field, flaw.what))
    }

    #[test]
    fn a_flaw_is_found_and_its_field_named() {
        for (body, field, what) in [
            (r#"{"input": {"text": "a\u0000b"}}"#, Some("input.text"), FlawKind::Nul),
            (r#"{"a": 1, "text" : "\ud800"}"#, Some("text"), FlawKind::LoneSurrogate),
            (r#"{"a": {"b": "x"}, "text": "\udc00"}"#, Some("text"), FlawKind::LoneSurrogate),
            (r#"{"files": ["ok", "\ud83d\u0041"]}"#, Some("files"), FlawKind::LoneSurrogate),
            (r#"{"a\u0000": 1}"#, Some(r"a\u0000"), FlawKind::Nul),
            (r#""\u0000""#, None, FlawKind::Nul),
            ("{\"text\": \"a\u{0}b\"}", Some("text"), FlawKind::Nul),
        ] {
            assert_eq!(flaw(body), Some((field.map(str::to_owned), what)), "{body}");
        }
        assert_eq!(scan(b"{\"a\": \"\xff\"}").unwrap_err().what, FlawKind::NotUtf8);
    }

    #[test]
    fn what_only_looks_like_a_flaw_passes() {
        for body in [
            r#"{"text": "\ud83d\ude00 \\u0000 \\\\ud800 \"{[{["}"#,
            r#"{"text": "\u00e9"}"#,
            r#"{"text": "unfinished \"#,
            r#"{"text": "\u12"#,
            "",
            "]]]}}}",
        ] {
            assert_eq!(flaw(body), None, "{body}");
        }
    }

    #[test]
    fn depth_is_counted_to_the_bound() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(flaw(&nested(DEPTH_MAX)), None);
        assert_eq!(flaw(&nested(DEPTH_MAX + 1)), Some((None, FlawKind::TooDeep)));
        let under = format!(r#"{{"extra": {}}}"#, nested(DEPTH_MAX));
        assert_eq!(flaw(&under), Some((Some("extra".into()), FlawKind::TooDeep)));
        assert!(flaw(&nested(100_000)).is_some());
    }

    proptest! {
        #[test]
        fn any_value_without_nul_passes_and_none_that_the_parser_refuses_for_text(text in "\\PC*", raw: Vec<u8>) {
            let clean = text.replace('\0', "");
            let body = serde_json::json!({ "a": [{ "text": clean }] }).to_string();
            prop_assert_eq!(scan(body.as_bytes()), Ok(()));
            // Never panics, whatever comes.
            let _ = scan(&raw);
        }
    }
}
