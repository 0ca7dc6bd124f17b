//! Callbacks of transactions: called when their txg is on disk, in the order in which the transactions ended, never before.

use dmu::Tx;
use exec::{Exec, Mutex, WaitQueue};
use ondisk::Txg;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Callback of a transaction: true when it is on disk, false when it never will be. It must not wait.
pub type Commit = Box<dyn FnOnce(bool) + Send>;

/// Callbacks that are owed, by txg.
#[derive(Debug, Default)]
pub(crate) struct Callbacks {
    owed: Mutex<BTreeMap<u64, u64>>,
    told: WaitQueue,
}

impl Callbacks {
    /// Has `commits` called when the transaction's txg is over.
    pub(crate) fn owe(self: &Arc<Self>, tx: &Tx, commits: Vec<Commit>) {
        if commits.is_empty() {
            return;
        }
        let (own, txg) = (self.clone(), tx.txg().0);
        *self.owed.lock().entry(txg).or_default() += 1;
        tx.on_commit(Box::new(move |is_committed| {
            commits.into_iter().for_each(|commit| commit(is_committed));
            own.end(txg);
        }));
    }

    fn end(&self, txg: u64) {
        {
            let mut owed = self.owed.lock();
            if let Some(left) = owed.get_mut(&txg) {
                *left -= 1;
                if *left == 0 {
                    owed.remove(&txg);
                }
            }
        }
        self.told.notify_all();
    }

    /// Waits until everybody was told of the txgs up to `txg`, which are over.
    pub(crate) fn wait(&self, exec: &Exec, txg: Txg) {
        self.told.wait_until(exec, &|| self.owed.lock().first_key_value().is_none_or(|(oldest, _)| *oldest > txg.0));
    }
}
