//! From a block number to its pointer: through the indirect blocks of a tree.
//!
//! Each dnode remembers a few indirect blocks that it used last, so that finding the pointer of the next block of a file is
//! one small lookup. What is remembered belongs to one generation of the tree; a sync drops it.

use super::Dnode;
use crate::BlockError;
use crate::memory::{Counted, What};
use crate::state::Tree;
use abd::Abd;
use exec::RwLock;
use ondisk::BlockPtr;

/// Indirect blocks remembered per dnode; their buffers are shared with the cache.
const REMEMBERED: usize = 4;
/// Of a block whose pointers are holes after so many only these are kept: each file system has a tree of objects of six levels, of which each block
/// of 128 KiB has one pointer.
const FEW: usize = 16;

/// What is kept of a block.
#[derive(Debug)]
pub(super) enum Kept {
    Whole(Abd),
    /// Its first bytes, and how many it has; the others are zero.
    Start(Box<[u8]>, usize),
}

impl Kept {
    pub(super) fn of(block: &Abd) -> Kept {
        let start = block.as_contiguous().map(|bytes| bytes.split_at(bytes.len().min(FEW * BlockPtr::BYTES)));
        match start {
            Some((start, rest)) if abd::slice_is_zero(rest) => Kept::Start(start.into(), block.len()),
            _ => Kept::Whole(block.clone()),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Kept::Whole(block) => block.len(),
            Kept::Start(start, _) => start.len(),
        }
    }

    pub(super) fn pointer(&self, index: usize) -> BlockPtr {
        match self {
            Kept::Whole(block) => decode_pointer(block, index),
            Kept::Start(start, _) => pointer_of(start, index),
        }
    }

    pub(super) fn block(&self) -> Abd {
        match self {
            Kept::Whole(block) => block.clone(),
            Kept::Start(start, length) => {
                let mut block = Abd::zeroed(*length);
                block.make_mut()[..start.len()].copy_from_slice(start);
                block
            }
        }
    }
}

#[derive(Debug)]
struct Entry {
    level: u8,
    id: u64,
    kept: Kept,
    _counted: Counted,
}

#[derive(Debug, Default)]
struct Remembered {
    generation: u64,
    entries: Vec<Entry>,
    next: usize,
}

/// The indirect blocks that a dnode used last.
#[derive(Debug, Default)]
pub(super) struct IndirectCache(RwLock<Remembered>);

impl IndirectCache {
    /// Forgets everything; what belongs to older trees than `generation` is not taken any more.
    pub(super) fn reset(&self, generation: u64) {
        let mut cache = self.0.write();
        *cache = Remembered { generation, ..Remembered::default() };
    }

    fn pointer(&self, tree: &Tree, level: u8, id: u64, index: usize) -> Option<BlockPtr> {
        let cache = self.0.read();
        if cache.generation != tree.generation {
            return None;
        }
        let entry = cache.entries.iter().find(|entry| entry.id == id && entry.level == level)?;
        Some(entry.kept.pointer(index))
    }

    fn has(&self, tree: &Tree, level: u8, id: u64) -> bool {
        let cache = self.0.read();
        cache.generation == tree.generation && cache.entries.iter().any(|entry| entry.id == id && entry.level == level)
    }

    fn block(&self, tree: &Tree, level: u8, id: u64) -> Option<Abd> {
        let cache = self.0.read();
        if cache.generation != tree.generation {
            return None;
        }
        cache.entries.iter().find(|entry| entry.id == id && entry.level == level).map(|entry| entry.kept.block())
    }

    fn remember(&self, tree: &Tree, level: u8, id: u64, block: &Abd) {
        let mut cache = self.0.write();
        if cache.generation != tree.generation || cache.entries.iter().any(|entry| entry.id == id && entry.level == level) {
            return;
        }
        let kept = Kept::of(block);
        let entry = Entry { level, id, _counted: Counted::new(What::Indirect, kept.bytes()), kept };
        if cache.entries.len() < REMEMBERED {
            cache.entries.push(entry);
        } else {
            let at = cache.next;
            cache.entries[at] = entry;
            cache.next = (at + 1) % REMEMBERED;
        }
    }
}

/// Pointer `index` of bytes; a hole beyond their end.
fn pointer_of(bytes: &[u8], index: usize) -> BlockPtr {
    let start = index * BlockPtr::BYTES;
    match bytes.get(start..start + BlockPtr::BYTES).and_then(|raw| raw.first_chunk()) {
        Some(raw) => BlockPtr::decode(raw, true),
        None => BlockPtr::HOLE,
    }
}

/// Pointer `index` of an indirect block; a hole beyond its end.
pub(crate) fn decode_pointer(block: &Abd, index: usize) -> BlockPtr {
    let start = index * BlockPtr::BYTES;
    if let Some(bytes) = block.as_contiguous() {
        return pointer_of(bytes, index);
    }
    let mut raw = [0; BlockPtr::BYTES];
    if start + raw.len() <= block.len() {
        block.copy_to(start, &mut raw);
    }
    BlockPtr::decode(&raw, true)
}

impl Dnode {
    /// The pointer to block `id` of `level` in `tree`; reads indirect blocks as needed (waits).
    pub(crate) fn pointer(&self, tree: &Tree, level: u8, id: u64) -> Result<BlockPtr, BlockError> {
        if level + 1 >= tree.levels {
            return Ok(if level + 1 == tree.levels { tree.root(id) } else { BlockPtr::HOLE });
        }
        let (parent, index) = split(tree, id);
        if let Some(bp) = self.indirects.pointer(tree, level + 1, parent, index) {
            return Ok(bp);
        }
        match self.indirect(tree, level + 1, parent)? {
            Some(block) => Ok(decode_pointer(&block, index)),
            None => Ok(BlockPtr::HOLE),
        }
    }

    /// An indirect block of `tree`, or `None` for a hole.
    pub(crate) fn indirect(&self, tree: &Tree, level: u8, id: u64) -> Result<Option<Abd>, BlockError> {
        if let Some(block) = self.indirects.block(tree, level, id) {
            return Ok(Some(block));
        }
        let bp = self.pointer(tree, level, id)?;
        if bp.is_hole() {
            return Ok(None);
        }
        let block = self.read_pointed(tree, &bp, (level, id))?;
        if block.len() != 1 << tree.indirect_shift {
            return Err(BlockError::Corrupt);
        }
        self.indirects.remember(tree, level, id, &block);
        Ok(Some(block))
    }

    /// Has an indirect block of `tree` in memory, as [`Dnode::indirect`] would give it.
    pub(crate) fn warm_indirect(&self, tree: &Tree, level: u8, id: u64) -> Result<(), BlockError> {
        if self.indirects.has(tree, level, id) { Ok(()) } else { self.indirect(tree, level, id).map(drop) }
    }

    /// As [`Dnode::pointer`], from memory only: starts to read what is missing and says `None`.
    pub(crate) fn pointer_now(&self, tree: &Tree, level: u8, id: u64) -> Option<BlockPtr> {
        if level + 1 >= tree.levels {
            return Some(if level + 1 == tree.levels { tree.root(id) } else { BlockPtr::HOLE });
        }
        let (parent, index) = split(tree, id);
        if let Some(bp) = self.indirects.pointer(tree, level + 1, parent, index) {
            return Some(bp);
        }
        let bp = self.pointer_now(tree, level + 1, parent)?;
        if bp.is_hole() {
            return Some(bp);
        }
        let io = &self.context.env.io;
        let Some(block) = io.cached(&bp) else {
            io.prefetch_kept(&bp, &self.context.bookmark(self.object, level + 1, parent), self.keep(&bp));
            return None;
        };
        if block.len() == 1 << tree.indirect_shift {
            self.indirects.remember(tree, level + 1, parent, &block);
        }
        Some(decode_pointer(&block, index))
    }
}

/// The parent of block `id`, and its index there.
fn split(tree: &Tree, id: u64) -> (u64, usize) {
    let shift = tree.pointer_shift();
    (id >> shift, (id & ((1 << shift) - 1)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 128 << 10;

    fn block_of(pointers: usize) -> Abd {
        let mut block = Abd::zeroed(BYTES);
        for (index, raw) in block.make_mut().chunks_exact_mut(BlockPtr::BYTES).take(pointers).enumerate() {
            let mut bp = BlockPtr::HOLE;
            bp.set_lsize(4096 * (index + 1));
            raw.copy_from_slice(&bp.encode());
        }
        block
    }

    /// A thousand mounted file systems held half a gigabyte of zeros; what is kept must say the same as the block.
    #[test]
    fn of_blocks_with_few_pointers_only_these_are_kept() {
        for (pointers, bytes) in [(0, 2048), (1, 2048), (FEW, 2048), (FEW + 1, BYTES), (1024, BYTES)] {
            let block = block_of(pointers);
            let kept = Kept::of(&block);
            assert_eq!(kept.bytes(), bytes, "{pointers} pointers");
            assert!(kept.block().to_vec() == block.to_vec(), "{pointers} pointers");
            for index in [0, 1, FEW - 1, FEW, 1023, 1024] {
                assert_eq!(kept.pointer(index), decode_pointer(&block, index), "pointer {index} of {pointers}");
            }
        }
    }
}
