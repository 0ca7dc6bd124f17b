//! Frees of blocks in txgs that are not being synced yet: they wait for the beginning of that, when it is known which blocks a checkpoint has
//! (OpenZFS: `spa_free_bplist`).

use exec::Mutex;
use ondisk::{BlockPtr, Txg};
use std::sync::atomic::{AtomicU64, Ordering};

/// Frees that wait for their txgs.
#[derive(Default)]
pub(crate) struct Ahead {
    /// Newest txg whose sync began.
    begun: AtomicU64,
    waiting: Mutex<Vec<(Txg, BlockPtr)>>,
}

impl Ahead {
    /// Notes a free in a txg whose sync did not begin yet. False when it did: then it is to be done at once.
    pub fn takes(&self, txg: Txg, bp: &BlockPtr) -> bool {
        let is_ahead = || txg.0 > self.begun.load(Ordering::Acquire);
        if !is_ahead() {
            return false;
        }
        let mut waiting = self.waiting.lock();
        // It may have begun meanwhile.
        let is_ahead = is_ahead();
        if is_ahead {
            waiting.push((txg, *bp));
        }
        is_ahead
    }

    /// Begins the sync of a txg, and gives the blocks that were freed in it by then.
    pub fn begin(&self, txg: Txg) -> Vec<BlockPtr> {
        let mut waiting = self.waiting.lock();
        self.begun.store(txg.0, Ordering::Release);
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut *waiting).into_iter().partition(|(freed, _)| *freed <= txg);
        *waiting = later;
        due.into_iter().map(|(_, bp)| bp).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a block is freed in a txg before a checkpoint is known to have it, or never: the checkpoint is written over, or space is lost.
    #[test]
    fn frees_wait_for_the_sync_of_their_txg() {
        let (ahead, bp) = (Ahead::default(), BlockPtr::HOLE);
        assert!(ahead.takes(Txg(5), &bp) && ahead.takes(Txg(6), &bp) && ahead.takes(Txg(5), &bp));
        assert_eq!(ahead.begin(Txg(5)).len(), 2);
        assert!(!ahead.takes(Txg(5), &bp), "it is being synced");
        assert!(ahead.takes(Txg(6), &bp) && ahead.takes(Txg(7), &bp));
        assert_eq!([6, 7, 8].map(|txg| ahead.begin(Txg(txg)).len()), [2, 1, 0]);
    }
}
