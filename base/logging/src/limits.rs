//! How often one place in the code is heard: whoever can have a daemon say something, anybody who connects to it, must not be able to fill its
//! log with it, nor have what else is said go under.

use crate::line::Text;
use exec::Mutex;
use std::collections::BTreeMap;
use tracing::Level;

/// Lines of one place in the code within one span of time.
const LINES_MAX: u64 = 100;
/// Seconds of a span.
const SPAN_S: i64 = 60;

/// File and line in the code.
type Place = (&'static str, u32);

/// Message as it was said.
type Said = (Level, Text);

/// Messages of a place since the first one of a span.
struct Lately {
    since_s: i64,
    count: u64,
    /// Last one that was told, once there are too many.
    last: Option<Said>,
}

impl Lately {
    /// Message about those that were not told.
    fn rest(&mut self) -> Option<Said> {
        let rest = self.count.checked_sub(LINES_MAX).filter(|rest| *rest > 0)?;
        let (level, Text(last)) = self.last.take()?;
        Some((level, Text(format!("… and {rest} more of these: {last}"))))
    }
}

/// Places in the code that said something lately.
pub(crate) struct Limits(Mutex<BTreeMap<Place, Lately>>);

impl Limits {
    pub(crate) const fn new() -> Limits {
        Limits(Mutex::new(BTreeMap::new()))
    }

    /// Messages to tell now that a place says something: how many others were not told in spans that are over, and this one, unless there are too
    /// many of it.
    pub(crate) fn admit(&self, place: Place, (level, text): Said, now_s: i64) -> Vec<Said> {
        let mut places = self.0.lock();
        let mut told = Vec::new();
        places.retain(|_, lately| {
            // A clock that was set back begins a new span.
            let is_over = !(0..SPAN_S).contains(&now_s.saturating_sub(lately.since_s));
            if is_over {
                told.extend(lately.rest());
            }
            !is_over
        });
        let lately = places.entry(place).or_insert_with(|| Lately { since_s: now_s, count: 0, last: None });
        lately.count += 1;
        if lately.count < LINES_MAX {
            told.push((level, text));
        } else if lately.count == LINES_MAX {
            let warning = format!("{} (those that follow within {SPAN_S} s are counted)", text.0);
            told.push((level, Text(warning)));
            lately.last = Some((level, text));
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOOR: Place = ("door.rs", 1);
    const OTHER: Place = ("other.rs", 2);

    fn say(limits: &Limits, place: Place, text: &str, now_s: i64) -> Vec<String> {
        limits.admit(place, (Level::WARN, Text(text.into())), now_s).into_iter().map(|(_, text)| text.0).collect()
    }

    /// If this fails, anybody who can connect fills the memory or the disk of the daemon's host with its log, or hides in it what else was said.
    #[test]
    fn one_place_is_heard_so_often_and_its_rest_in_one_line() {
        let limits = Limits::new();
        let lines: usize = (0..100_000).map(|number| say(&limits, DOOR, &format!("refused: {number}"), 1000 + number / 5000).len()).sum();
        assert_eq!(lines as u64, LINES_MAX);
        assert_eq!(say(&limits, OTHER, "something else", 1050), ["something else"], "others are heard meanwhile");
        assert!(say(&limits, DOOR, "refused", 1059).is_empty());
        let rest = 100_001 - LINES_MAX;
        let wanted = [format!("… and {rest} more of these: refused: {}", LINES_MAX - 1), "a minute later".to_string()];
        assert_eq!(say(&limits, OTHER, "a minute later", 1060), wanted, "whoever says something tells of them");
        assert_eq!(say(&limits, DOOR, "again", 1061), ["again"]);
        assert_eq!(say(&limits, DOOR, "a clock that was set back", 500), ["a clock that was set back"]);
    }
}
