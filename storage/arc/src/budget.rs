//! The budget shared by all shards: bytes are reserved before anything is inserted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes charged and bytes allowed.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicU64,
    max: AtomicU64,
}

impl Budget {
    pub(crate) fn new(max: u64) -> Budget {
        Budget { used: AtomicU64::new(0), max: AtomicU64::new(max) }
    }
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }
    pub(crate) fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }
    /// Charges `bytes`, or says how many are missing.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), u64> {
        let max = self.max();
        let taken =
            self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| used.checked_add(bytes).filter(|&total| total <= max));
        taken.map(|_| ()).map_err(|used| used.saturating_add(bytes).saturating_sub(max))
    }
    /// Gives back a charge.
    pub(crate) fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}
