//! Freeing the blocks below a dnode in a sync: of ranges, or all of them.
//!
//! OpenZFS: `dnode_sync_free_range`, `free_children`. Blocks that the txg also wrote are left alone: their new pointer
//! replaces the old one. An indirect block whose every child goes is a hole at once and isn't written.
//!
//! A damaged indirect block must not stop the pool's sync for ever: what lies below it can't be named any more, so it is
//! given up (leaked), which is what remains once every copy is lost. Users hear of the damage in open context
//! ([`crate::Dnode::prepare_free`]).

use super::node::NodeSync;
use super::pointer::{Shape, finish_pointer};
use crate::dnode::{Wanted, decode_pointer};
use crate::{BlockError, DmuError};
use ondisk::BlockPtr;
use range_tree::RangeTree;

/// Indirect blocks that are read ahead together.
const PREFETCH_BLOCKS: usize = 64;

impl NodeSync {
    /// Frees all blocks of the ranges that the tree has.
    pub(super) fn free_ranges(&mut self, freed: &RangeTree) -> Result<(), DmuError> {
        let mut from = 0;
        while let Some(range) = freed.first_overlap(from..u64::MAX) {
            from = range.end;
            if self.tree.levels == 1 {
                let end = range.end.min(u64::from(self.tree.block_ptr_count));
                for id in range.start..end {
                    let old = self.tree.root(id);
                    self.punch(id, &old);
                }
            } else {
                self.free_in_indirects(range)?;
            }
            if from == u64::MAX {
                break;
            }
        }
        Ok(())
    }

    /// Makes block `id` a hole unless it is one, or was written in this txg.
    fn punch(&mut self, id: u64, old: &BlockPtr) {
        if old.is_hole() || self.blocks.contains_key(&id) {
            return;
        }
        let hole = finish_pointer(BlockPtr::HOLE, old, &self.hole_shape(old));
        self.replace(old, &hole);
        self.edits.insert(id, hole);
    }

    fn hole_shape(&self, old: &BlockPtr) -> Shape {
        Shape { lsize: old.lsize(), object_type: old.object_type(), level: old.level(), ..self.indirect_shape(0) }
    }

    fn free_in_indirects(&mut self, range: std::ops::Range<u64>) -> Result<(), DmuError> {
        let tree = self.tree.clone();
        let shift = tree.pointer_shift();
        let mut next = range.start >> shift;
        let last = (range.end - 1) >> shift;
        let mut warmed = next;
        while let Some(id) = readable(self.dnode.contents.reader.search(&tree, 1, next, Wanted::Data))?.flatten() {
            if id > last {
                break;
            }
            if id >= warmed {
                warmed = id + PREFETCH_BLOCKS as u64;
                self.dnode.contents.reader.prefetch_level(&self.tree, 1, id..warmed.min(last.saturating_add(1)));
            }
            self.free_in_block(id, &range)?;
            next = id + 1;
        }
        Ok(())
    }

    /// Frees the children of one level-1 block that lie in the range.
    fn free_in_block(&mut self, id: u64, range: &std::ops::Range<u64>) -> Result<(), DmuError> {
        let tree = self.tree.clone();
        let shift = tree.pointer_shift();
        let Some(block) = readable(self.dnode.contents.reader.indirect(&tree, 1, id))?.flatten() else { return Ok(()) };
        let start = id << shift;
        let end = start + (1 << shift);
        let children = || (start..end).map(|child| (child, decode_pointer(&block, (child - start) as usize)));
        let keeps_some = self.blocks.range(start..end).next().is_some()
            || self.edits.range(start..end).next().is_some()
            || children().any(|(child, bp)| !bp.is_hole() && !range.contains(&child));
        if keeps_some {
            for (child, bp) in children().filter(|(child, _)| range.contains(child)) {
                self.punch(child, &bp);
            }
            return Ok(());
        }
        for (_, bp) in children().filter(|(_, bp)| !bp.is_hole()) {
            self.replace(&bp, &BlockPtr::HOLE);
        }
        let old = self.dnode.contents.reader.pointer(&tree, 1, id)?;
        let hole = finish_pointer(BlockPtr::HOLE, &old, &self.indirect_shape(1));
        self.replace(&old, &hole);
        self.emptied.insert(id, hole);
        Ok(())
    }

    /// Frees every block, the spill block and all indirect blocks.
    pub(super) fn free_everything(&mut self) -> Result<(), DmuError> {
        let tree = self.tree.clone();
        if let Some(spill) = tree.spill {
            self.replace(&spill, &BlockPtr::HOLE);
        }
        for id in 0..u64::from(tree.block_ptr_count) {
            self.free_below(tree.levels - 1, id, &tree.root(id))?;
        }
        Ok(())
    }

    fn free_below(&mut self, level: u8, id: u64, bp: &BlockPtr) -> Result<(), DmuError> {
        if bp.is_hole() {
            return Ok(());
        }
        if level > 0 {
            let tree = self.tree.clone();
            let shift = tree.pointer_shift();
            let block = readable(self.dnode.contents.reader.indirect(&tree, level, id))?.flatten();
            let first = id << shift;
            for child in block.iter().flat_map(|_| first..first + (1 << shift)) {
                if level > 1 && (child - first).is_multiple_of(PREFETCH_BLOCKS as u64) {
                    self.dnode.contents.reader.prefetch_level(&self.tree, level - 1, child..child + PREFETCH_BLOCKS as u64);
                }
                let index = (child - first) as usize;
                let child_bp = block.as_ref().map_or(BlockPtr::HOLE, |block| decode_pointer(block, index));
                self.free_below(level - 1, child, &child_bp)?;
            }
        }
        self.replace(bp, &BlockPtr::HOLE);
        Ok(())
    }

    /// Starts the reads of the level-1 blocks above the dirty blocks.
    pub(super) fn prefetch_parents(&self) {
        let shift = self.tree.pointer_shift();
        let mut last = None;
        for id in self.blocks.keys().map(|block| block >> shift) {
            if last != Some(id) {
                last = Some(id);
                self.dnode.contents.reader.prefetch_level(&self.tree, 1, id..id + 1);
            }
        }
    }
}

/// `None` for a block of which every copy is lost; other failures may pass and stay errors.
fn readable<T>(read: Result<T, DmuError>) -> Result<Option<T>, DmuError> {
    match read {
        Ok(block) => Ok(Some(block)),
        Err(DmuError::Block(BlockError::Checksum | BlockError::Corrupt, _)) => Ok(None),
        Err(error) => Err(error),
    }
}
