//! Limits of a pool's livelists, which parameters set while it is in use.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Limits of the livelists of a pool.
pub(crate) struct Tuning {
    entries_max: AtomicU64,
    min_percent_shared: AtomicI64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning { entries_max: AtomicU64::new(500_000), min_percent_shared: AtomicI64::new(75) }
    }
}

impl Tuning {
    /// Sets the number of blocks born that a sublist is left at for the next (OpenZFS: `zfs_livelist_max_entries`), and the percentage of a
    /// clone that it has to share with its origin to have a livelist (`zfs_livelist_min_percent_shared`; -1: nothing).
    pub(crate) fn set(&self, entries_max: u64, min_percent_shared: i64) {
        self.entries_max.store(entries_max, Ordering::Relaxed);
        self.min_percent_shared.store(min_percent_shared, Ordering::Relaxed);
    }

    /// Number of blocks born that a sublist is left at for the next.
    pub(crate) fn entries_max(&self) -> u64 {
        self.entries_max.load(Ordering::Relaxed)
    }

    /// True for a clone that refers to so many bytes, `own` of them its own: a walk through one that shares little frees much with each block
    /// that it reads (OpenZFS: `dsl_livelist_should_disable`).
    pub(crate) fn are_worth_it(&self, own: u64, referenced: u64) -> bool {
        let shared = i128::from(referenced.saturating_sub(own)) * 100;
        referenced == 0 || shared / i128::from(referenced) > i128::from(self.min_percent_shared.load(Ordering::Relaxed))
    }
}
