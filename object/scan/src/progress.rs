//! Counters of a scan that change with every block, what was shown of them before, and recent rates.
//!
//! A scan that goes on after a crash goes on from its last checkpoint, and so do its counters: they tell what is known to be done. What
//! was shown before the crash may have been more. It is remembered, so that nothing shown ever falls.

use exec::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rates are those of at most this long, in nanoseconds …
const WINDOW_NS: u64 = 10_000_000_000;
/// … from samples this far apart.
const SAMPLE_NS: u64 = 50_000_000;
const SAMPLES_MAX: usize = 2 * (WINDOW_NS / SAMPLE_NS) as usize;

/// Bytes are allocated bytes, parity included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Bytes of blocks that were seen.
    pub(crate) examined: u64,
    /// Bytes of blocks that were read.
    pub(crate) issued: u64,
    /// Bytes of blocks that were seen and need not be read: no leaf lacks them.
    pub(crate) skipped: u64,
    /// Blocks damaged for good.
    pub(crate) errors: u64,
}

impl Counters {
    /// Makes the counters of which each is the larger one.
    pub(crate) fn max(self, other: Counters) -> Counters {
        Counters {
            examined: self.examined.max(other.examined),
            issued: self.issued.max(other.issued),
            skipped: self.skipped.max(other.skipped),
            errors: self.errors.max(other.errors),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at_ns: u64,
    examined: u64,
    issued: u64,
}

/// A stretch of a scan's work: since it began or the pool was imported (OpenZFS: `spa_scan_stat_init`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Start of the pass in seconds since the epoch.
    pub(crate) start: u64,
    /// Counters of earlier passes.
    pub(crate) before: Counters,
    /// Seconds that the scan was paused.
    pub(crate) spent_paused: u64,
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    examined: AtomicU64,
    issued: AtomicU64,
    skipped: AtomicU64,
    errors: AtomicU64,
    /// Counters that were reported before the scan went on: lower bounds of those reported now.
    floor: Mutex<Counters>,
    samples: Mutex<VecDeque<Sample>>,
}

impl Progress {
    /// `bytes` of a block were seen.
    pub(crate) fn examined(&self, bytes: u64) {
        self.examined.fetch_add(bytes, Ordering::Relaxed);
    }
    /// `bytes` of a block were read.
    pub(crate) fn issued(&self, bytes: u64) {
        self.issued.fetch_add(bytes, Ordering::Relaxed);
    }
    /// `bytes` of a block that was seen need not be read: no leaf lacks it.
    pub(crate) fn skipped(&self, bytes: u64) {
        self.skipped.fetch_add(bytes, Ordering::Relaxed);
    }
    /// A block is damaged for good.
    pub(crate) fn error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }
    /// Counters of the work done.
    pub(crate) fn counters(&self) -> Counters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters { examined: load(&self.examined), issued: load(&self.issued), skipped: load(&self.skipped), errors: load(&self.errors) }
    }
    /// Counters to report: never less than those reported before the scan went on.
    pub(crate) fn shown(&self) -> Counters {
        self.counters().max(*self.floor.lock())
    }
    /// Sets the counters: a scan begins or goes on. `floor` is what was shown before.
    pub(crate) fn set(&self, counters: Counters, floor: Counters, now_ns: u64) {
        self.examined.store(counters.examined, Ordering::Relaxed);
        self.issued.store(counters.issued, Ordering::Relaxed);
        self.skipped.store(counters.skipped, Ordering::Relaxed);
        self.errors.store(counters.errors, Ordering::Relaxed);
        *self.floor.lock() = floor;
        self.forget_rates(now_ns);
    }
    /// Rates begin anew: the scan was not running for a while.
    pub(crate) fn forget_rates(&self, now_ns: u64) {
        self.samples.lock().clear();
        self.sample(now_ns);
    }
    /// Takes a sample for the rates, when the last one is old enough.
    pub(crate) fn sample(&self, now_ns: u64) {
        let mut samples = self.samples.lock();
        if samples.back().is_some_and(|last| now_ns.saturating_sub(last.at_ns) < SAMPLE_NS) {
            return;
        }
        if samples.len() >= SAMPLES_MAX {
            samples.pop_front();
        }
        let Counters { examined, issued, .. } = self.counters();
        samples.push_back(Sample { at_ns: now_ns, examined, issued });
    }
    /// Bytes seen and bytes read per second: of the last ten seconds, or of the second half of a shorter run, so that how it began
    /// does not count for long.
    pub(crate) fn rates(&self, now_ns: u64) -> (u64, u64) {
        let samples = self.samples.lock();
        let Some(first) = samples.front() else { return (0, 0) };
        let window = (now_ns.saturating_sub(first.at_ns) / 2).min(WINDOW_NS);
        let old_enough = |sample: &&Sample| now_ns.saturating_sub(sample.at_ns) >= window;
        let since = samples.iter().rev().find(old_enough).unwrap_or(first);
        let elapsed = now_ns.saturating_sub(since.at_ns);
        let Counters { examined, issued, .. } = self.counters();
        let rate = |now: u64, then: u64| match elapsed {
            0 => 0,
            _ => (u128::from(now.saturating_sub(then)) * 1_000_000_000 / u128::from(elapsed)) as u64,
        };
        (rate(examined, since.examined), rate(issued, since.issued))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// If this fails, an estimate follows what a scan did an hour ago, or hangs on to a rate that is gone.
    #[test]
    fn rates_are_recent() {
        let progress = Progress::default();
        progress.set(Counters::default(), Counters::default(), 0);
        assert_eq!(progress.rates(0), (0, 0));
        for tenth in 1..=1200u64 {
            // A slow minute, then a fast one.
            progress.issued(if tenth <= 600 { 100 } else { 1000 });
            progress.examined(10);
            progress.sample(tenth * SECOND / 10);
        }
        assert_eq!(progress.rates(120 * SECOND), (100, 10_000));
        assert_eq!(progress.rates(200 * SECOND), (0, 0), "nothing happened for long");
        progress.forget_rates(200 * SECOND);
        progress.issued(500);
        assert_eq!(progress.rates(201 * SECOND).1, 500);
    }

    #[test]
    fn what_is_shown_never_falls() {
        let progress = Progress::default();
        let before = Counters { examined: 100, issued: 90, skipped: 5, errors: 1 };
        progress.set(Counters { examined: 50, issued: 45, skipped: 5, errors: 0 }, before, 0);
        assert_eq!(progress.shown(), before);
        progress.issued(46);
        assert_eq!(progress.shown(), Counters { issued: 91, ..before });
    }
}
