//! Blocks that are written as gangs although there may be room for them in one piece, to try out what is rare otherwise.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Blocks that are gangs by force (OpenZFS: `metaslab_force_ganging`, `metaslab_force_ganging_pct`).
pub(crate) struct ForcedGanging {
    /// Blocks of so many bytes and more …
    bytes: AtomicU64,
    /// … in so many percent of the cases.
    percent: AtomicU32,
}

impl Default for ForcedGanging {
    /// No block is.
    fn default() -> ForcedGanging {
        ForcedGanging { bytes: AtomicU64::new(u64::MAX), percent: AtomicU32::new(0) }
    }
}

impl ForcedGanging {
    /// Blocks of `bytes` and more, in `percent` of the cases.
    pub(crate) fn set(&self, bytes: u64, percent: u32) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.percent.store(percent, Ordering::Relaxed);
    }
    /// True when this block is to be a gang.
    pub(crate) fn strikes(&self, psize: u64, random: impl FnOnce() -> u64) -> bool {
        psize >= self.bytes.load(Ordering::Relaxed) && random() % 100 < u64::from(self.percent.load(Ordering::Relaxed))
    }
}
