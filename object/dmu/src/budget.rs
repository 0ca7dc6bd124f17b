//! How many bytes are dirty, in all and per txg: what the throttle looks at.
//!
//! OpenZFS: `dp_dirty_total`, `dp_dirty_pertxg` (`dsl_pool.c`). Bytes are charged when a block becomes dirty and given back
//! when its dnode was synced, which is when their memory is; what is left when a txg ends is given back then.

use exec::WaitQueue;
use ondisk::Txg;
use std::sync::atomic::{AtomicU64, Ordering};

/// Txgs alive at the same time, rounded to a power of two (OpenZFS: `TXG_SIZE`).
pub(crate) const TXG_SLOTS: usize = 4;

/// The counters, and who waits for them to fall.
#[derive(Debug, Default)]
pub(crate) struct DirtyBudget {
    total: AtomicU64,
    per_txg: [AtomicU64; TXG_SLOTS],
    /// Waiters exist: releases must notify.
    pub(crate) wanted: AtomicU64,
    pub(crate) fell: WaitQueue,
}

impl DirtyBudget {
    fn slot(&self, txg: Txg) -> &AtomicU64 {
        &self.per_txg[(txg.0 % TXG_SLOTS as u64) as usize]
    }

    /// Bytes that became dirty in `txg`.
    pub(crate) fn charge(&self, txg: Txg, bytes: u64) {
        self.slot(txg).fetch_add(bytes, Ordering::Relaxed);
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of `txg` that were written or dropped.
    pub(crate) fn release(&self, txg: Txg, bytes: u64) {
        let slot = self.slot(txg);
        let mut seen = slot.load(Ordering::Relaxed);
        let given = loop {
            let given = seen.min(bytes);
            match slot.compare_exchange_weak(seen, seen - given, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break given,
                Err(now) => seen = now,
            }
        };
        if given > 0 {
            let before = self.total.fetch_sub(given, Ordering::SeqCst);
            debug_assert!(before >= given, "the sum of all txgs has each of them in it");
            if self.wanted.load(Ordering::SeqCst) > 0 {
                self.fell.notify_all();
            }
        }
    }

    /// The txg is over: nothing of it is dirty any more.
    pub(crate) fn end(&self, txg: Txg) {
        self.release(txg, u64::MAX);
        debug_assert_eq!(self.of(txg), 0, "nobody dirties anything in a txg that is over");
    }

    /// Dirty bytes of one txg.
    pub(crate) fn of(&self, txg: Txg) -> u64 {
        self.slot(txg).load(Ordering::Relaxed)
    }

    /// Dirty bytes of all txgs.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::SeqCst)
    }
}
