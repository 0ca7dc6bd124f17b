//! Transactions of a file system, and the room that they find.

use crate::ZplError;
use crate::unlinked::UnlinkedSet;
use dmu::{Tx, TxgManager};
use exec::RwLock;
use ondisk::Txg;
use std::sync::Arc;

/// Bytes that one transaction of names and attributes dirties, at most.
pub(crate) const TX_NAMES: u64 = 64 << 10;
/// How many txgs a transaction that finds no room waits for the deletion of files without names: somebody may keep them open for long.
const DELETION_WAITS_MAX: u32 = 3;

/// What statfs shows (OpenZFS: `dmu_objset_space`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Space {
    /// Bytes referenced.
    pub referenced: u64,
    /// Bytes available.
    pub available: u64,
    /// Objects in use.
    pub objects_used: u64,
    /// Objects that could be made.
    pub objects_available: u64,
}

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxKind {
    /// May need more space: refused when the pool or a quota is full.
    Writes,
    /// Frees more than it writes: must work when nothing else does.
    Frees,
}

/// Where the space of a file system is known (the dataset).
pub trait SpaceSource: Send + Sync {
    /// Space now.
    fn space(&self) -> Space;
    /// Opens a transaction that dirties up to `bytes`, or says that there is no space for it.
    fn assign(&self, txgs: &Arc<TxgManager>, bytes: u64, kind: TxKind) -> Result<Tx, ZplError> {
        let _ = kind;
        Ok(txgs.assign(bytes)?)
    }
    /// Somebody found no room: waits until more of what was freed can be used again. False when nothing was.
    fn wait_for_freed(&self, txgs: &Arc<TxgManager>) -> Result<bool, ZplError> {
        txgs.wait_synced(txgs.open_txg())?;
        Ok(true)
    }
}

/// Where transactions come from.
pub(crate) struct Room {
    /// None where nothing can be changed.
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

    /// Names where space is known.
    pub(crate) fn set_source(&self, source: Arc<dyn SpaceSource>) {
        *self.source.write() = Some(source);
    }

    /// Space, None when nobody knows.
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

    /// Somebody found no room: waits until more of what was freed can be used again. False when nothing was.
    pub(crate) fn wait_for_freed(&self) -> Result<bool, ZplError> {
        let txgs = self.txgs.as_ref().ok_or(ZplError::ReadOnly)?;
        let source = self.source.read().clone();
        match source {
            Some(source) => source.wait_for_freed(txgs),
            None => Ok(txgs.wait_synced(txgs.open_txg()).map(|()| true)?),
        }
    }

    /// The last txg that may still be written, None where nothing is.
    pub(crate) fn syncing_txg(&self) -> Option<u64> {
        self.txgs.as_ref().map(|txgs| txgs.open_txg().0.saturating_sub(1))
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

    /// Waits until every change so far is on disk.
    pub(crate) fn sync(&self) -> Result<(), ZplError> {
        match &self.txgs {
            Some(txgs) => Ok(txgs.wait_synced(txgs.open_txg())?),
            None => Ok(()),
        }
    }
}
