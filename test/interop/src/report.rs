//! The table that a run prints: one line for each pool and check, as it is known, and the sums at the end.

use crate::Failure;
use exec::Mutex;
use need::Need;
use std::time::Instant;

/// Number of pools that are worked on at the same time; much of the time goes by in zdb's waits.
const WORKERS: usize = 4;

/// Checks of one pool.
pub type Job<'a> = Box<dyn FnOnce(&Table) + Send + 'a>;

#[derive(Default)]
struct Counts {
    passed: usize,
    failed: Vec<String>,
}

/// Table of checks, with counts of what passed.
#[derive(Default)]
pub struct Table {
    counts: Mutex<Counts>,
}

impl Table {
    /// Runs one check and prints its line; returns its result when it passed.
    pub fn check<T>(&self, name: &str, check: impl FnOnce() -> Result<T, Failure>) -> Option<T> {
        let started = Instant::now();
        let result = check();
        let seconds = started.elapsed().as_secs_f64();
        let mut counts = self.counts.lock();
        match result {
            Ok(value) => {
                counts.passed += 1;
                println!("pass  {name:<48} {seconds:6.1} s");
                Some(value)
            }
            Err(error) => {
                println!("FAIL  {name:<48} {seconds:6.1} s\n      {error}");
                counts.failed.push(name.to_string());
                None
            }
        }
    }

    /// Notes a check that is not run, for a need that is not met: a line that failed where that may not be.
    pub fn left_out(&self, need: Need, name: &str, why: &str) {
        if let Err(missing) = need::missing(need, name, why) {
            self.check(name, || Err::<(), Failure>(missing.into()));
        }
    }

    /// Runs jobs, several at a time.
    pub fn run(&self, jobs: Vec<Job<'_>>) {
        let rest = Mutex::new(jobs.into_iter());
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    loop {
                        let next = rest.lock().next();
                        let Some(job) = next else { break };
                        job(self);
                    }
                });
            }
        });
    }

    /// Prints the sums; true when nothing failed.
    pub fn finish(&self) -> bool {
        let counts = self.counts.lock();
        for name in &counts.failed {
            println!("failed: {name}");
        }
        println!("{} passed, {} failed", counts.passed, counts.failed.len());
        counts.failed.is_empty()
    }
}
