//! Transactions of a file system, and the room that they find.

use crate::ZplError;
use crate::unlinked::UnlinkedSet;
use dmu::{Tx, TxgManager};
use exec::RwLock;
use ondisk::Txg;
use std::sync::Arc;

/// Bytes that one transaction of names and attributes dirties, at most.
pub(crate) const TX_NAMES: u64 = 64 << 10;
/// Number of txgs that a transaction without room waits for the deletion of files without names: somebody may keep them open for long.
const DELETION_WAITS_MAX: u32 = 3;

/// Space of a file system, as statfs shows it (OpenZFS: `dmu_objset_space`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Space {
    /// Bytes referenced.
    pub referenced: u64,
    /// Bytes available.
    pub available: u64,
    /// Number of objects in use.
    pub objects_used: u64,
    /// Number of objects that could be made.
    pub objects_available: u64,
}

/// Purpose of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxKind {
    /// Writes that may need more space: refused when the pool or a quota is full.
    Writes,
    /// Frees of more than is written: must work when nothing else does.
    Frees,
}

/// Source of what is known of a file system's space (the dataset).
pub trait SpaceSource: Send + Sync {
    /// Space of the file system now.
    fn space(&self) -> Space;
    /// Opens a transaction that dirties up to `bytes`, or says that there is no space for it.
    fn assign(&self, txgs: &Arc<TxgManager>, bytes: u64, kind: TxKind) -> Result<Tx, ZplError> {
        let _ = kind;
        Ok(txgs.assign(bytes)?)
    }
    /// Waits, for somebody who found no room, until more of what was freed can be used again. False when nothing was.
    fn wait_for_freed(&self, txgs: &Arc<TxgManager>) -> Result<bool, ZplError> {
        txgs.wait_synced(txgs.open_txg())?;
        Ok(true)
    }
}

/// Source of transactions.
pub(crate) struct Room {
    /// Transaction groups; None where nothing can be changed.
    txgs: Option<Arc<TxgManager>>,
    source: RwLock<Option<Arc<dyn SpaceSource>>>,
    unlinked: Arc<UnlinkedSet>,
}

impl Room {
    pub(crate) fn new(txgs: Option<Arc<TxgManager>>, unlinked: Arc<UnlinkedSet>) -> Room {
        Room { txgs, source: RwLock::new(None), unlinked }
    }

    /// True when nothing can be changed.
    pub(crate) fn is_read_only(&self) -> bool {
        self.txgs.is_none()
    }

    /// Sets the source that knows of space.
    pub(crate) fn set_source(&self, source: Arc<dyn SpaceSource>) {
        *self.source.write() = Some(source);
    }

    /// Space of the file system, None when nobody knows.
    pub(crate) fn space(&self) -> Option<Space> {
        self.source.read().as_ref().map(|source| source.space())
    }

    /// Opens a transaction; may wait.
    pub(crate) fn assign(&self, bytes: u64) -> Result<Tx, ZplError> {
        self.assign_for(bytes, TxKind::Writes)
    }

    /// Opens a transaction for something that gives space back.
    pub(crate) fn assign_frees(&self, bytes: u64) -> Result<Tx, ZplError> {
        self.assign_for(bytes, TxKind::Frees)
    }

    fn assign_for(&self, bytes: u64, kind: TxKind) -> Result<Tx, ZplError> {
        let txgs = self.txgs.as_ref().ok_or(ZplError::ReadOnly)?;
        let source = self.source.read().clone();
        let Some(source) = source else { return Ok(txgs.assign(bytes)?) };
        let mut waits = 0;
        loop {
            let deletions = self.unlinked.deletions();
            let result = source.assign(txgs, bytes, kind);
            let is_full = matches!(result, Err(ZplError::NoSpace | ZplError::OverQuota)) && kind == TxKind::Writes;
            // A file that was removed keeps its space until the last who knows it lets go, which the kernel says a little later.
            let hopes = || !self.unlinked.is_empty() || self.unlinked.deletions() != deletions;
            if !is_full || waits == DELETION_WAITS_MAX || !hopes() {
                return result;
            }
            waits += 1;
            txgs.wait_synced(txgs.open_txg())?;
        }
    }

    /// Waits, for somebody who found no room, until more of what was freed can be used again. False when nothing was.
    pub(crate) fn wait_for_freed(&self) -> Result<bool, ZplError> {
        let txgs = self.txgs.as_ref().ok_or(ZplError::ReadOnly)?;
        let source = self.source.read().clone();
        match source {
            Some(source) => source.wait_for_freed(txgs),
            None => Ok(txgs.wait_synced(txgs.open_txg()).map(|()| true)?),
        }
    }

    /// True when nothing of what is changed reaches the disk but by the log.
    pub(crate) fn is_frozen(&self) -> bool {
        self.txgs.as_ref().is_some_and(|txgs| txgs.is_frozen())
    }

    /// Txg that is the last that may still be written, None where nothing is.
    pub(crate) fn syncing_txg(&self) -> Option<u64> {
        self.txgs.as_ref().map(|txgs| txgs.open_txg().0.saturating_sub(1))
    }

    /// Txg that changes are made in now; 0 where nothing is changed.
    pub(crate) fn open_txg(&self) -> Txg {
        self.txgs.as_ref().map_or(Txg(0), |txgs| txgs.open_txg())
    }

    /// True when a txg is on disk.
    pub(crate) fn is_synced(&self, txg: Txg) -> bool {
        self.txgs.as_ref().is_none_or(|txgs| txg <= txgs.synced_txg())
    }

    /// Asks for a sync without waiting.
    pub(crate) fn kick(&self) {
        if let Some(txgs) = &self.txgs {
            txgs.kick();
        }
    }

    /// Waits until a txg is on disk.
    pub(crate) fn wait_txg(&self, txg: Txg) -> Result<(), ZplError> {
        match &self.txgs {
            Some(txgs) if txg > txgs.synced_txg() => Ok(txgs.wait_synced(txg)?),
            _ => Ok(()),
        }
    }

    /// Does `job` when a txg is written, before anybody is told; false when it is already.
    pub(crate) fn before_told(&self, txg: Txg, job: exec::Job) -> bool {
        self.txgs.as_ref().is_some_and(|txgs| txgs.before_told(txg, job))
    }

    /// Waits until every change so far is on disk.
    pub(crate) fn sync(&self) -> Result<(), ZplError> {
        match &self.txgs {
            Some(txgs) => Ok(txgs.wait_synced(txgs.open_txg())?),
            None => Ok(()),
        }
    }
}
