//! Bytes and blocks of writes whose records are written to the log (OpenZFS: `zfs_get_data`).

use super::Zfs;
use crate::ZplError;
use crate::nodes::Kept;
use dmu::{BlockError, DmuError};
use ondisk::Txg;
use zil::{Filled, LogSource, Payload, Range, blocks_around, fill_block, fill_bytes};

/// Error in the words of the log.
fn failed(error: ZplError) -> DmuError {
    match error {
        ZplError::Stopped(_) => DmuError::Stopped,
        ZplError::Io(_) => BlockError::Io.into(),
        _ => DmuError::Corrupt,
    }
}

impl LogSource for Zfs {
    /// Reads under the lock of the range: whoever has it may wait for a transaction, so nothing that a sync waits for may be held.
    fn fill(&self, payload: &Payload, txg: Txg) -> Result<Filled, DmuError> {
        let (range, is_block) = match payload {
            Payload::None => return Ok(Filled::Bytes(Vec::new())),
            Payload::Copied(range) => (range, false),
            Payload::Block(range) => (range, true),
        };
        if self.store.room.is_synced(txg) {
            return Ok(Filled::Nothing);
        }
        let node = match self.nodes.kept_node(range.object) {
            Ok(node) => node,
            Err(ZplError::NotFound) => return Ok(Filled::Nothing),
            Err(error) => return Err(failed(error)),
        };
        // A part of a record may be on the devices since, with all of it: then the record of the log names it instead of reading it back.
        let is_block = is_block || node.dnode.unsynced_direct_block(range.offset).is_some();
        if is_block { self.fill_block(&node, range) } else { self.fill_bytes(&node, range) }
    }
}

impl Zfs {
    fn fill_bytes(&self, node: &Kept, range: &Range) -> Result<Filled, DmuError> {
        let _guard = node.lock_range(&self.store.exec, range.offset..range.offset.saturating_add(range.length), false);
        if is_there(node, range) { fill_bytes(&node.dnode, range, node.fields().size) } else { Ok(Filled::Nothing) }
    }

    /// Block of a direct write, if it is still there; else what is there now.
    fn fill_block(&self, node: &Kept, range: &Range) -> Result<Filled, DmuError> {
        let _guard = node.lock_range(&self.store.exec, blocks_around(&node.dnode, range)?, false);
        if is_there(node, range) { fill_block(&node.dnode, range, node.fields().size) } else { Ok(Filled::Nothing) }
    }
}

/// True when some of the range is still the file's whose write was noted.
fn is_there(node: &Kept, range: &Range) -> bool {
    let state = node.state.lock();
    !state.unlinked && state.fields.generation == range.generation && range.offset < state.fields.size
}
