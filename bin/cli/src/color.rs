//! Colours of `zpool status`, for terminals of those who set `ZFS_COLOR` (OpenZFS: `use_color`, `printf_color`).

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
}

impl Color {
    fn code(self) -> &'static str {
        match self {
            Color::Bold => "\x1b[1m",
            Color::Red => "\x1b[0;31m",
            Color::Yellow => "\x1b[0;33m",
            Color::Blue => "\x1b[0;34m",
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
const CODES: [&str; 5] = ["\x1b[1m", "\x1b[0;31m", "\x1b[0;33m", "\x1b[0;34m", "\x1b[0m"];

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
