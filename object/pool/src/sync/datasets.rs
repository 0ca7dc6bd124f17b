//! The steps of a sync that come before the MOS: datasets, what was asked of them, frees, history.

use super::step::{SyncStep, Syncing};
use crate::PoolError;
use crate::spa::adapter::WaitsFor;
use crate::spa::services::Services;
use dsl::{DslPool, IntentLogs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks of destroyed datasets freed in one txg unless told otherwise (OpenZFS: `zfs_async_block_max_blocks` is unlimited, but time is not).
const FREES_MAX: u64 = 100_000;

/// Writes down which intent logs were claimed, and gives up those with nothing in them, with the first txg: later nobody could tell which
/// of their blocks are in the space maps.
pub(crate) struct SettleLogs {
    pub dsl: Arc<DslPool>,
    pub logs: IntentLogs,
}

impl SyncStep for SettleLogs {
    fn name(&self) -> &'static str {
        "intent logs"
    }
    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        Ok(self.dsl.settle_logs(std::mem::take(&mut self.logs), at.tx)?)
    }
}

/// Has the intent logs that are being written follow the txg.
pub(crate) struct SyncLogs(pub Arc<DslPool>);

impl SyncStep for SyncLogs {
    fn name(&self) -> &'static str {
        "intent logs in use"
    }
    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        Ok(self.0.sync_logs(at.tx.txg())?)
    }
}

/// Writes datasets: once for what users did, and once for what sync tasks did.
pub(crate) struct Datasets(pub Arc<DslPool>);

impl SyncStep for Datasets {
    fn name(&self) -> &'static str {
        "datasets"
    }
    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        self.0.sync_datasets(at.tx.txg())?;
        Ok(())
    }
}

/// Runs the sync tasks.
pub(crate) struct SyncTasks(pub Arc<DslPool>);

impl SyncStep for SyncTasks {
    fn name(&self) -> &'static str {
        "sync tasks"
    }
    /// Whoever asked for a change gets the error.
    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Devices
    }
    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        Ok(self.0.run_sync_tasks(at.tx.txg())?)
    }
}

/// Frees blocks of destroyed datasets.
pub(crate) struct Frees {
    pub dsl: Arc<DslPool>,
    pub services: Arc<Services>,
    /// Most blocks freed in one txg; 0 until somebody says how many.
    pub most: Arc<AtomicU64>,
}

impl SyncStep for Frees {
    fn name(&self) -> &'static str {
        "blocks of destroyed datasets"
    }
    /// Freed blocks can do without one that cannot be read: waits for devices only.
    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Devices
    }
    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        if self.services.suspends_frees(self.dsl.used_bytes()) {
            return Ok(());
        }
        let most = match self.most.load(Ordering::Relaxed) {
            0 => FREES_MAX,
            blocks => blocks,
        };
        self.dsl.sync_frees(at.tx.txg(), most)?;
        if self.dsl.has_frees() {
            // The next part at once (OpenZFS: `dsl_scan_active`), not when the time of a txg is over.
            self.dsl.txgs().kick();
        }
        Ok(())
    }
}

/// Writes the pool's history, and tells of it.
pub(crate) struct WriteHistory(pub Arc<Services>);

impl SyncStep for WriteHistory {
    fn name(&self) -> &'static str {
        "history"
    }
    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let told = self.0.history.sync(at.tx)?;
        told.iter().for_each(|record| self.0.tell_history(record, at.tx.txg()));
        Ok(())
    }
}
