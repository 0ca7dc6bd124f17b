//! What all dnodes of an object set share: its blocks, what is dirty per txg, and the room that dirty data may take.

use super::Dnode;
use super::form::Sealed;
use super::gather::Flights;
use super::pins::Pins;
use super::record::pin_record;
use crate::blocks::{Blocks, ObjsetEnv};
use crate::budget::{DirtyBudget, TXG_SLOTS};
use crate::dirty_list::DirtyList;
use crate::{DmuError, ObjsetProps, Tx};
use ondisk::{DNODE_BLOCK_BYTES, ObjectId, Txg};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Dirty bytes that a modified dnode stands for besides its blocks.
const DNODE_DIRTY_BYTES: u64 = 1024;
/// Bytes of the copies of a block of records that are written when one of them changes.
const RECORDS_BYTES: u64 = 2 * DNODE_BLOCK_BYTES as u64;

pub(crate) struct Context {
    pub blocks: Arc<Blocks>,
    pub dirty: DirtyList<Dnode>,
    /// The txg whose first change each slot announced.
    announced: [AtomicU64; TXG_SLOTS],
    budget: OnceLock<Arc<DirtyBudget>>,
    pub flights: Arc<Flights>,
    /// Parts of blocks that direct reads took from the device read of a neighbour: number and bytes.
    pub shared_reads: [AtomicU64; 2],
    /// The meta-dnode: its blocks have the records of all dnodes.
    meta: OnceLock<Weak<Dnode>>,
    /// Blocks of the meta-dnode that are kept for syncs to come.
    pub pins: Arc<Pins>,
    /// Some micro ZAP got more than 128 KiB since the opening.
    pub has_large_micro_zaps: AtomicBool,
    /// Facts of what comes raw.
    pub sealed: Sealed,
    /// Tests let a change fail.
    #[cfg(any(test, feature = "testing"))]
    pub faults: crate::testing::faults::ChangeFaults,
}

impl Context {
    pub(crate) fn new(env: ObjsetEnv, props: ObjsetProps) -> Arc<Context> {
        Arc::new(Context {
            blocks: Arc::new(Blocks::new(env, props)),
            dirty: DirtyList::default(),
            announced: Default::default(),
            budget: OnceLock::new(),
            flights: Arc::default(),
            shared_reads: Default::default(),
            meta: OnceLock::new(),
            pins: Arc::default(),
            has_large_micro_zaps: AtomicBool::new(false),
            sealed: Sealed::default(),
            #[cfg(any(test, feature = "testing"))]
            faults: crate::testing::faults::ChangeFaults::default(),
        })
    }

    /// Names the meta-dnode.
    pub(crate) fn set_meta(&self, meta: &Arc<Dnode>) {
        self.meta.get_or_init(|| Arc::downgrade(meta));
    }

    /// Checks the conditions for a change of a dnode.
    pub(super) fn check_change(&self, tx: &Tx) -> Result<(), DmuError> {
        #[cfg(any(test, feature = "testing"))]
        self.faults.check(tx)?;
        #[cfg(not(any(test, feature = "testing")))]
        let _ = tx;
        self.blocks.check_writable()
    }

    /// Tells the owner about the first change of a txg.
    pub(crate) fn announce(&self, tx: &Tx) {
        let txg = tx.txg();
        if self.announced[(txg.0 % TXG_SLOTS as u64) as usize].swap(txg.0, Ordering::Relaxed) != txg.0
            && let Some(ledger) = &self.blocks.env.ledger
        {
            ledger.dirtied(txg);
        }
    }

    /// A dnode has its first change in the transaction's txg.
    pub(super) fn add_dirty(&self, dnode: Arc<Dnode>, tx: &Tx) {
        self.dirty.add(dnode, tx.txg());
        self.charge(tx, DNODE_DIRTY_BYTES);
        self.announce(tx);
    }

    /// Has the blocks kept that the sync will need to write the object's record; what of them came to memory counts as dirty until the txg is
    /// over: writers are held up before memory is full of such blocks.
    pub(super) fn pin_record(&self, object: ObjectId, tx: &Tx) -> Result<(), DmuError> {
        let Some(meta) = self.meta.get().and_then(Weak::upgrade) else { return Ok(()) };
        if let Some(bytes) = pin_record(&self.pins, &meta.contents, object, tx.txg())? {
            self.charge(tx, bytes as u64);
            tx.note_dirtied(RECORDS_BYTES);
        }
        Ok(())
    }

    /// Counts dirty bytes; false in syncing context, where nothing is counted.
    pub(super) fn charge(&self, tx: &Tx, bytes: u64) -> bool {
        let Some(budget) = tx.budget() else { return false };
        tx.note_dirtied(bytes);
        budget.charge(tx.txg(), bytes);
        self.budget.get_or_init(|| budget.clone());
        true
    }

    /// Dirty bytes of `txg` were written or dropped.
    pub(crate) fn release(&self, txg: Txg, bytes: u64) {
        if let Some(budget) = self.budget.get() {
            budget.release(txg, bytes);
        }
    }
}
