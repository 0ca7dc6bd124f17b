//! What a message looks like: one line, whatever is in it, and what stands before it on standard error.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// The message, and after it its fields (`txg=7`): one line without control characters.
pub(crate) struct Text(pub(crate) String);

/// Values of an event, as they are collected.
#[derive(Default)]
struct Parts {
    message: String,
    fields: String,
}

impl Visit for Parts {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

impl Text {
    pub(crate) fn of(event: &Event<'_>) -> Text {
        let mut parts = Parts::default();
        event.record(&mut parts);
        let (message, fields) = (one_line(&parts.message), one_line(&parts.fields));
        let between = if message.is_empty() || fields.is_empty() { "" } else { " " };
        Text(message + between + &fields)
    }
}

/// Several lines as one, and control characters in octal: names come from disks and devices, and must not look like another message.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for part in text.split('\n').map(str::trim).filter(|part| !part.is_empty()) {
        line += if line.is_empty() {
            ""
        } else if line.ends_with([':', ';']) {
            " "
        } else {
            "; "
        };
        for letter in part.chars() {
            let _ = if letter.is_control() { write!(line, "\\{:03o}", u32::from(letter)) } else { line.write_char(letter) };
        }
    }
    line
}

/// Beginning of a line of standard error.
pub(crate) enum Stamp {
    /// The local time and the level.
    Time(String),
    /// The level, as syslog numbers it: whoever reads it knows the time.
    Priority,
}

impl Stamp {
    /// The time (RFC 3339) in the machine's zone.
    pub(crate) fn time(clock: (i64, u32)) -> Stamp {
        Stamp::Time(time(clock, TimeZone::system()))
    }

    pub(crate) fn line(&self, level: Level, text: &Text) -> String {
        match self {
            Stamp::Time(time) => format!("{time} {:<5} {}\n", level.as_str(), text.0),
            Stamp::Priority => format!("<{}>{}\n", priority(level), text.0),
        }
    }
}

fn time((seconds, nanoseconds): (i64, u32), zone: TimeZone) -> String {
    let time = Timestamp::new(seconds, nanoseconds as i32).unwrap_or(Timestamp::UNIX_EPOCH);
    time.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string()
}

fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::offset;

    /// If this fails, what reads logs does not find time and level.
    #[test]
    fn lines_have_time_or_priority() {
        let zone = TimeZone::fixed(offset(-3));
        let stamp = Stamp::Time(time((1_700_000_000, 123_999_999), zone));
        let text = Text("pool 'tank' is suspended".into());
        assert_eq!(stamp.line(Level::WARN, &text), "2023-11-14T19:13:20.123-03:00 WARN  pool 'tank' is suspended\n");
        assert_eq!(Stamp::Priority.line(Level::ERROR, &text), "<3>pool 'tank' is suspended\n");
        assert_eq!(Stamp::Priority.line(Level::DEBUG, &text), "<7>pool 'tank' is suspended\n");
    }

    /// If this fails, a name from a device can forge a line of the log, or move the cursor of the terminal that shows it.
    #[test]
    fn a_message_is_one_line() {
        assert_eq!(one_line("cannot open 'a': no such pool\nimport it first\n"), "cannot open 'a': no such pool; import it first");
        assert_eq!(one_line("cannot mount:\n\ta\n\tb"), "cannot mount: a; b");
        assert_eq!(one_line("\u{1b}[2Jname\rx"), "\\033[2Jname\\015x");
        assert_eq!(one_line("größe"), "größe");
    }
}
