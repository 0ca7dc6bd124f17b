//! `[interval [count]]` at the end of a command line, and the time stamps of `-T`.

use crate::{Stop, time};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Interval and number of repetitions of something that is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Repeat {
    /// Seconds between two repetitions; None prints once.
    pub interval: Option<f64>,
    /// Number of repetitions; None is without end.
    pub count: Option<u64>,
}

impl Repeat {
    /// Takes up to two numbers off the end of the words.
    pub fn split(words: &[String]) -> Result<(Vec<String>, Repeat), Stop> {
        let number = |word: Option<&String>| word.and_then(|word| word.parse::<f64>().ok()).filter(|number| number.is_finite());
        let zero = || Stop::usage("interval cannot be zero");
        let (names, repeat) = match words {
            [names @ .., interval, count] if number(Some(interval)).is_some() && number(Some(count)).is_some() => {
                let times = number(Some(count)).unwrap_or_default();
                (names, Repeat { interval: number(Some(interval)), count: Some(times as u64) })
            }
            [names @ .., interval] if number(Some(interval)).is_some() => (names, Repeat { interval: number(Some(interval)), count: None }),
            names => (names, Repeat::default()),
        };
        if repeat.interval.is_some_and(|seconds| seconds <= 0.0) || repeat.count == Some(0) {
            return Err(zero());
        }
        Ok((names.to_vec(), repeat))
    }

    /// Runs `print` as often as asked for, with its pauses.
    pub fn run(self, mut print: impl FnMut() -> Result<u8, Stop>) -> Result<u8, Stop> {
        let mut shown = 0;
        loop {
            let code = print()?;
            shown += 1;
            match self.interval {
                Some(seconds) if self.count.is_none_or(|count| shown < count) => std::thread::sleep(Duration::from_secs_f64(seconds)),
                _ => return Ok(code),
            }
        }
    }
}

/// Time stamp that `-T u` (seconds since the epoch) or `-T d` (a date) asks for.
pub fn timestamp(format: Option<&str>) -> Result<Option<String>, Stop> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs() as i64);
    match format {
        None => Ok(None),
        Some("u") => Ok(Some(now.to_string())),
        Some("d") => Ok(Some(time::long(now))),
        Some(other) => Err(Stop::usage(format!("invalid time stamp format '{other}'"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Result<(Vec<String>, Repeat), Stop> {
        Repeat::split(&text.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn trailing_numbers_are_interval_and_count_and_all_else_are_names() {
        let (names, repeat) = split("tank 0.5 3").expect("valid");
        assert_eq!((names, repeat), (vec!["tank".to_string()], Repeat { interval: Some(0.5), count: Some(3) }));
        assert_eq!(split("a b").expect("valid").1, Repeat::default());
        assert_eq!(split("2").expect("valid").1, Repeat { interval: Some(2.0), count: None });
        assert!(split("tank 0").is_err(), "an interval of zero would spin");
    }

    #[test]
    fn what_is_asked_for_three_times_is_printed_three_times() {
        let mut shown = 0;
        let code = Repeat { interval: Some(1e-6), count: Some(3) }.run(|| {
            shown += 1;
            Ok(0)
        });
        assert_eq!((code.expect("printed"), shown), (0, 3));
    }
}
