//! Makes text from other sources safe to print: a terminal must not obey it, and it must not look like a line of ours.

use std::borrow::Cow;

/// One line, or a part of one: control characters are shown, and line breaks are among them.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    shown_unless(text, |_| false)
}

/// Lines of ours: line breaks are kept.
pub fn sanitize_lines(text: &str) -> Cow<'_, str> {
    shown_unless(text, |letter| letter == '\n')
}

fn shown_unless(text: &str, kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let harms = |letter: char| letter.is_control() && !kept(letter);
    if !text.contains(harms) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if harms(letter) {
            shown.extend(letter.escape_debug());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_letters_stay() {
        assert_eq!(sanitize("zone-\u{e9}-\u{6771}\u{4eac} \"\\"), "zone-\u{e9}-\u{6771}\u{4eac} \"\\");
        assert_eq!(sanitize("a\nb\t\u{1b}[31m\r\u{7f}\u{9b}2J"), r"a\nb\t\u{1b}[31m\r\u{7f}\u{9b}2J");
        assert_eq!(sanitize_lines("a\nb\u{1b}[31m"), "a\nb\\u{1b}[31m");
    }
}
