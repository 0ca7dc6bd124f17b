//! Changes of an object set that fail, for tests.

use crate::{BlockError, DmuError, Tx};
use std::sync::atomic::{AtomicU64, Ordering};

/// Lets the k-th change of an object set fail that a transaction makes: a dnode, its bonus, or a block that becomes dirty. What is
/// dirty already cannot fail, as in earnest. The sync is spared.
#[derive(Debug)]
pub struct ChangeFaults {
    changes: AtomicU64,
    fail_at: AtomicU64,
}

impl Default for ChangeFaults {
    fn default() -> Self {
        ChangeFaults { changes: AtomicU64::new(0), fail_at: AtomicU64::new(u64::MAX) }
    }
}

impl ChangeFaults {
    pub(crate) fn check(&self, tx: &Tx) -> Result<(), DmuError> {
        if tx.is_syncing() {
            return Ok(());
        }
        let now = self.changes.fetch_add(1, Ordering::Relaxed) + 1;
        if now == self.fail_at.load(Ordering::Relaxed) { Err(BlockError::Io.into()) } else { Ok(()) }
    }

    /// Lets the `count`-th change from now fail; 0 lets none fail any more. True when one did since the last call.
    pub(super) fn fail_after(&self, count: u64) -> bool {
        let now = self.changes.load(Ordering::Relaxed);
        let at = if count == 0 { u64::MAX } else { now + count };
        self.fail_at.swap(at, Ordering::Relaxed) <= now
    }
}
