//! Bytes and blocks of writes whose records are written to the log (OpenZFS: `zfs_get_data`).

use super::Zfs;
use crate::ZplError;
use crate::nodes::Kept;
use dmu::{BlockError, DmuError};
use ondisk::{BlockPtr, Txg};
use zil::{Filled, LogSource, Payload, Range};

/// Error in the words of the log.
fn failed(error: ZplError) -> DmuError {
    match error {
        ZplError::Stopped => DmuError::Stopped,
        ZplError::Io => DmuError::Block(BlockError::Io),
        _ => DmuError::Corrupt,
    }
}

/// True for blocks that a record can name: they are the file's alone, and lie in one piece.
fn can_be_named(bp: &BlockPtr) -> bool {
    !bp.is_embedded() && !bp.is_dedup() && !bp.is_gang()
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
        if is_block { self.fill_block(&node, range) } else { self.fill_bytes(&node, range) }
    }
}

impl Zfs {
    fn fill_bytes(&self, node: &Kept, range: &Range) -> Result<Filled, DmuError> {
        let _guard = node.lock_range(&self.store.exec, range.offset..range.offset.saturating_add(range.length), false);
        read(node, range)
    }

    /// Block of a direct write, if it is still there; else what is there now.
    fn fill_block(&self, node: &Kept, range: &Range) -> Result<Filled, DmuError> {
        let block = node.dnode.info()?.block_size as u64;
        let start = range.offset - range.offset % block;
        let end = start.saturating_add(block).max(range.offset.saturating_add(range.length));
        let _guard = node.lock_range(&self.store.exec, start..end, false);
        if !is_there(node, range) {
            return Ok(Filled::Nothing);
        }
        let is_one_block = range.offset + range.length <= start + block;
        match node.dnode.unsynced_direct_block(range.offset).filter(|bp| is_one_block && can_be_named(bp)) {
            Some(bp) if bp.is_hole() => {
                let mut hole = BlockPtr::HOLE;
                hole.set_lsize(block as usize);
                Ok(Filled::Block(hole))
            }
            Some(bp) => Ok(Filled::Block(bp)),
            None => read(node, range),
        }
    }
}

/// True when some of the range is still the file's whose write was noted.
fn is_there(node: &Kept, range: &Range) -> bool {
    let state = node.state.lock();
    !state.unlinked && state.fields.generation == range.generation && range.offset < state.fields.size
}

/// Bytes of a range that is locked.
fn read(node: &Kept, range: &Range) -> Result<Filled, DmuError> {
    if !is_there(node, range) {
        return Ok(Filled::Nothing);
    }
    let length = usize::try_from(range.length).map_err(|_| DmuError::Invalid)?;
    let have = (node.fields().size - range.offset).min(range.length) as usize;
    let mut bytes = vec![0; length];
    node.dnode.read(range.offset, &mut bytes[..have])?;
    Ok(Filled::Bytes(bytes))
}
