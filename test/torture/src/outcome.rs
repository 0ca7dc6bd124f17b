//! Verdicts: what trials counted and which of them failed, with panics caught and named.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Number of failures that are kept with their words; more are only counted.
const WORDS_MAX: usize = 20;

/// Counts of a series of trials.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Number of trials that ended as they should.
    pub passed: u64,
    /// Number of trials that did not.
    pub failed: u64,
    /// Words on what went wrong, with what is needed to repeat it.
    pub failures: Vec<String>,
}

impl Verdict {
    /// Runs one trial; an error or a panic is a failure called `what`.
    pub fn trial(&mut self, what: &str, trial: impl FnOnce() -> Result<(), String>) {
        let result = catch_unwind(AssertUnwindSafe(trial)).unwrap_or_else(|panic| Err(format!("panic: {}", words(&*panic))));
        match result {
            Ok(()) => self.passed += 1,
            Err(why) => self.fail(format!("{what}: {why}")),
        }
    }

    fn fail(&mut self, failure: String) {
        self.failed += 1;
        if self.failures.len() < WORDS_MAX {
            self.failures.push(failure);
        }
    }

    /// Adds the counts of another series.
    pub fn add(&mut self, other: Verdict) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.failures.truncate(WORDS_MAX);
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        self.failures.iter().try_for_each(|failure| write!(f, "\n  {failure}"))
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without words").to_string()
}
