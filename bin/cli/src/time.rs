//! Dates as commands print them: in the zone of whoever asks (`TZ`, else `/etc/localtime`), with C's words.

use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use std::time::{SystemTime, UNIX_EPOCH};

/// Text of a time for `zfs get creation`: `Sat Nov 21 22:00 2026`.
pub fn short(seconds: i64) -> String {
    local(seconds, "%a %b %e %k:%M %Y")
}

/// Text of a time for `zfs holds`: `Sat Nov 21 09:00 2026`.
pub fn hold(seconds: i64) -> String {
    local(seconds, "%a %b %e %H:%M %Y")
}

/// Text of a time for scan lines: `Sat Nov 21 22:00:00 2026` (C: `ctime`).
pub fn long(seconds: i64) -> String {
    local(seconds, "%a %b %e %H:%M:%S %Y")
}

/// Text of a time for history: `2026-11-21.22:00:00`.
pub fn history(seconds: i64) -> String {
    local(seconds, "%Y-%m-%d.%H:%M:%S")
}

/// Text of the time of day now: `22:00:00`.
pub fn clock() -> String {
    local(now(), "%H:%M:%S")
}

/// Seconds since the epoch, now.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs() as i64)
}

/// Text of a time for events: `Nov 21 2026 22:00:00`.
pub fn event(seconds: i64) -> String {
    local(seconds, "%b %e %Y %H:%M:%S")
}

fn local(seconds: i64, format: &str) -> String {
    text(seconds, TimeZone::system(), format)
}

/// Text of a date in a zone. What no calendar has (damaged labels say such things) stands as its number.
fn text(seconds: i64, zone: TimeZone, format: &str) -> String {
    let date = Timestamp::from_second(seconds).map(|time| Zoned::new(time, zone));
    date.ok().and_then(|date| strtime::format(format, &date).ok()).unwrap_or_else(|| seconds.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "%a %b %e %H:%M:%S %Y";

    #[test]
    fn dates_are_right_across_leap_years_and_before_the_epoch() {
        let at = |seconds| text(seconds, TimeZone::UTC, LONG);
        assert_eq!(at(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(at(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert_eq!(at(-1), "Wed Dec 31 23:59:59 1969");
        assert_eq!(at(i64::MAX), i64::MAX.to_string());
    }

    /// A user who sits east of Greenwich would look for yesterday's snapshot under today's date.
    #[test]
    fn dates_are_those_of_the_users_zone() {
        let zone = || TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone as TZ has it");
        assert_eq!(text(1_795_298_460, zone(), "%Y-%m-%d.%H:%M:%S"), "2026-11-21.23:01:00");
        assert_eq!(text(1_784_000_000, zone(), LONG), "Tue Jul 14 05:33:20 2026", "summer time");
        assert_eq!(text(1_784_000_000, zone(), "%a %b %e %k:%M %Y"), "Tue Jul 14  5:33 2026");
    }
}
