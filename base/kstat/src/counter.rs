//! Counters that many threads bump without sharing a cache line.
//!
//! A counter is exact once its writers are quiet; while they write, a read is a value it passed through, give or take the
//! additions in flight. Additions are one relaxed atomic add on a line of (nearly) this thread's own.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Most shards of a counter.
const SHARDS_MAX: usize = 32;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

pub(crate) fn shards() -> usize {
    static SHARDS: OnceLock<usize> = OnceLock::new();
    *SHARDS.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()).next_power_of_two().min(SHARDS_MAX))
}

/// The shard of this thread: threads take turns.
pub(crate) fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    MINE.with(|mine| mine & (shards() - 1))
}

/// A sum that any thread adds to cheaply.
#[derive(Debug)]
pub struct Counter(Box<[Line]>);

impl Default for Counter {
    fn default() -> Self {
        Counter((0..shards()).map(|_| Line::default()).collect())
    }
}

impl Counter {
    /// A counter at zero.
    pub fn new() -> Counter {
        Counter::default()
    }

    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0[shard()].0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Adds one.
    pub fn bump(&self) {
        self.add(1);
    }

    /// Takes `amount` off; the caller sees to it that the sum stays at or above zero.
    pub fn sub(&self, amount: u64) {
        self.0[shard()].0.fetch_sub(amount, Ordering::Relaxed);
    }

    /// Sum of what was counted.
    pub fn get(&self) -> u64 {
        self.0.iter().fold(0, |sum, line| sum.wrapping_add(line.0.load(Ordering::Relaxed)))
    }

    /// Sets the sum to zero; additions at the same time may survive or not.
    pub fn reset(&self) {
        self.0.iter().for_each(|line| line.0.store(0, Ordering::Relaxed));
    }
}

/// A value that is set rather than summed.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// A gauge at zero.
    pub fn new() -> Gauge {
        Gauge::default()
    }

    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Raises the value to `value` when it is lower.
    pub fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    /// Value as it is now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
