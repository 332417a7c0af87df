//! Who said what in the texts of a Claude Code request. The harness mixes its own words into user texts, tool
//! results and items of role `system`; this takes them apart again. Pure text, no JSON.

const REMINDER_OPENS: &str = "<system-reminder>";
const REMINDER_CLOSES: &str = "</system-reminder>";
const STEER_OPENS: &str = "The user sent a new message while you were working:\n";
const STEER_CLOSES: &str = "\n\nIMPORTANT: After completing your current task";

/// Openings of user texts that no person wrote.
const MARKS: [&str; 4] =
    ["[Request interrupted by user", "<local-command-", "<command-name>", "<command-message>"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said<'a> {
    Words(&'a str),
    Steer(&'a str),
    Injected(&'a str),
}

/// A text of role `user`, or of a tool's result: reminders stand anywhere in it, and on models that take no `system`
/// items a steer stands in a reminder.
pub(super) fn in_words(mut text: &str) -> Vec<Said<'_>> {
    let mut said = Vec::new();
    while let Some((before, rest)) = text.split_once(REMINDER_OPENS) {
        let (inside, after) = rest.split_once(REMINDER_CLOSES).unwrap_or((rest, ""));
        said.extend(words(before));
        said.extend(in_system(inside));
        text = after;
    }
    said.extend(words(text));
    said
}

/// An item of role `system`, or the inside of a reminder: one may hold several steers, and reminders beside them.
pub(super) fn in_system(mut text: &str) -> Vec<Said<'_>> {
    let mut said = Vec::new();
    while let Some((before, rest)) = text.split_once(STEER_OPENS) {
        let (steer, after) = rest.split_once(STEER_CLOSES).unwrap_or((rest, ""));
        said.extend(injected(before));
        said.push(Said::Steer(steer.trim()));
        text = after.split_once('\n').map_or("", |(_closing_line, rest)| rest);
    }
    said.extend(injected(text));
    said
}

fn words(text: &str) -> Option<Said<'_>> {
    let text = text.trim();
    match MARKS.iter().any(|mark| text.starts_with(mark)) {
        true => injected(text),
        false => (!text.is_empty()).then_some(Said::Words(text)),
    }
}

fn injected(text: &str) -> Option<Said<'_>> {
    let text = text.trim();
    (!text.is_empty()).then_some(Said::Injected(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSING: &str = "IMPORTANT: After completing your current task, you MUST address the user's message above. \
                           Do not ignore it.";

    fn steer(text: &str) -> String {
        format!("{STEER_OPENS}{text}\n\n{CLOSING}")
    }

    #[test]
    fn a_reminder_is_not_what_the_person_said() {
        let text = "<system-reminder>\nToday's date.\n</system-reminder>\n\nbuild the thing\n";
        assert_eq!(in_words(text), [Said::Injected("Today's date."), Said::Words("build the thing")]);
    }

    #[test]
    fn two_steers_and_a_reminder_share_one_system_item() {
        let text = format!("{}\n\n{}\n\nThe task tools were not used.", steer("one\nmore"), steer("two"));
        let apart =
            [Said::Steer("one\nmore"), Said::Steer("two"), Said::Injected("The task tools were not used.")];
        assert_eq!(in_system(&text), apart);
    }

    #[test]
    fn a_steer_inside_a_tool_result_is_taken_out_of_it() {
        let text = format!("output\n\n<system-reminder>\n{}\n</system-reminder>", steer("also that"));
        assert_eq!(in_words(&text), [Said::Words("output"), Said::Steer("also that")]);
    }

    #[test]
    fn marks_of_the_harness_are_nobodys_words() {
        assert_eq!(
            in_words("[Request interrupted by user]\n"),
            [Said::Injected("[Request interrupted by user]")]
        );
        assert_eq!(in_words("  \n"), []);
    }
}
