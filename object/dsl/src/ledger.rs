//! The accounting of one dataset's sync: births and deaths are summed without locks while blocks are written, and settled
//! once by the sync thread (OpenZFS: `dsl_dataset_block_born`, `dsl_dataset_block_kill`, there block by block).

use crate::features;
use crate::meta::{Usage, usage};
use dmu::{BlockIo, BlockLedger};
use exec::{Mutex, RwLock};
use ondisk::{BlockPtr, Txg};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Datasets that are dirty, by txg slot.
#[derive(Default)]
pub(crate) struct DirtySets {
    slots: [Mutex<BTreeSet<u64>>; crate::dir::TXG_SLOTS],
}

impl DirtySets {
    fn slot(&self, txg: Txg) -> &Mutex<BTreeSet<u64>> {
        &self.slots[txg.0 as usize % self.slots.len()]
    }
    pub(crate) fn add(&self, txg: Txg, dataset: u64) {
        self.slot(txg).lock().insert(dataset);
    }
    pub(crate) fn take(&self, txg: Txg) -> BTreeSet<u64> {
        std::mem::take(&mut *self.slot(txg).lock())
    }
    pub(crate) fn remove(&self, dataset: u64) {
        for slot in &self.slots {
            slot.lock().remove(&dataset);
        }
    }
}

/// A sum that any thread may add to.
#[derive(Default)]
pub(crate) struct Sum {
    used: AtomicI64,
    comp: AtomicI64,
    uncomp: AtomicI64,
}

impl Sum {
    pub(crate) fn add(&self, usage: Usage) {
        self.used.fetch_add(usage.used, Ordering::Relaxed);
        self.comp.fetch_add(usage.comp, Ordering::Relaxed);
        self.uncomp.fetch_add(usage.uncomp, Ordering::Relaxed);
    }
    pub(crate) fn take(&self) -> Usage {
        Usage {
            used: self.used.swap(0, Ordering::Relaxed),
            comp: self.comp.swap(0, Ordering::Relaxed),
            uncomp: self.uncomp.swap(0, Ordering::Relaxed),
        }
    }
}

/// The ledger of the MOS: everything is freed at once, and the sums go to `$MOS`.
pub(crate) struct MosLedger {
    io: Arc<dyn BlockIo>,
    pub(crate) change: Sum,
}

impl MosLedger {
    pub(crate) fn new(io: Arc<dyn BlockIo>) -> MosLedger {
        MosLedger { io, change: Sum::default() }
    }
}

impl BlockLedger for MosLedger {
    fn born(&self, _txg: Txg, bp: &BlockPtr) {
        self.change.add(usage(&*self.io, bp));
    }
    fn kill(&self, txg: Txg, bp: &BlockPtr) {
        self.change.add(-usage(&*self.io, bp));
        if !bp.is_embedded() {
            self.io.free(txg, bp);
        }
    }
}

/// Changes of a dataset by its sync, to be settled.
pub(crate) struct Settlement {
    pub(crate) born: Usage,
    /// Space of blocks given up and freed: no snapshot has them.
    pub(crate) freed: Usage,
    /// Blocks given up that a snapshot has.
    pub(crate) dead: Vec<BlockPtr>,
    /// Blocks born for the livelist.
    pub(crate) listed: Vec<BlockPtr>,
    /// Blocks of the livelist that were given up, whether a snapshot has them or not.
    pub(crate) unlisted: Vec<BlockPtr>,
    /// Space of blocks given up that were there in these txgs.
    pub(crate) marked: Vec<(u64, Usage)>,
    /// Per-dataset features that the blocks need.
    pub(crate) features: u32,
}

/// The ledger of a dataset.
pub(crate) struct Ledger {
    io: Arc<dyn BlockIo>,
    dataset: u64,
    dirty: Arc<DirtySets>,
    /// Blocks born after this txg are the dataset's own (`ds_prev_snap_txg`).
    prev_snap_txg: AtomicU64,
    born: Sum,
    freed: Sum,
    dead: Mutex<Vec<BlockPtr>>,
    /// Blocks born after this txg are on the dataset's livelist; `u64::MAX` without one.
    listed_after: AtomicU64,
    listed: Mutex<Vec<BlockPtr>>,
    unlisted: Mutex<Vec<BlockPtr>>,
    /// Txgs of bookmarks that count what is freed, with what was.
    marked: RwLock<Vec<(u64, Sum)>>,
    /// The last of these txgs; 0 without one.
    marked_until: AtomicU64,
    features: AtomicU32,
}

impl Ledger {
    pub(crate) fn new(io: Arc<dyn BlockIo>, dataset: u64, dirty: Arc<DirtySets>, prev_snap_txg: u64) -> Ledger {
        Ledger {
            io,
            dataset,
            dirty,
            prev_snap_txg: AtomicU64::new(prev_snap_txg),
            born: Sum::default(),
            freed: Sum::default(),
            dead: Mutex::default(),
            listed_after: AtomicU64::new(u64::MAX),
            listed: Mutex::default(),
            unlisted: Mutex::default(),
            marked: RwLock::new(Vec::new()),
            marked_until: AtomicU64::new(0),
            features: AtomicU32::new(0),
        }
    }

    /// A snapshot came or went; between syncs only.
    pub(crate) fn set_prev_snap_txg(&self, txg: u64) {
        self.prev_snap_txg.store(txg, Ordering::Relaxed);
    }

    /// Lists blocks born after a txg for the livelist from now on; none with `u64::MAX`.
    pub(crate) fn list_after(&self, txg: u64) {
        self.listed_after.store(txg, Ordering::Relaxed);
    }

    /// Adds a block to a list for the livelist, if it belongs there. Embedded ones have nothing to be freed.
    fn list(&self, list: &Mutex<Vec<BlockPtr>>, bp: &BlockPtr) {
        if bp.birth().0 > self.listed_after.load(Ordering::Relaxed) && !bp.is_embedded() {
            list.lock().push(*bp);
        }
    }

    /// Counts what is given up of that which was there in these txgs from now on; between syncs only.
    pub(crate) fn mark(&self, txgs: &BTreeSet<u64>) {
        *self.marked.write() = txgs.iter().map(|txg| (*txg, Sum::default())).collect();
        self.marked_until.store(txgs.last().copied().unwrap_or(0), Ordering::Relaxed);
    }

    /// Counts a block that is given up at the bookmarks that it was there at.
    fn count_marked(&self, bp: &BlockPtr) {
        let birth = bp.birth().0;
        if birth <= self.marked_until.load(Ordering::Relaxed) {
            let usage = usage(&*self.io, bp);
            self.marked.read().iter().filter(|(txg, _)| birth <= *txg).for_each(|(_, sum)| sum.add(usage));
        }
    }

    /// Wants features (bits) counted at the next settlement.
    pub(crate) fn want_features(&self, bits: u32) {
        self.features.fetch_or(bits, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> Settlement {
        Settlement {
            born: self.born.take(),
            freed: self.freed.take(),
            dead: std::mem::take(&mut *self.dead.lock()),
            listed: std::mem::take(&mut *self.listed.lock()),
            unlisted: std::mem::take(&mut *self.unlisted.lock()),
            marked: self.marked.read().iter().map(|(txg, sum)| (*txg, sum.take())).filter(|(_, usage)| !usage.is_zero()).collect(),
            features: self.features.swap(0, Ordering::Relaxed),
        }
    }
}

impl BlockLedger for Ledger {
    fn born(&self, _txg: Txg, bp: &BlockPtr) {
        self.born.add(usage(&*self.io, bp));
        self.list(&self.listed, bp);
        let bits = features::bits_of_block(bp);
        if bits & !self.features.load(Ordering::Relaxed) != 0 {
            self.want_features(bits);
        }
    }

    fn kill(&self, txg: Txg, bp: &BlockPtr) {
        self.list(&self.unlisted, bp);
        self.count_marked(bp);
        if bp.birth().0 > self.prev_snap_txg.load(Ordering::Relaxed) {
            self.freed.add(usage(&*self.io, bp));
            if !bp.is_embedded() {
                self.io.free(txg, bp);
            }
        } else {
            self.dead.lock().push(*bp);
        }
    }

    fn dirtied(&self, txg: Txg) {
        self.dirty.add(txg, self.dataset);
    }
}
