//! Which blocks were freed of late: a scan leaves out what it had queued and is no longer there (OpenZFS: `dsl_scan_freed`).
//!
//! Frees are kept by txg until the sync after it took them out of the queue. Costs one load when no scan runs.

use exec::Mutex;
use ondisk::{BlockPtr, Txg, VdevId};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

type Place = (VdevId, u64);

/// The blocks freed while a scan runs.
#[derive(Debug, Default)]
pub struct FreeLog {
    active: AtomicBool,
    any: AtomicBool,
    freed: Mutex<BTreeMap<Txg, HashSet<Place>>>,
}

impl FreeLog {
    /// A block is being freed in `txg`.
    pub fn freed(&self, txg: Txg, bp: &BlockPtr) {
        if !self.active.load(Ordering::Acquire) {
            return;
        }
        if let Some(dva) = bp.dvas().next() {
            self.freed.lock().entry(txg).or_default().insert((dva.vdev, dva.offset));
            self.any.store(true, Ordering::Release);
        }
    }

    /// Begins or ends to remember.
    pub(crate) fn set_active(&self, active: bool) {
        self.active.store(active, Ordering::Release);
        if !active {
            self.forget_before(Txg(u64::MAX));
        }
    }

    /// Forgets what was freed before `txg`.
    pub(crate) fn forget_before(&self, txg: Txg) {
        let mut freed = self.freed.lock();
        freed.retain(|when, _| *when >= txg);
        self.any.store(!freed.is_empty(), Ordering::Release);
    }

    /// The places of everything remembered.
    pub(crate) fn places(&self) -> Vec<(VdevId, u64)> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.freed.lock().values().flatten().copied().collect()
    }

    /// True when the block is among the freed.
    pub(crate) fn contains(&self, bp: &BlockPtr) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let Some(dva) = bp.dvas().next() else { return false };
        self.freed.lock().values().any(|places| places.contains(&(dva.vdev, dva.offset)))
    }
}
