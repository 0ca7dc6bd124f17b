//! The budget shared by all shards: bytes are reserved before anything is inserted. The budget itself (OpenZFS: `arc_c`) moves
//! between a floor and a ceiling: down when the machine is short of memory, up again when the cache wants it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Least step up (OpenZFS: `SPA_OLD_MAXBLOCKSIZE` in `arc_adapt`).
const STEP_BYTES: u64 = 128 << 10;

/// Bytes charged and bytes allowed.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicU64,
    max: AtomicU64,
    floor: AtomicU64,
    ceiling: AtomicU64,
    /// True while memory is short: stay where we are (OpenZFS: `arc_no_grow`).
    holds: AtomicBool,
}

impl Budget {
    pub(crate) fn new(max: u64) -> Budget {
        let cell = AtomicU64::new;
        Budget { used: cell(0), max: cell(max), floor: cell(0), ceiling: cell(max), holds: AtomicBool::new(false) }
    }
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }
    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Ordering::Relaxed).min(self.ceiling())
    }
    pub(crate) fn ceiling(&self) -> u64 {
        self.ceiling.load(Ordering::Relaxed)
    }
    pub(crate) fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }
    pub(crate) fn set_holds(&self, holds: bool) {
        self.holds.store(holds, Ordering::Relaxed);
    }
    /// A new ceiling, and a budget of just that; an old one changes nothing.
    pub(crate) fn set_ceiling(&self, ceiling: u64) {
        if self.ceiling.swap(ceiling, Ordering::Relaxed) != ceiling || self.max() > ceiling {
            self.max.store(ceiling, Ordering::Relaxed);
        }
    }
    pub(crate) fn set_floor(&self, floor: u64) {
        self.floor.store(floor, Ordering::Relaxed);
        self.max.fetch_max(self.floor(), Ordering::Relaxed);
    }
    /// Lowers the budget, not below the floor.
    pub(crate) fn shrink(&self, bytes: u64) {
        let floor = self.floor();
        let lower = |max: u64| Some(max.saturating_sub(bytes).max(floor).min(max));
        // The closure never declines.
        let _ = self.max.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
    }
    /// Raises the budget by what is wanted; false when it may not grow.
    pub(crate) fn grow(&self, bytes: u64) -> bool {
        let ceiling = self.ceiling();
        let higher = |max: u64| (max < ceiling).then(|| (max + bytes.max(STEP_BYTES)).min(ceiling));
        !self.holds() && self.max.fetch_update(Ordering::Relaxed, Ordering::Relaxed, higher).is_ok()
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
