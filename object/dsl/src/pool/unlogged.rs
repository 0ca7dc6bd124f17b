//! Durability of datasets that have no intent log: encrypted ones, of which no records are written. Whoever wants something durable waits
//! for the txg.

use dmu::{DmuError, Objset, SyncMode, Tx, TxgManager};
use ondisk::ObjectId;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use zil::{Itx, Log};

/// Log of a dataset that has none. No arena has its changes either: they would be there in the clear, and nobody could do them again without the key.
pub(crate) struct Unlogged {
    objset: Arc<Objset>,
    txgs: Arc<TxgManager>,
    /// Hold on the dataset: it is not destroyed while somebody may commit.
    _hold: Box<dyn Any + Send + Sync>,
}

impl Unlogged {
    pub(super) fn new(hold: Box<dyn Any + Send + Sync>, objset: Arc<Objset>, txgs: Arc<TxgManager>) -> Unlogged {
        Unlogged { objset, txgs, _hold: hold }
    }
}

impl fmt::Debug for Unlogged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unlogged {{ objset: {} }}", self.objset.id())
    }
}

impl Log for Unlogged {
    fn is_wanted(&self) -> bool {
        false
    }
    fn note(&self, _itx: Itx, _tx: &Tx) {}
    fn promote(&self, _object: ObjectId) {}
    fn forget(&self, _object: ObjectId) {}
    fn commit(&self, _object: Option<ObjectId>) -> Result<(), DmuError> {
        if self.objset.props().sync == SyncMode::Disabled {
            return Ok(());
        }
        self.txgs.wait_synced(self.txgs.open_txg()).map_err(|_| DmuError::Stopped)
    }
}
