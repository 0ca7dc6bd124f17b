//! A transaction: the right to modify in one txg, for as long as it lives.
//!
//! OpenZFS: `dmu_tx_t`. Dropping a [`Tx`] releases its hold; holds are short, since the next txg opens only after all holds
//! of the previous one are gone.

use crate::budget::DirtyBudget;
use crate::txg::TxgManager;
use ondisk::Txg;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that no transaction makes dirty.
const ALL: u64 = u64::MAX >> 1;

/// Keeper of what transactions announce that they may take of the space.
pub trait Announced: Send + Sync {
    /// Takes back bytes that a transaction of this txg announced and did not need.
    fn take_back(&self, txg: Txg, bytes: u64);
}

/// Space that a transaction announced.
pub struct Announcement {
    /// Keeper, who hears at the end of the transaction what it did not need.
    pub to: Arc<dyn Announced>,
    /// Bytes that were announced.
    pub bytes: u64,
    /// Bytes that any block takes at least.
    pub block_bytes: u64,
    /// Ratio of what blocks take and how long they are, both in bytes.
    pub ratio: (u64, u64),
}

impl Announcement {
    /// Bytes that were not needed by who made so many blocks dirty, of so many bytes in sum, that nothing had made dirty in its txg before.
    fn unneeded(&self, blocks: u64, bytes: u64) -> u64 {
        if bytes >= ALL {
            return 0;
        }
        let needed = bytes.saturating_mul(self.ratio.0) / self.ratio.1.max(1);
        self.bytes.saturating_sub(needed.saturating_add(blocks.saturating_mul(self.block_bytes)))
    }
}

/// A hold on a txg (open context), or the sync thread's own context.
pub struct Tx {
    txg: Txg,
    manager: Option<Arc<TxgManager>>,
    announcement: Option<Announcement>,
    /// Number of blocks that became dirty with it, and their bytes, as far as somebody counts what it announced.
    dirtied: [AtomicU64; 2],
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").field("txg", &self.txg).finish_non_exhaustive()
    }
}

impl Tx {
    fn new(txg: Txg, manager: Option<Arc<TxgManager>>) -> Tx {
        Tx { txg, manager, announcement: None, dirtied: Default::default() }
    }

    pub(crate) fn held(txg: Txg, manager: Arc<TxgManager>) -> Tx {
        Tx::new(txg, Some(manager))
    }

    /// The sync thread's transaction in the txg that it is syncing; holds and throttles nothing.
    pub fn syncing(txg: Txg) -> Tx {
        Tx::new(txg, None)
    }

    /// A further transaction in the same txg: never waits, and is not throttled. For what is to be one change with what this one does, which
    /// needs all that it announced then.
    #[must_use]
    pub fn again(&self) -> Tx {
        if let Some(manager) = &self.manager {
            manager.hold_again(self.txg);
        }
        self.keep_announced();
        Tx::new(self.txg, self.manager.clone())
    }

    /// Names what was announced for the transaction: at its end the keeper hears what of it was not needed.
    pub fn announce(&mut self, announcement: Announcement) {
        self.announcement = Some(announcement);
    }

    /// Counts a block that nothing made dirty before in the txg, or what is written with one.
    pub(crate) fn note_dirtied(&self, bytes: u64) {
        let [blocks, sum] = &self.dirtied;
        blocks.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Has all that was announced count as needed: what is done takes space in another way than by dirty blocks.
    pub(crate) fn keep_announced(&self) {
        self.dirtied[1].fetch_max(ALL, Ordering::Relaxed);
    }

    /// The txg that the modifications belong to.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// True in syncing context.
    pub fn is_syncing(&self) -> bool {
        self.manager.is_none()
    }

    /// Calls `callback` after the txg is on disk (true), or when it is known that it never will be (false). In syncing
    /// context there is nobody to call it: it is dropped.
    pub fn on_commit(&self, callback: Box<dyn FnOnce(bool) + Send>) {
        if let Some(manager) = &self.manager {
            manager.on_commit(self.txg, callback);
        }
    }

    /// Bytes are being written directly in this txg.
    pub(crate) fn note_direct(&self, bytes: u64) {
        self.keep_announced();
        if let Some(manager) = &self.manager {
            manager.note_direct(self.txg, bytes);
        }
    }

    pub(crate) fn budget(&self) -> Option<&Arc<DirtyBudget>> {
        self.manager.as_deref().map(TxgManager::budget)
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(announcement) = self.announcement.take() {
            let [blocks, bytes] = self.dirtied.each_mut().map(|count| *count.get_mut());
            let unneeded = announcement.unneeded(blocks, bytes);
            if unneeded > 0 {
                // Before the hold goes: with the txg's sync all of its announcements are over.
                announcement.to.take_back(self.txg, unneeded);
            }
        }
        if let Some(manager) = self.manager.take() {
            manager.release(self.txg);
        }
    }
}
