//! What waits to be synced: lists of things with changes, by txg.

use crate::budget::TXG_SLOTS;
use exec::Mutex;
use ondisk::Txg;
use std::sync::Arc;

/// Things with changes, by the txg of these; the list keeps them in memory.
pub(crate) struct DirtyList<T>(Mutex<[Vec<Arc<T>>; TXG_SLOTS]>);

impl<T> Default for DirtyList<T> {
    fn default() -> DirtyList<T> {
        DirtyList(Mutex::new([const { Vec::new() }; TXG_SLOTS]))
    }
}

fn slot(txg: Txg) -> usize {
    (txg.0 % TXG_SLOTS as u64) as usize
}

impl<T> DirtyList<T> {
    /// A thing has changes in `txg`: its first ones, or such as a sync that failed left.
    pub(crate) fn add(&self, thing: Arc<T>, txg: Txg) {
        self.0.lock()[slot(txg)].push(thing);
    }

    /// Hands over what is to be synced in `txg`.
    pub(crate) fn take(&self, txg: Txg) -> Vec<Arc<T>> {
        std::mem::take(&mut self.0.lock()[slot(txg)])
    }

    /// Lets go of everything: nobody will sync it any more.
    pub(crate) fn forget(&self) {
        let forgotten = std::mem::take(&mut *self.0.lock());
        drop(forgotten);
    }

    /// True when nothing waits for a sync.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().iter().all(Vec::is_empty)
    }

    /// True when something is to be synced in `txg`.
    pub(crate) fn has(&self, txg: Txg) -> bool {
        !self.0.lock()[slot(txg)].is_empty()
    }
}
