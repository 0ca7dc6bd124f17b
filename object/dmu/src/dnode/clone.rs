//! Blocks that objects share: pointers of one are put into another, and no data moves (OpenZFS: `dmu_read_l0_bps`, `dmu_brt_clone`).
//!
//! Invariant: only blocks are shared that a tree refers to as of a sync and that no later txg has touched. A block whose death waits for a sync
//! looks alive in the tree, but is nobody's once that is done.

use super::contents::Contents;
use super::core::Core;
use super::dirty::{Dropped, Record, Written};
use super::state::State;
use crate::DmuError;
use ondisk::{BlockPtr, EmbeddedKind, Txg};
use std::ops::Range;
use std::sync::Arc;

/// True when the pointer leads to a block.
fn has_block(bp: &BlockPtr) -> bool {
    !bp.is_hole() && !bp.is_embedded()
}

/// Pointers that lead to blocks.
pub(super) fn with_blocks(pointers: &[BlockPtr]) -> impl Iterator<Item = &BlockPtr> {
    pointers.iter().filter(|bp| has_block(bp))
}

/// True for pointers that an object of these facts can have as well. What keys have a say in stays with its object.
fn may_take(bp: &BlockPtr, core: &Core) -> bool {
    if bp.is_hole() {
        return true;
    }
    let is_like = bp.level() == 0 && bp.object_type() == core.kind && bp.lsize() == core.block_size;
    let is_plain = !bp.is_embedded() || bp.embedded_kind() == EmbeddedKind::DATA;
    is_like && is_plain && !bp.uses_crypt()
}

/// Pointers of blocks as the last sync of the object left them; None when one of them has changed since.
pub(super) fn settled_blocks(contents: &Contents, blocks: &Range<u64>) -> Result<Option<Vec<BlockPtr>>, DmuError> {
    let mut tries = 0;
    loop {
        let Some((tree, max_block)) = contents.settled(blocks)? else { return Ok(None) };
        let pointer = |block| if block > max_block { Ok(BlockPtr::HOLE) } else { contents.reader.pointer(&tree, 0, block) };
        match blocks.clone().map(pointer).collect::<Result<Vec<BlockPtr>, DmuError>>() {
            Ok(found) if contents.reader.is_current(&tree) => return Ok(Some(found)),
            // A sync came in between: not of these blocks, but what was read may be neither old nor new.
            Ok(_) => {}
            Err(error) => contents.reader.retry_if_stale(&tree, &mut tries, error)?,
        }
    }
}

/// Puts pointers of another object into the blocks from `first` to `last`, as records of the newest txg; gives the records that they replace.
pub(super) fn put(state: &mut State, (first, last): (u64, u64), pointers: &[BlockPtr], txg: Txg) -> Result<Dropped, DmuError> {
    let core = &state.core;
    if core.kind.is_metadata() || !pointers.iter().all(|bp| may_take(bp, core)) {
        return Err(DmuError::NotSupported);
    }
    if last > 0 && !core.block_size.is_power_of_two() {
        return Err(DmuError::Invalid);
    }
    let mut dropped = Dropped::default();
    for (block, bp) in (first..).zip(pointers) {
        let mut bp = *bp;
        if !bp.is_hole() {
            // Whoever walks by births finds it where it is new; the devices know it by when it was written.
            bp.set_birth(txg, bp.physical_birth());
        }
        let is_shared = has_block(&bp);
        dropped.push(state.insert(block, Record::Written(Arc::new(Written { bp, is_shared })))?);
    }
    Ok(dropped)
}
