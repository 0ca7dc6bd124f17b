//! What all dnodes of an object set share: blocks, properties, and the lists of what is dirty per txg.

use crate::budget::{DirtyBudget, TXG_SLOTS};
use crate::dnode::{Flights, Pins};
use crate::{DmuError, Dnode, Keep, ObjsetEnv, ObjsetProps, Tx};
use exec::{Mutex, RwLock};
use ondisk::{BlockId, Bookmark, Level, ObjectId, Txg};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Dirty bytes that a modified dnode stands for besides its blocks.
const DNODE_DIRTY_BYTES: u64 = 1024;

pub(crate) struct Context {
    pub env: ObjsetEnv,
    pub props: RwLock<ObjsetProps>,
    /// How long data and metadata may stay in the cache, from `props`: every block that is read asks.
    keeps: [AtomicU8; 2],
    /// Dirty dnodes, by txg modulo [`TXG_SLOTS`].
    dirty: Mutex<[Vec<Arc<Dnode>>; TXG_SLOTS]>,
    /// The txg whose first change each slot announced.
    announced: [AtomicU64; TXG_SLOTS],
    budget: OnceLock<Arc<DirtyBudget>>,
    pub flights: Flights,
    /// The meta-dnode: its blocks have the records of all dnodes.
    pub meta: OnceLock<Weak<Dnode>>,
    /// What of its blocks is kept for syncs to come.
    pub pins: Pins,
    /// Tests let a change fail.
    #[cfg(any(test, feature = "testing"))]
    pub faults: crate::testing::ChangeFaults,
}

fn slot(txg: Txg) -> usize {
    (txg.0 % TXG_SLOTS as u64) as usize
}

fn keeps(props: &ObjsetProps) -> [u8; 2] {
    [false, true].map(|is_metadata| props.primary_cache.keep(is_metadata) as u8)
}

impl Context {
    pub(crate) fn new(env: ObjsetEnv, props: ObjsetProps) -> Arc<Context> {
        Arc::new(Context {
            env,
            keeps: keeps(&props).map(AtomicU8::new),
            props: RwLock::new(props),
            dirty: Mutex::default(),
            announced: Default::default(),
            budget: OnceLock::new(),
            flights: Flights::default(),
            meta: OnceLock::new(),
            pins: Pins::default(),
            #[cfg(any(test, feature = "testing"))]
            faults: crate::testing::ChangeFaults::default(),
        })
    }

    /// Replaces the properties.
    pub(crate) fn set_props(&self, props: ObjsetProps) {
        for (cell, keep) in self.keeps.iter().zip(keeps(&props)) {
            cell.store(keep, Ordering::Relaxed);
        }
        *self.props.write() = props;
    }

    /// How long a block of data or metadata may stay in the cache.
    pub(crate) fn keep(&self, is_metadata: bool) -> Keep {
        match self.keeps[usize::from(is_metadata)].load(Ordering::Relaxed) {
            0 => Keep::Once,
            1 => Keep::Lingers,
            _ => Keep::Kept,
        }
    }

    pub(crate) fn bookmark(&self, object: ObjectId, level: u8, block: u64) -> Bookmark {
        Bookmark { objset: self.env.id, object, level: Level(level), block: BlockId(block) }
    }

    pub(crate) fn check_writable(&self) -> Result<(), DmuError> {
        if self.env.ledger.is_some() { Ok(()) } else { Err(DmuError::ReadOnly) }
    }

    /// What must hold before anything of a dnode is changed.
    pub(crate) fn check_change(&self, tx: &Tx) -> Result<(), DmuError> {
        #[cfg(any(test, feature = "testing"))]
        self.faults.check(tx)?;
        #[cfg(not(any(test, feature = "testing")))]
        let _ = tx;
        self.check_writable()
    }

    /// Tells the owner about the first change of a txg.
    pub(crate) fn announce(&self, tx: &Tx) {
        let txg = tx.txg();
        if self.announced[slot(txg)].swap(txg.0, Ordering::Relaxed) != txg.0
            && let Some(ledger) = &self.env.ledger
        {
            ledger.dirtied(txg);
        }
    }

    /// A dnode has its first change in the transaction's txg.
    pub(crate) fn add_dirty(&self, dnode: Arc<Dnode>, tx: &Tx) {
        self.dirty.lock()[slot(tx.txg())].push(dnode);
        self.charge(tx, DNODE_DIRTY_BYTES);
        self.announce(tx);
    }

    /// Puts a dnode back whose sync failed.
    pub(crate) fn readd_dirty(&self, dnode: Arc<Dnode>, txg: Txg) {
        self.dirty.lock()[slot(txg)].push(dnode);
    }

    /// The dnodes to sync in `txg`.
    pub(crate) fn take_dirty(&self, txg: Txg) -> Vec<Arc<Dnode>> {
        std::mem::take(&mut self.dirty.lock()[slot(txg)])
    }

    /// Lets go of all dirty dnodes: nobody will sync them any more.
    pub(crate) fn forget_dirty(&self) {
        let forgotten = std::mem::take(&mut *self.dirty.lock());
        drop(forgotten);
    }

    pub(crate) fn has_dirty(&self, txg: Txg) -> bool {
        !self.dirty.lock()[slot(txg)].is_empty()
    }

    /// Counts dirty bytes; false in syncing context, where nothing is counted.
    pub(crate) fn charge(&self, tx: &Tx, bytes: u64) -> bool {
        let Some(budget) = tx.budget() else { return false };
        budget.charge(tx.txg(), bytes);
        self.budget.get_or_init(|| budget.clone());
        true
    }

    pub(crate) fn release(&self, txg: Txg, bytes: u64) {
        if let Some(budget) = self.budget.get() {
            budget.release(txg, bytes);
        }
    }
}
