//! The dataset side of a txg's sync, called by the pool's loop (OpenZFS: `dsl_pool_sync`, `dsl_process_async_destroys`).

use super::create::CreateDataset;
use super::encryption::Encryption;
use super::{DslPool, FailedLog, IntentLogs};
use crate::DslError;
use crate::error::fatal;
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
            let dirty = self.tree.dirty().take(txg);
            if dirty.is_empty() {
                break;
            }
            any = true;
            for object in dirty {
                self.sync_dataset(object, &tx).map_err(fatal)?;
            }
        }
        let slot = txg.0 as usize % crate::dir::TXG_SLOTS;
        self.tree.clear_inflight(slot);
        Ok(any)
    }

    /// Has the headers of object sets name what of their intent logs is needed after `txg`, and frees the rest. Call it before the datasets are synced;
    /// waits for log blocks that belong to the txg and are on their way.
    ///
    /// # Errors
    /// Those of the object sets, and of counting the datasets whose log may tell of extended attributes.
    pub fn sync_logs(&self, txg: Txg) -> Result<(), SyncError> {
        self.live_logs.sync(txg).map_err(fatal)
    }

    /// Intent logs in use that cannot be written, and why.
    pub fn failed_logs(&self) -> Vec<FailedLog> {
        self.live_logs.failed()
    }

    /// Forgets why intent logs could not be written: what they need works again, or is found not to by whoever writes one next.
    pub fn forget_failed_logs(&self) {
        self.live_logs.forget_failures();
    }

    /// Ends all intent logs, before the pool is closed or where they lie leaves it: the next sync frees them, and whoever wants something durable
    /// waits for the txg.
    pub fn close_logs(&self) {
        self.live_logs.close();
    }

    /// Gives up what there is of all intent logs, with the open txg: where they lie is lost. They begin anew.
    pub fn restart_logs(&self) {
        self.live_logs.restart();
    }

    /// Begins the intent logs in use with the open txg: once that is on disk, what is made durable needs no other.
    pub fn begin_logs(&self) {
        self.live_logs.begin();
    }

    /// Lets intent logs begin anew that were closed.
    pub fn reopen_logs(&self) {
        self.live_logs.reopen();
    }

    fn sync_dataset(&self, object: u64, tx: &Tx) -> Result<(), DslError> {
        let dataset = self.tree.dataset(object)?;
        let root = match dataset.open_objset() {
            Some(objset) => Some(objset.sync(tx.txg())?),
            None => None,
        };
        let before = || Ok((self.tree.dataset(dataset.phys().ds_prev_snap_obj)?, self.tree.origin_txg(&dataset.dir)?));
        dataset.settle(&self.tree.meta, root, before, tx)?;
        let reached = dataset.reached.lock().take(tx.txg());
        reached.map_or(Ok(()), |point| point.store(&self.tree.meta, &dataset, tx))
    }

    /// Charges what the MOS gained and lost since the last call to `$MOS`. Call it before each sync of the MOS.
    pub fn sync_mos_usage(&self, txg: Txg) -> Result<(), SyncError> {
        let change = self.mos.take_change();
        self.mos_dir.charge(dd_used::HEAD, change, &Tx::syncing(txg)).map_err(fatal)
    }

    /// Frees blocks of destroyed snapshots and datasets, at most `blocks_max` of them, and says how many. Once per txg,
    /// after the tasks.
    pub fn sync_frees(self: &Arc<Self>, txg: Txg, blocks_max: u64) -> Result<u64, SyncError> {
        self.freeing.drain(blocks_max, &Tx::syncing(txg)).map_err(fatal)
    }

    /// Runs the tasks that were queued for `txg`; once per txg, after the datasets were synced.
    pub fn run_sync_tasks(self: &Arc<Self>, txg: Txg) -> Result<(), SyncError> {
        let due = self.tasks.take_due(txg);
        if due.is_empty() {
            return Ok(());
        }
        let tx = Tx::syncing(txg);
        let _config = self.config.write();
        due.into_iter().try_for_each(|run| run(self, &tx))
    }

    /// Makes the root dataset, in syncing context, after the pool made its feature objects. `secret` is what a user gives for the key of one that is
    /// encrypted.
    pub fn create_root(&self, mut options: CreateDataset, secret: Option<&[u8]>, tx: &Tx) -> Result<(), DslError> {
        let encryption = Encryption::take(&mut options.properties, secret)?;
        self.creation.create_root(options, &encryption, tx)
    }

    /// Writes down what was claimed, and gives up logs with nothing in them, in the first txg after the pool was opened.
    ///
    /// # Errors
    /// Those of the object sets.
    pub fn settle_logs(&self, logs: IntentLogs, tx: &Tx) -> Result<(), DslError> {
        logs.settle(&self.tree, tx)
    }
}
