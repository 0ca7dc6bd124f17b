//! A transaction: the right to modify in one txg, for as long as it lives.
//!
//! OpenZFS: `dmu_tx_t`. Dropping a [`Tx`] releases its hold; holds are short, since the next txg opens only after all holds
//! of the previous one are gone.

use crate::budget::DirtyBudget;
use crate::txg::TxgManager;
use ondisk::Txg;
use std::sync::Arc;

/// A hold on a txg (open context), or the sync thread's own context.
#[derive(Debug)]
pub struct Tx {
    txg: Txg,
    manager: Option<Arc<TxgManager>>,
}

impl Tx {
    pub(crate) fn held(txg: Txg, manager: Arc<TxgManager>) -> Tx {
        Tx { txg, manager: Some(manager) }
    }

    /// The sync thread's transaction in the txg that it is syncing; holds and throttles nothing.
    pub fn syncing(txg: Txg) -> Tx {
        Tx { txg, manager: None }
    }

    /// A further transaction in the same txg: never waits, and is not throttled. For what is to be one change with what this one does.
    #[must_use]
    pub fn again(&self) -> Tx {
        if let Some(manager) = &self.manager {
            manager.hold_again(self.txg);
        }
        Tx { txg: self.txg, manager: self.manager.clone() }
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
        if let Some(manager) = self.manager.take() {
            manager.release(self.txg);
        }
    }
}
