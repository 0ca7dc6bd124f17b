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

#[derive(Debug)]
struct Entry {
    level: u8,
    id: u64,
    block: Abd,
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
        Some(decode_pointer(&entry.block, index))
    }

    fn block(&self, tree: &Tree, level: u8, id: u64) -> Option<Abd> {
        let cache = self.0.read();
        if cache.generation != tree.generation {
            return None;
        }
        cache.entries.iter().find(|entry| entry.id == id && entry.level == level).map(|entry| entry.block.clone())
    }

    fn remember(&self, tree: &Tree, level: u8, id: u64, block: &Abd) {
        let mut cache = self.0.write();
        if cache.generation != tree.generation || cache.entries.iter().any(|entry| entry.id == id && entry.level == level) {
            return;
        }
        let entry = Entry { level, id, block: block.clone(), _counted: Counted::new(What::Indirect, block.len()) };
        if cache.entries.len() < REMEMBERED {
            cache.entries.push(entry);
        } else {
            let at = cache.next;
            cache.entries[at] = entry;
            cache.next = (at + 1) % REMEMBERED;
        }
    }
}

/// Pointer `index` of an indirect block; a hole beyond its end.
pub(crate) fn decode_pointer(block: &Abd, index: usize) -> BlockPtr {
    let start = index * BlockPtr::BYTES;
    if let Some(bytes) = block.as_contiguous() {
        return match bytes.get(start..start + BlockPtr::BYTES).and_then(|raw| raw.first_chunk()) {
            Some(raw) => BlockPtr::decode(raw, true),
            None => BlockPtr::HOLE,
        };
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
