//! What a name that nobody knows may have been meant to be.

use super::sources::PREFIX;

/// The known name that a typing mistake may have been meant for: few edits away, or the same key in another section.
pub(crate) fn nearest(name: &str, known: impl Iterator<Item = String>) -> Option<String> {
    let last_part = |name: &str| name.replace("__", ".").rsplit('.').next().map(str::to_owned);
    let edits_max = 1 + name.strip_prefix(PREFIX).unwrap_or(name).len() / 5;
    known
        .map(|candidate| (edits(name, &candidate), candidate))
        .filter(|(edits, candidate)| *edits <= edits_max || last_part(name) == last_part(candidate))
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many characters must be put in, taken out or changed to come from one text to the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_count_every_kind_of_change() {
        for (from, to, expected) in
            [("slots", "slots", 0), ("slot", "slots", 1), ("slits", "slots", 1), ("", "abc", 3)]
        {
            assert_eq!((edits(from, to), edits(to, from)), (expected, expected), "{from} {to}");
        }
    }

    #[test]
    fn only_what_is_near_is_suggested() {
        let known = ["executor.slots", "executor.park_after", "http.listen"];
        let nearest = |name| nearest(name, known.iter().map(|&name| name.to_owned()));
        assert_eq!(nearest("executor.slot").as_deref(), Some("executor.slots"));
        assert_eq!(nearest("listen").as_deref(), Some("http.listen"));
        assert_eq!(nearest("telemetry.format"), None);
    }
}
