//! Colours of `zpool status`, `zfs list` and `zfs diff`, for terminals of those who set `ZFS_COLOR` (OpenZFS: `use_color`, `printf_color`).

use std::borrow::Cow;
use std::io::IsTerminal;
use std::sync::OnceLock;

/// Colour of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// Bold, for headings.
    Bold,
    /// Red, for what is broken.
    Red,
    /// Yellow, for what works worse than it should.
    Yellow,
    /// Blue, for what is slow.
    Blue,
    /// Green, for what is new.
    Green,
    /// Blue and bold, for what has another name.
    BoldBlue,
}

impl Color {
    fn code(self) -> &'static str {
        match self {
            Color::Bold => "\x1b[1m",
            Color::Red => "\x1b[0;31m",
            Color::Yellow => "\x1b[0;33m",
            Color::Blue => "\x1b[0;34m",
            Color::Green => "\x1b[0;32m",
            Color::BoldBlue => "\x1b[1;34m",
        }
    }

    /// Colour of a state; none for what is as it should be.
    pub fn of_state(state: &str) -> Option<Color> {
        match state {
            "FAULTED" | "SUSPENDED" | "UNAVAIL" => Some(Color::Red),
            "OFFLINE" | "DEGRADED" | "REMOVED" => Some(Color::Yellow),
            _ => None,
        }
    }
}

/// True for a variable that says yes: a number other than 0, `yes` or `on` (OpenZFS: `libzfs_envvar_is_set`).
pub fn is_set(name: &str) -> bool {
    let Ok(value) = std::env::var(name) else { return false };
    let digits: String = value.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.bytes().any(|digit| digit != b'0') || value.eq_ignore_ascii_case("yes") || value.eq_ignore_ascii_case("on")
}

fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| {
        let knows_colours = std::env::var("TERM").is_ok_and(|term| term != "dumb" && term != "unknown");
        is_set("ZFS_COLOR") && !is_set("NO_COLOR") && knows_colours && std::io::stdout().is_terminal()
    })
}

/// Codes that [`paint`] puts around texts, all of them.
const CODES: [&str; 7] = ["\x1b[1m", "\x1b[0;31m", "\x1b[0;33m", "\x1b[0;34m", "\x1b[0;32m", "\x1b[1;34m", "\x1b[0m"];

/// Codes that may stand in a text for a terminal besides letters: none where colours are not wanted.
pub(crate) fn codes() -> &'static [&'static str] {
    if is_on() { &CODES } else { &[] }
}

/// Text in a colour, where colours are wanted.
pub fn paint(color: Option<Color>, text: &str) -> Cow<'_, str> {
    match color {
        Some(color) if is_on() => Cow::Owned(format!("{}{text}\x1b[0m", color.code())),
        _ => Cow::Borrowed(text),
    }
}

/// Codes before and after a text in a colour that is printed as bytes; empty where colours are not wanted.
pub fn around(color: Option<Color>) -> (&'static str, &'static str) {
    match color {
        Some(color) if is_on() => (color.code(), "\x1b[0m"),
        _ => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A code that is not known would be shown to people as what it is made of.
    #[test]
    fn every_code_may_go_to_a_terminal() {
        for color in [Color::Bold, Color::Red, Color::Yellow, Color::Blue, Color::Green, Color::BoldBlue] {
            assert!(CODES.contains(&color.code()), "{color:?}");
        }
    }
}
