//! From a block number to its pointer: through the indirect blocks of a tree.
//!
//! Each dnode remembers a few indirect blocks that it used last, so that finding the pointer of the next block of a file is
//! one small lookup. What is remembered belongs to one generation of the tree; a sync drops it.

use super::kept::{Kept, decode_pointer};
use super::pins::Pins;
use super::tree::Tree;
use crate::blocks::Blocks;
use crate::memory::{Counted, What};
use crate::{BlockError, DmuError};
use abd::Abd;
use exec::RwLock;
use ondisk::{BlockPtr, ObjectId};
use std::ops::Range;
use std::sync::Arc;

/// Indirect blocks remembered per dnode; their buffers are shared with the cache.
const REMEMBERED: usize = 4;
/// Number of times that a block is looked up because the tree was replaced.
const TRIES_MAX: u32 = 8;

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
struct IndirectCache(RwLock<Remembered>);

impl IndirectCache {
    /// Forgets everything; what belongs to older trees than `generation` is not taken any more.
    fn reset(&self, generation: u64) {
        let mut cache = self.0.write();
        *cache = Remembered { generation, ..Remembered::default() };
    }

    /// The generation of the tree whose blocks are remembered.
    fn generation(&self) -> u64 {
        self.0.read().generation
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

/// A place in a tree: level and number of a block.
pub(crate) type Place = (u8, u64);

/// Reads one object's tree: the blocks that a [`Tree`] points to, whichever of the object's trees that is.
pub(crate) struct TreeReader {
    object: ObjectId,
    blocks: Arc<Blocks>,
    remembered: IndirectCache,
    /// Kept blocks of the meta-dnode; `None` for any other object.
    pins: Option<Arc<Pins>>,
}

impl TreeReader {
    pub(crate) fn new(object: ObjectId, blocks: Arc<Blocks>, pins: Option<Arc<Pins>>) -> TreeReader {
        TreeReader { object, blocks, remembered: IndirectCache::default(), pins }
    }

    /// The number of the object.
    pub(crate) fn object(&self) -> ObjectId {
        self.object
    }

    /// The store of its blocks.
    pub(crate) fn blocks(&self) -> &Arc<Blocks> {
        &self.blocks
    }

    /// The tree is replaced by one of this generation: what was remembered of older ones goes.
    pub(super) fn renew(&self, generation: u64) {
        self.remembered.reset(generation);
    }

    /// True while no newer tree replaced this one.
    pub(crate) fn is_current(&self, tree: &Tree) -> bool {
        self.remembered.generation() == tree.generation
    }

    /// After a failed read: `Ok` when the tree was replaced meanwhile, so that looking again may help.
    pub(crate) fn retry_if_stale(&self, tree: &Tree, tries: &mut u32, error: DmuError) -> Result<(), DmuError> {
        *tries += 1;
        if *tries < TRIES_MAX && !self.is_current(tree) { Ok(()) } else { Err(error) }
    }

    /// Reads the block (level, number) that `tree` points to. A failure is reported as damage only while the tree is current:
    /// what an older one pointed to may be another's by now.
    pub(crate) fn read(&self, tree: &Tree, bp: &BlockPtr, at: Place) -> Result<Abd, DmuError> {
        if let Some(data) = self.pins.as_ref().and_then(|pins| pins.get(at, bp)) {
            return Ok(data);
        }
        let io = self.blocks.io();
        let bookmark = self.blocks.bookmark(self.object, at.0, at.1);
        io.read_kept(bp, &bookmark, self.blocks.keep_of(bp)).map_err(|error| {
            if self.is_current(tree) {
                io.lost(bp, &bookmark, error);
            }
            DmuError::of_block(error, bookmark)
        })
    }

    /// Starts to read the block (level, number).
    pub(crate) fn prefetch(&self, bp: &BlockPtr, at: Place) {
        self.blocks.io().prefetch_kept(bp, &self.blocks.bookmark(self.object, at.0, at.1), self.blocks.keep_of(bp));
    }

    /// Starts the reads of blocks of a level of a tree, as far as their pointers are known without waiting.
    pub(crate) fn prefetch_level(&self, tree: &Tree, level: u8, ids: Range<u64>) {
        for id in ids {
            let Some(bp) = self.pointer_now(tree, level, id) else { continue };
            if !bp.is_hole() {
                self.prefetch(&bp, (level, id));
            }
        }
    }

    /// The pointer to block `id` of `level` in `tree`; reads indirect blocks as needed (waits).
    pub(crate) fn pointer(&self, tree: &Tree, level: u8, id: u64) -> Result<BlockPtr, DmuError> {
        if level + 1 >= tree.levels {
            return Ok(if level + 1 == tree.levels { tree.root(id) } else { BlockPtr::HOLE });
        }
        let (parent, index) = split(tree, id);
        if let Some(bp) = self.remembered.pointer(tree, level + 1, parent, index) {
            return Ok(bp);
        }
        match self.indirect(tree, level + 1, parent)? {
            Some(block) => Ok(decode_pointer(&block, index)),
            None => Ok(BlockPtr::HOLE),
        }
    }

    /// An indirect block of `tree`, or `None` for a hole.
    pub(crate) fn indirect(&self, tree: &Tree, level: u8, id: u64) -> Result<Option<Abd>, DmuError> {
        if let Some(block) = self.remembered.block(tree, level, id) {
            return Ok(Some(block));
        }
        let bp = self.pointer(tree, level, id)?;
        if bp.is_hole() {
            return Ok(None);
        }
        let block = self.read(tree, &bp, (level, id))?;
        if block.len() != 1 << tree.indirect_shift {
            return Err(DmuError::of_block(BlockError::Corrupt, self.blocks.bookmark(self.object, level, id)));
        }
        self.remembered.remember(tree, level, id, &block);
        Ok(Some(block))
    }

    /// Has an indirect block of `tree` in memory, as [`TreeReader::indirect`] would give it.
    pub(crate) fn warm(&self, tree: &Tree, level: u8, id: u64) -> Result<(), DmuError> {
        if self.remembered.has(tree, level, id) { Ok(()) } else { self.indirect(tree, level, id).map(drop) }
    }

    /// As [`TreeReader::pointer`], from memory only: starts to read what is missing and says `None`.
    pub(crate) fn pointer_now(&self, tree: &Tree, level: u8, id: u64) -> Option<BlockPtr> {
        self.pointer_in_memory(tree, level, id, &|bp, at| self.prefetch(bp, at))
    }

    /// As [`TreeReader::pointer`], from memory only; nothing is read.
    pub(super) fn pointer_at_hand(&self, tree: &Tree, level: u8, id: u64) -> Option<BlockPtr> {
        self.pointer_in_memory(tree, level, id, &|_, _| {})
    }

    /// As [`TreeReader::pointer`], from memory only; `missing` hears of the block that is not there.
    fn pointer_in_memory(&self, tree: &Tree, level: u8, id: u64, missing: &dyn Fn(&BlockPtr, Place)) -> Option<BlockPtr> {
        if level + 1 >= tree.levels {
            return Some(if level + 1 == tree.levels { tree.root(id) } else { BlockPtr::HOLE });
        }
        let (parent, index) = split(tree, id);
        if let Some(bp) = self.remembered.pointer(tree, level + 1, parent, index) {
            return Some(bp);
        }
        let bp = self.pointer_in_memory(tree, level + 1, parent, missing)?;
        if bp.is_hole() {
            return Some(bp);
        }
        let Some(block) = self.blocks.io().cached(&bp) else {
            missing(&bp, (level + 1, parent));
            return None;
        };
        if block.len() == 1 << tree.indirect_shift {
            self.remembered.remember(tree, level + 1, parent, &block);
        }
        Some(decode_pointer(&block, index))
    }
}

/// The parent of block `id`, and its index there.
fn split(tree: &Tree, id: u64) -> (u64, usize) {
    let shift = tree.pointer_shift();
    (id >> shift, (id & ((1 << shift) - 1)) as usize)
}
