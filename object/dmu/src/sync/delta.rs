//! What the sync of one dnode does to space: blocks born, blocks that nothing refers to any more, and the sum of both.

use super::pointer::is_in_place;
use crate::{BlockIo, BlockLedger};
use ondisk::{BlockPtr, Txg};

/// Debug builds compare so many killed blocks with those that are born.
const CHECKED_MAX: usize = 64;

/// The blocks that a dnode's sync replaces. They count only when it is settled: until then it can be taken back.
#[derive(Debug, Default)]
pub(super) struct SpaceDelta {
    born: Vec<BlockPtr>,
    /// Blocks of direct writes, and shared ones: on disk before the sync began, and still wanted when it fails.
    adopted: Vec<BlockPtr>,
    killed: Vec<BlockPtr>,
    used_bytes: i64,
}

impl SpaceDelta {
    fn count(&mut self, io: &dyn BlockIo, old: &BlockPtr, new: &BlockPtr) {
        self.used_bytes += io.dsize(new) as i64 - io.dsize(old) as i64;
    }

    /// `new`, which this sync wrote, takes the place of `old`.
    pub(super) fn replace(&mut self, io: &dyn BlockIo, old: &BlockPtr, new: &BlockPtr) {
        self.count(io, old, new);
        if is_in_place(old, new) {
            return;
        }
        if !old.is_hole() {
            self.killed.push(*old);
        }
        if !new.is_hole() {
            self.born.push(*new);
        }
    }

    /// `new`, which was there before the sync, takes the place of `old`.
    pub(super) fn adopt(&mut self, io: &dyn BlockIo, old: &BlockPtr, new: &BlockPtr) {
        self.count(io, old, new);
        if !old.is_hole() {
            self.killed.push(*old);
        }
        if !new.is_hole() {
            self.adopted.push(*new);
        }
    }

    /// Allocated bytes after the sync of what had `before`.
    pub(super) fn used_after(&self, before: u64) -> u64 {
        before.saturating_add_signed(self.used_bytes)
    }

    /// The new tree is in place: the ledger hears of it.
    pub(super) fn settle(self, ledger: &dyn BlockLedger, txg: Txg) {
        let written = || self.adopted.iter().chain(&self.born);
        debug_assert!(written().all(|bp| bp.birth() == txg), "what a sync refers to for the first time was born in its txg");
        let mut dead = self.killed.iter().filter(|bp| !bp.is_embedded()).take(CHECKED_MAX);
        debug_assert!(dead.all(|dead| written().all(|bp| bp != dead)), "nothing is born and killed by one sync");
        for bp in &self.killed {
            ledger.kill(txg, bp);
        }
        for bp in written() {
            ledger.born(txg, bp);
        }
    }

    /// The sync failed: what it wrote is given back.
    pub(super) fn give_back(self, io: &dyn BlockIo, txg: Txg) {
        debug_assert!(self.born.iter().all(|bp| bp.birth() == txg), "what is given back was written by this sync");
        for bp in self.born.iter().filter(|bp| !bp.is_embedded()) {
            io.free(txg, bp);
        }
    }
}
