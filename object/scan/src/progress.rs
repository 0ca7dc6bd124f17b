//! Counters of a scan that change with every block, and the rate derived from them.

use exec::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The rate is that of at least this long, in nanoseconds.
const WINDOW_NS: u64 = 5_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at_ns: u64,
    issued: u64,
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    examined: AtomicU64,
    issued: AtomicU64,
    skipped: AtomicU64,
    errors: AtomicU64,
    /// Where the window of the rate begins, and where the next one will.
    window: Mutex<[Sample; 2]>,
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
    /// Bytes that were skipped.
    pub(crate) fn get_skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }
    /// A block is damaged for good.
    pub(crate) fn error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }
    /// Bytes seen, bytes read, blocks damaged.
    pub(crate) fn get(&self) -> (u64, u64, u64) {
        (self.examined.load(Ordering::Relaxed), self.issued.load(Ordering::Relaxed), self.errors.load(Ordering::Relaxed))
    }
    /// Sets the counters: a scan begins or goes on.
    pub(crate) fn set(&self, (examined, skipped): (u64, u64), errors: u64, now_ns: u64) {
        let issued = examined.saturating_sub(skipped);
        self.examined.store(examined, Ordering::Relaxed);
        self.skipped.store(skipped, Ordering::Relaxed);
        self.issued.store(issued, Ordering::Relaxed);
        self.errors.store(errors, Ordering::Relaxed);
        *self.window.lock() = [Sample { at_ns: now_ns, issued }; 2];
    }
    /// Bytes read per second, of late.
    pub(crate) fn rate(&self, now_ns: u64) -> u64 {
        let issued = self.issued.load(Ordering::Relaxed);
        let mut window = self.window.lock();
        if now_ns.saturating_sub(window[1].at_ns) >= WINDOW_NS {
            *window = [window[1], Sample { at_ns: now_ns, issued }];
        }
        let elapsed = now_ns.saturating_sub(window[0].at_ns);
        if elapsed == 0 {
            return 0;
        }
        (u128::from(issued.saturating_sub(window[0].issued)) * 1_000_000_000 / u128::from(elapsed)) as u64
    }
}
