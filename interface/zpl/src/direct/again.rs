//! Writes that found no room while what was freed before rests: repeated once txgs have passed, as a transaction waits for
//! space before a buffered write (OpenZFS: `dmu_tx_wait`, `ERESTART` of `dsl_dir_tempreserve_space`; its direct writes fail).
//!
//! Blocks of a direct write are allocated at once, those that it replaces are free two txgs after its own: a file system that
//! is almost full runs out of room for a moment although nothing grows. The write keeps its range locked and gives up its
//! transaction. Who waits for it waits for a txg; a write that nobody waits for goes on in an operation that the file system
//! starts for all of them, except under an executor without threads, where it fails.

use super::transfer::{Prepared, WriteThen, Writing};
use crate::znode::{Kept, Node};
use crate::{Zfs, ZplError};
use std::sync::Arc;

/// How often a write is repeated: what is freed rests for two txgs, and others may take it.
const TRIES_MAX: u32 = 8;

/// A write that nobody waits for.
pub(crate) struct Again {
    pub(super) writing: Writing,
    pub(super) kept: Kept,
    pub(super) synchronous: bool,
    pub(super) then: WriteThen,
}

impl Zfs {
    /// True when a write that found no room may be repeated.
    pub(super) fn can_write_again(&self, writing: &Writing) -> bool {
        writing.tries < TRIES_MAX
    }

    /// Waits for room and begins anew; waits.
    pub(super) fn write_again(&self, node: &Node, writing: Writing) -> Result<Prepared, ZplError> {
        if !self.wait_for_freed()? {
            return Err(ZplError::NoSpace);
        }
        self.begin_write(node, writing)
    }

    /// Repeats a write that nobody waits for, in an operation.
    pub(super) fn write_again_later(self: &Arc<Self>, again: Again) {
        if self.exec.is_inline() {
            let Again { writing, kept, then, .. } = again;
            drop((writing, kept));
            return then(Err(ZplError::NoSpace));
        }
        let is_first = {
            let mut waiting = self.again.lock();
            waiting.push(again);
            waiting.len() == 1
        };
        if is_first {
            let zfs = self.clone();
            // Detached: it ends when nobody waits for room.
            drop(self.exec.spawn_operation("z-write-again", Box::new(move || zfs.drain_again())));
        }
    }

    fn drain_again(self: &Arc<Self>) {
        let room = self.wait_for_freed();
        // Who comes from now on starts an operation of his own.
        let waiting = std::mem::take(&mut *self.again.lock());
        for Again { writing, kept, synchronous, then } in waiting {
            let node = kept.node();
            drop(kept);
            let prepared = match &room {
                Ok(true) => self.begin_write(&node, writing),
                Ok(false) => Err(ZplError::NoSpace),
                Err(error) => Err(*error),
            };
            self.carry_out(&node, prepared, synchronous, then);
        }
    }

    fn wait_for_freed(&self) -> Result<bool, ZplError> {
        let txgs = self.txgs.as_ref().ok_or(ZplError::ReadOnly)?;
        let source = self.space.read().clone();
        match source {
            Some(source) => source.wait_for_freed(txgs),
            None => Ok(txgs.wait_synced(txgs.open_txg()).map(|()| true)?),
        }
    }
}
