//! Pinning the record of a dnode: what the sync will need of the meta-dnode's blocks to write it down.

use super::contents::Contents;
use super::indirect::TreeReader;
use super::pins::{Bytes, Pinned, Pins};
use super::tree::Tree;
use crate::DmuError;
use ondisk::{DNODE_SLOTS_PER_BLOCK, ObjectId, Txg};

/// Has the block that holds the object's record, and those above it, kept until `txg` is synced. Gives the bytes of
/// records that came to memory, `None` when all were there. An error is one of these blocks.
pub(super) fn pin_record(pins: &Pins, meta: &Contents, object: ObjectId, txg: Txg) -> Result<Option<usize>, DmuError> {
    let block = object.0 / DNODE_SLOTS_PER_BLOCK as u64;
    if pins.has((0, block), txg) {
        return Ok(None);
    }
    let mut tries = 0;
    loop {
        let tree = meta.tree();
        match read_path(pins, &meta.reader, &tree, block, txg) {
            Err(error) => meta.reader.retry_if_stale(&tree, &mut tries, error)?,
            Ok(found) => {
                let data = found.iter().filter(|(at, ..)| at.0 == 0).filter_map(|(.., bytes)| bytes.as_ref());
                let bytes = data.map(Bytes::held).sum();
                if meta.while_current(&tree, || pins.add(found, txg)) {
                    return Ok(Some(bytes));
                }
            }
        }
    }
}

/// The blocks from the root down to data block `block` that are not kept yet.
fn read_path(pins: &Pins, reader: &TreeReader, tree: &Tree, block: u64, txg: Txg) -> Result<Vec<Pinned>, DmuError> {
    let shift = tree.pointer_shift();
    let id_at = |level: u8| block.checked_shr(shift * u32::from(level)).unwrap_or(0);
    let mut found = Vec::new();
    let mut bp = tree.root(id_at(tree.levels - 1));
    for level in (1..tree.levels).rev() {
        let (id, index) = (id_at(level), (id_at(level - 1) & ((1 << shift) - 1)) as usize);
        bp = match pins.prolong((level, id), &bp, txg, index) {
            Some(child) => child,
            None => {
                let bytes = if bp.is_hole() { None } else { reader.indirect(tree, level, id)?.as_ref().map(Bytes::of) };
                let child = Bytes::pointer(bytes.as_ref(), index);
                found.push(((level, id), bp, bytes));
                child
            }
        };
    }
    // The data block is what tells that the whole path is kept: it comes with the others or not at all.
    let bytes = if bp.is_hole() { None } else { Some(Bytes::of(&reader.read(tree, &bp, (0, block))?)) };
    found.push(((0, block), bp, bytes));
    Ok(found)
}
