//! The dnodes of an object set: allocate, claim, free, hold, iterate.
//!
//! OpenZFS: `dmu_object.c`, `dnode_hold_impl`.

use super::cache::DnodeCache;
use super::new_object::NewObject;
use super::slots::{Allocator, PER_BLOCK, dnodes_in};
use crate::dnode::{Context, Core, Tree};
use crate::special::special_index;
use crate::{BlockError, DmuError, Dnode, DnodeEvent, Tx};
use abd::Abd;
use exec::Mutex;
use ondisk::{BlockId, BlockPtr, DNODE_SLOT_BYTES, DnodePhys, OBJECT_NUMBER_SHIFT, ObjectId, Txg};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// All dnodes of an object set: their records in the meta-dnode's blocks, those in memory, and which numbers are free.
pub(crate) struct DnodeTable {
    context: Arc<Context>,
    meta: Arc<Dnode>,
    /// The accounting objects -1, -2, -3, once they exist.
    special: Mutex<[Option<Arc<Dnode>>; 3]>,
    cache: DnodeCache,
    allocator: Allocator,
    /// Some object made since the opening takes more than one slot.
    has_large: AtomicBool,
}

impl DnodeTable {
    pub(super) fn new(context: Arc<Context>, meta: Arc<Dnode>, special: [Option<Arc<Dnode>>; 3]) -> DnodeTable {
        context.set_meta(&meta);
        DnodeTable {
            context,
            meta,
            special: Mutex::new(special),
            cache: DnodeCache::default(),
            allocator: Allocator::default(),
            has_large: AtomicBool::new(false),
        }
    }

    /// The meta-dnode.
    pub(super) fn meta(&self) -> &Arc<Dnode> {
        &self.meta
    }

    /// The accounting objects.
    pub(crate) fn special(&self) -> [Option<Arc<Dnode>>; 3] {
        self.special.lock().clone()
    }

    /// The dnode, if it is in memory; it does not count as used.
    pub(super) fn peek(&self, object: ObjectId) -> Option<Arc<Dnode>> {
        match object {
            ObjectId(0) => Some(self.meta.clone()),
            _ => self.cache.peek(object),
        }
    }

    /// True once an object of more than one slot was made since the opening.
    pub(super) fn has_large(&self) -> bool {
        self.has_large.load(Ordering::Relaxed)
    }

    /// A freed object was synced in `txg`: its number can be used again, where it need not rest.
    pub(crate) fn forget(&self, object: ObjectId, slots: u8, txg: Txg) {
        self.cache.remove(object);
        self.allocator.release_in(object, slots, txg);
    }

    /// Has numbers that are freed rest until their txg is on disk.
    pub(super) fn rest_numbers(&self) {
        self.allocator.rest();
    }

    /// A txg is being synced: numbers that were freed before it can be used again.
    pub(crate) fn end_rest(&self, txg: Txg) {
        self.allocator.end_rest(txg);
    }

    /// An object's dnode was synced.
    pub(crate) fn settle(&self, object: ObjectId) {
        self.allocator.settle(object);
    }

    fn dnode_block(&self, block: u64) -> Result<Abd, DmuError> {
        Ok(self.meta.read_block(BlockId(block))?.to_contiguous())
    }

    /// Has the bitmap of a dnode block.
    fn look_at(&self, block: u64) -> Result<(), DmuError> {
        if self.allocator.taken(block).is_none() {
            let data = self.dnode_block(block)?;
            self.allocator.learn(block, data.as_contiguous().ok_or(DmuError::Corrupt)?);
        }
        Ok(())
    }

    /// Makes an object at a free number.
    pub(super) fn allocate(&self, new: NewObject, tx: &Tx) -> Result<Arc<Dnode>, DmuError> {
        let core = new.core()?;
        loop {
            let block = self.allocator.cursor();
            self.look_at(block)?;
            match self.allocator.take_in(block, core.slots) {
                Some(object) => return self.make_object(object, core, tx),
                None => self.advance_cursor(block)?,
            }
        }
    }

    /// Moves the cursor from a block without room to one that may have some.
    fn advance_cursor(&self, from: u64) -> Result<(), DmuError> {
        DnodeEvent::NextBlock.count();
        let next = self.block_with_room(from + 1)?;
        if self.allocator.advance(from, next) { Ok(()) } else { Err(BlockError::NoSpace.into()) }
    }

    /// Pointer to a block of dnodes as of the last sync.
    fn pointer(&self, block: u64) -> Result<BlockPtr, DmuError> {
        let contents = &self.meta.contents;
        let mut tries = 0;
        loop {
            let tree = contents.tree();
            match contents.reader.pointer(&tree, 0, block) {
                Ok(bp) => return Ok(bp),
                Err(error) => contents.reader.retry_if_stale(&tree, &mut tries, error)?,
            }
        }
    }

    /// The first dnode block from `block` on that is at most a quarter full by its fill count (OpenZFS looks for the same:
    /// a block of large dnodes is full with few).
    fn block_with_room(&self, mut block: u64) -> Result<u64, DmuError> {
        loop {
            let bp = self.pointer(block)?;
            if bp.is_hole() || bp.fill() <= PER_BLOCK / 4 {
                return Ok(block);
            }
            block += 1;
        }
    }

    /// Numbers of the objects whose blocks of dnodes are not those of `older`.
    pub(super) fn changed_since(&self, older: &DnodeTable) -> Result<Vec<Range<u64>>, DmuError> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut block = 0;
        loop {
            let (new, old) = (self.meta.contents.next_data_block(block)?, older.meta.contents.next_data_block(block)?);
            let Some(next) = new.into_iter().chain(old).min() else { return Ok(ranges) };
            if self.pointer(next)? != older.pointer(next)? {
                let objects = next * PER_BLOCK..(next + 1) * PER_BLOCK;
                match ranges.last_mut() {
                    Some(last) if last.end == objects.start => last.end = objects.end,
                    _ => ranges.push(objects),
                }
            }
            block = next + 1;
        }
    }

    fn make_object(&self, object: ObjectId, core: Core, tx: &Tx) -> Result<Arc<Dnode>, DmuError> {
        let tree = Tree::empty(&core);
        let slots = core.slots;
        let dnode = Dnode::new(self.context.clone(), object, core, tree);
        self.cache.add(dnode.clone());
        if slots > 1 {
            self.has_large.store(true, Ordering::Relaxed);
        }
        if let Err(error) = dnode.change(tx, |_| Ok(())) {
            self.cache.remove(object);
            self.allocator.release(object, slots);
            return Err(error);
        }
        Ok(dnode)
    }

    /// Makes an object at this number (also the accounting objects -1, -2, -3).
    pub(super) fn claim(&self, object: ObjectId, new: NewObject, tx: &Tx) -> Result<Arc<Dnode>, DmuError> {
        let core = new.core()?;
        if let Some(index) = special_index(object) {
            let mut special = self.special.lock();
            if special[index].is_some() {
                return Err(DmuError::ObjectExists);
            }
            let tree = Tree::empty(&core);
            let dnode = Dnode::new(self.context.clone(), object, core, tree);
            dnode.change(tx, |_| Ok(()))?;
            special[index] = Some(dnode.clone());
            return Ok(dnode);
        }
        let (block, index) = (object.0 / PER_BLOCK, object.0 % PER_BLOCK);
        if object.0 == 0 || object.0 >> OBJECT_NUMBER_SHIFT != 0 || index + u64::from(core.slots) > PER_BLOCK {
            return Err(DmuError::Invalid);
        }
        self.look_at(block)?;
        if self.allocator.take(object, core.slots) { self.make_object(object, core, tx) } else { Err(DmuError::ObjectExists) }
    }

    /// Frees an object and its blocks. Its number can be used again after the txg was synced. The accounting objects stay:
    /// [`DmuError::NotSupported`].
    pub(super) fn free(&self, object: ObjectId, tx: &Tx) -> Result<(), DmuError> {
        if special_index(object).is_some() {
            return Err(DmuError::NotSupported);
        }
        let dnode = self.hold(object)?;
        // The block's bitmap must exist before its dnode is cleared on disk.
        self.look_at(object.0 / PER_BLOCK)?;
        dnode.free(tx)?;
        self.allocator.free(object);
        Ok(())
    }

    /// The object, read when it isn't in memory.
    pub(super) fn hold(&self, object: ObjectId) -> Result<Arc<Dnode>, DmuError> {
        if let Some(index) = special_index(object) {
            return self.special.lock()[index].clone().ok_or(DmuError::NoSuchObject);
        }
        if object.0 == 0 || object.0 >> OBJECT_NUMBER_SHIFT != 0 {
            return Err(DmuError::NoSuchObject);
        }
        loop {
            let none = || {
                DnodeEvent::HoldNone.count();
                DmuError::NoSuchObject
            };
            let seen = match self.cache.get(object) {
                Ok(dnode) if dnode.contents.is_freed() => return Err(none()),
                Ok(dnode) => {
                    DnodeEvent::HoldHit.count();
                    return Ok(dnode);
                }
                Err(seen) => seen,
            };
            let data = self.dnode_block(object.0 / PER_BLOCK)?;
            let bytes = data.as_contiguous().ok_or(DmuError::Corrupt)?;
            let index = object.0 % PER_BLOCK;
            if !dnodes_in(bytes).any(|(at, _)| at == index) {
                return Err(none());
            }
            let phys = DnodePhys::decode(&bytes[index as usize * DNODE_SLOT_BYTES..])?;
            let dnode = Dnode::from_phys(&self.context, object, &phys.ok_or_else(none)?);
            DnodeEvent::HoldMiss.count();
            if let Some(dnode) = self.cache.insert(dnode, seen) {
                return Ok(dnode);
            }
        }
    }

    /// The first object with a number above `after`, dirty ones included.
    pub(super) fn next_object(&self, after: ObjectId) -> Result<Option<ObjectId>, DmuError> {
        let first = after.0.checked_add(1).ok_or(DmuError::Invalid)?;
        let unsynced = self.allocator.next_unsynced(first);
        let mut block = first / PER_BLOCK;
        while unsynced.is_none_or(|object| block <= object / PER_BLOCK) {
            let Some(next) = self.meta.contents.next_data_block(block)? else { break };
            let data = self.dnode_block(next)?;
            let synced = self.allocator.next_in(next, data.as_contiguous().ok_or(DmuError::Corrupt)?, first);
            if let Some(object) = synced {
                return Ok(Some(ObjectId(unsynced.map_or(object, |other| other.min(object)))));
            }
            block = next + 1;
        }
        Ok(unsynced.map(ObjectId))
    }
}
