//! Text from devices and from users as people may see it: what a terminal would take for an order is written out.

use std::borrow::Cow;

/// Text on one line: control characters, line ends too, as the octal numbers of their bytes (`\033`).
pub fn shown(text: &str) -> Cow<'_, str> {
    without(text, char::is_control)
}

/// Text of several lines: control characters but line ends and tabs as the octal numbers of their bytes.
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    without(text, |letter| letter.is_control() && !matches!(letter, '\n' | '\t'))
}

fn without(text: &str, is_written_out: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_written_out) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_written_out(letter) {
            letter.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| out.push_str(&format!("\\{byte:03o}")));
        } else {
            out.push(letter);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a pool on a disk that somebody left lying around types at the terminal of who looks at it, or shows lines of its own.
    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert!(matches!(shown("tank äöü"), Cow::Borrowed("tank äöü")));
        assert_eq!(shown("a\u{1b}]0;x\u{7}\nb\tc\r\u{7f}\u{9b}"), "a\\033]0;x\\007\\012b\\011c\\015\\177\\302\\233");
        assert_eq!(shown_lines("a\tb\n\u{1b}[2Jc"), "a\tb\n\\033[2Jc");
    }
}
