//! The dataset side of a txg's sync, called by the pool's loop (OpenZFS: `dsl_pool_sync`, `dsl_process_async_destroys`).

use super::DslPool;
use crate::DslError;
use crate::error::fatal;
use crate::meta::Usage;
use dmu::{SyncError, Tx};
use ondisk::{Txg, dd_used};
use std::sync::Arc;

impl DslPool {
    /// Syncs every object set that is dirty in `txg` and settles what was born and killed. True when there was one.
    /// Call it before [`DslPool::run_sync_tasks`] and again after it (for object sets that tasks made).
    pub fn sync_datasets(&self, txg: Txg) -> Result<bool, SyncError> {
        let tx = Tx::syncing(txg);
        let mut any = false;
        loop {
            let dirty = self.dirty.take(txg);
            if dirty.is_empty() {
                break;
            }
            any = true;
            for object in dirty {
                self.sync_dataset(object, &tx).map_err(fatal)?;
            }
        }
        let slot = txg.0 as usize % crate::dir::TXG_SLOTS;
        for dir in self.dirs.lock().values() {
            dir.clear_inflight(slot);
        }
        Ok(any)
    }

    fn sync_dataset(&self, object: u64, tx: &Tx) -> Result<(), DslError> {
        let dataset = self.dataset(object)?;
        let root = match dataset.open_objset() {
            Some(objset) => Some(objset.sync(tx.txg())?),
            None => None,
        };
        dataset.settle(self, root, tx)
    }

    /// Charges what the MOS gained and lost since the last call to `$MOS`. Call it before each sync of the MOS.
    pub fn sync_mos_usage(&self, txg: Txg) -> Result<(), SyncError> {
        let change = self.mos.ledger.change.take();
        self.mos_dir.charge(dd_used::HEAD, change, &Tx::syncing(txg)).map_err(fatal)
    }

    /// Frees blocks of destroyed snapshots and datasets, at most `blocks_max` of them, and says how many. Once per txg,
    /// after the tasks.
    pub fn sync_frees(self: &Arc<Self>, txg: Txg, blocks_max: u64) -> Result<u64, SyncError> {
        let tx = Tx::syncing(txg);
        let mut freed = Usage::default();
        let count = self.meta.bpobj_drain(self.free_bpobj, blocks_max, &tx, |bp| {
            freed += self.meta.usage(bp);
            if !bp.is_embedded() {
                self.meta.io.free(txg, bp);
            }
            Ok(())
        });
        let count = count.map_err(fatal)?;
        self.charge_free(-freed, &tx).map_err(fatal)?;
        let more = self.bptree_drain(blocks_max.saturating_sub(count), &tx).map_err(fatal)?;
        self.settle_freeing(&tx).map_err(fatal)?;
        Ok(count + more)
    }

    /// What is still charged to `$FREE` when nothing waits any more was on lists that could not be read: it leaked (OpenZFS:
    /// `dsl_process_async_destroys`).
    fn settle_freeing(&self, tx: &Tx) -> Result<(), DslError> {
        let Some(phys) = self.free_dir.as_ref().map(|dir| dir.phys()) else { return Ok(()) };
        let left = Usage::new(phys.dd_used_bytes, phys.dd_compressed_bytes, phys.dd_uncompressed_bytes);
        if left.used == 0 || self.has_frees() {
            return Ok(());
        }
        self.charge_free(-left, tx)?;
        self.charge_leak(left, tx)
    }
}
