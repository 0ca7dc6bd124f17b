//! The table that a run prints: one line for each pool and check, as it is known, and the sums at the end.

use crate::Failure;
use std::time::Instant;

/// Counts what passed.
#[derive(Default)]
pub struct Table {
    passed: usize,
    failed: Vec<String>,
}

impl Table {
    /// Runs one check and prints its line; gives its result when it passed.
    pub fn check<T>(&mut self, name: &str, check: impl FnOnce() -> Result<T, Failure>) -> Option<T> {
        let started = Instant::now();
        let result = check();
        let seconds = started.elapsed().as_secs_f64();
        match result {
            Ok(value) => {
                self.passed += 1;
                println!("pass  {name:<44} {seconds:6.1} s");
                Some(value)
            }
            Err(error) => {
                println!("FAIL  {name:<44} {seconds:6.1} s\n      {error}");
                self.failed.push(name.to_string());
                None
            }
        }
    }

    /// Prints the sums; true when nothing failed.
    pub fn finish(&self) -> bool {
        for name in &self.failed {
            println!("failed: {name}");
        }
        println!("{} passed, {} failed", self.passed, self.failed.len());
        self.failed.is_empty()
    }
}
