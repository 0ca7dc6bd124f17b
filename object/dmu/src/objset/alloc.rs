//! Object numbers and dnode slots: allocate, claim, free, hold, iterate.
//!
//! The bitmap of a dnode block is made from the block when it is first needed and then kept, since every later change goes
//! through it. A freed number stays taken until its txg was synced, so the old and the new object never share a txg.
//!
//! OpenZFS: `dmu_object.c`, `dnode_hold_impl`.

use super::{Objset, dnode_from_phys, special_index};
use crate::dnode::bonus_room;
use crate::state::{Core, Tree};
use crate::{DmuError, Dnode, DnodeEvent, Tx};
use exec::Mutex;
use ondisk::{
    BLOCK_BYTES_MAX, BlockId, Checksum, Compression, DNODE_BLOCK_PTRS_MAX, DNODE_SLOT_BYTES, DNODE_SLOTS_MAX, DNODE_SLOTS_PER_BLOCK,
    DnodePhys, INDIRECT_SHIFT_MAX, INDIRECT_SHIFT_MIN, OBJECT_NUMBER_SHIFT, ObjectId, ObjectType, SECTOR_BYTES, bonus_bytes_max,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const PER_BLOCK: u64 = DNODE_SLOTS_PER_BLOCK as u64;
/// Dnode blocks below one indirect block of the meta-dnode: after that many, look for room from the start again.
const BLOCKS_PER_ROUND: u64 = 1024;

/// What a new object looks like. `..NewObject::new(kind)` gives the defaults.
#[derive(Clone, Copy, Debug)]
pub struct NewObject {
    /// Type of the data.
    pub kind: ObjectType,
    /// Block size in bytes: a multiple of 512 up to 16 MiB; 0 takes 512.
    pub block_size: usize,
    /// log2 of the indirect block size: 12–17; 0 takes 17.
    pub indirect_shift: u8,
    /// Type of the bonus, `NONE` for no bonus.
    pub bonus_type: ObjectType,
    /// Bytes of the bonus; it starts as zeros.
    pub bonus_len: usize,
    /// Dnode slots of 512 B: 1–32; 0 takes 1.
    pub slots: u8,
}

impl NewObject {
    /// Type `kind`, block size 512, no bonus, one slot.
    pub fn new(kind: ObjectType) -> NewObject {
        NewObject { kind, block_size: 0, indirect_shift: 0, bonus_type: ObjectType::NONE, bonus_len: 0, slots: 0 }
    }

    /// The facts of the object (OpenZFS: `dnode_allocate`).
    fn core(&self) -> Result<Core, DmuError> {
        let slots = self.slots.max(1);
        let block_size = self.block_size.max(1).next_multiple_of(SECTOR_BYTES);
        let shift = if self.indirect_shift == 0 { INDIRECT_SHIFT_MAX } else { self.indirect_shift };
        let room = bonus_bytes_max(usize::from(slots).min(DNODE_SLOTS_MAX));
        let fits = usize::from(slots) <= DNODE_SLOTS_MAX && block_size <= BLOCK_BYTES_MAX && self.bonus_len <= room;
        if !fits || self.kind == ObjectType::NONE || !(INDIRECT_SHIFT_MIN..=INDIRECT_SHIFT_MAX).contains(&shift) {
            return Err(DmuError::Invalid);
        }
        let block_ptr_count = match self.bonus_type {
            ObjectType::SA => 1,
            _ => (1 + (room - self.bonus_len) / 128).min(DNODE_BLOCK_PTRS_MAX) as u8,
        };
        debug_assert!(bonus_room(slots, block_ptr_count, false).is_some_and(|room| self.bonus_len <= room));
        Ok(Core {
            kind: self.kind,
            bonus_type: self.bonus_type,
            bonus: Arc::from(vec![0; self.bonus_len]),
            block_size,
            indirect_shift: shift,
            block_ptr_count,
            levels_min: 1,
            slots,
            checksum: Checksum::INHERIT,
            compression: Compression::INHERIT,
            max_block: 0,
            has_spill: false,
            freed: false,
        })
    }
}

#[derive(Default)]
struct Slots {
    /// Taken slots of the dnode blocks looked at so far.
    blocks: HashMap<u64, u32>,
    /// The dnode block being filled.
    cursor: u64,
    /// Blocks since the cursor was last at the start of a round.
    round: u64,
    /// Lowest block with a slot freed since the cursor passed.
    freed: Option<u64>,
    /// Objects allocated (true) or freed (false) whose dnodes are not synced yet.
    unsynced: BTreeMap<u64, bool>,
    /// Some object made since the opening takes more than one slot.
    has_large: bool,
    has_long_names: bool,
}

/// The allocator of object numbers.
#[derive(Default)]
pub(crate) struct Allocator(Mutex<Slots>);

/// The bits of `slots` slots from `index`.
fn mask(index: u64, slots: u8) -> u32 {
    ((((1u64 << slots) - 1) << index) & u64::from(u32::MAX)) as u32
}

/// The first run of free slots in a bitmap of taken ones.
fn find_run(taken: u32, slots: u8) -> Option<u64> {
    (0..=PER_BLOCK - u64::from(slots)).find(|&index| taken & mask(index, slots) == 0)
}

/// Visits the dnodes of a block: (index, slots). Slots inside a large dnode are skipped.
fn dnodes_in(block: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let mut index = 0usize;
    std::iter::from_fn(move || {
        loop {
            let slot = block.get(index * DNODE_SLOT_BYTES..(index + 1) * DNODE_SLOT_BYTES)?;
            let at = index;
            if slot[0] == ObjectType::NONE.0 {
                index += 1;
                continue;
            }
            let slots = (usize::from(slot[12]) + 1).min(block.len() / DNODE_SLOT_BYTES - at);
            index += slots;
            return Some((at as u64, slots as u64));
        }
    })
}

/// Allocated dnodes in a block: the fill of its pointer.
pub(crate) fn count_dnodes(block: &[u8]) -> u64 {
    dnodes_in(block).count() as u64
}

impl Allocator {
    /// A freed object was synced: its number can be used again.
    pub(crate) fn release(&self, object: ObjectId, slots: u8) {
        let mut state = self.0.lock();
        let (block, index) = (object.0 / PER_BLOCK, object.0 % PER_BLOCK);
        if let Some(taken) = state.blocks.get_mut(&block) {
            *taken &= !mask(index, slots);
        }
        state.freed = Some(state.freed.map_or(block, |lowest| lowest.min(block)));
        state.unsynced.remove(&object.0);
    }

    /// An object's dnode was synced.
    pub(crate) fn settle(&self, object: ObjectId) {
        self.0.lock().unsynced.remove(&object.0);
    }
}

impl Objset {
    /// The taken slots of a dnode block.
    fn taken(&self, block: u64) -> Result<u32, DmuError> {
        if let Some(&taken) = self.allocator.0.lock().blocks.get(&block) {
            return Ok(taken);
        }
        let data = self.meta.read_block(BlockId(block))?.to_contiguous();
        let bytes = data.as_contiguous().ok_or(DmuError::Corrupt)?;
        let mut taken = dnodes_in(bytes).fold(0, |taken, (index, slots)| taken | mask(index, slots as u8));
        // Object 0 is the meta-dnode itself.
        taken |= u32::from(block == 0);
        Ok(*self.allocator.0.lock().blocks.entry(block).or_insert(taken))
    }

    /// Makes an object at a free number.
    pub fn allocate_object(&self, new: NewObject, tx: &Tx) -> Result<Arc<Dnode>, DmuError> {
        let core = new.core()?;
        loop {
            let block = self.allocator.0.lock().cursor;
            self.taken(block)?;
            let found = {
                let mut slots = self.allocator.0.lock();
                let run = slots.blocks.get(&block).and_then(|&taken| find_run(taken, core.slots));
                if let Some(index) = run {
                    let object = block * PER_BLOCK + index;
                    *slots.blocks.entry(block).or_default() |= mask(index, core.slots);
                    slots.unsynced.insert(object, true);
                }
                run.map(|index| ObjectId(block * PER_BLOCK + index))
            };
            match found {
                Some(object) => return self.make_object(object, core, tx),
                None => self.advance_cursor(block)?,
            }
        }
    }

    /// Moves the cursor from a block without room to one that may have some.
    fn advance_cursor(&self, from: u64) -> Result<(), DmuError> {
        DnodeEvent::NextBlock.count();
        let next = self.block_with_room(from + 1)?;
        let mut slots = self.allocator.0.lock();
        if slots.cursor != from {
            return Ok(());
        }
        slots.round += 1;
        let again = slots.freed.filter(|_| slots.round >= BLOCKS_PER_ROUND);
        if again.is_some() {
            slots.round = 0;
            slots.freed = None;
        }
        slots.cursor = again.unwrap_or(next);
        if slots.cursor >= 1 << (OBJECT_NUMBER_SHIFT - 5) { Err(DmuError::Block(crate::BlockError::NoSpace)) } else { Ok(()) }
    }

    /// The first dnode block from `block` on that is at most a quarter full by its fill count (OpenZFS looks for the same:
    /// a block of large dnodes is full with few).
    fn block_with_room(&self, mut block: u64) -> Result<u64, DmuError> {
        let mut tries = 0;
        loop {
            let tree = self.meta.state.read().tree.clone();
            let bp = match self.meta.pointer(&tree, 0, block) {
                Ok(bp) => bp,
                Err(error) => {
                    self.meta.retry_if_stale(&tree, &mut tries, error)?;
                    continue;
                }
            };
            if bp.is_hole() || bp.fill() <= PER_BLOCK / 4 {
                return Ok(block);
            }
            block += 1;
        }
    }

    fn make_object(&self, object: ObjectId, core: Core, tx: &Tx) -> Result<Arc<Dnode>, DmuError> {
        let tree = Tree::empty(&core);
        let slots = core.slots;
        let dnode = Dnode::new(self.context.clone(), object, core, tree);
        self.dnodes.add(dnode.clone());
        if slots > 1 {
            self.allocator.0.lock().has_large = true;
        }
        if let Err(error) = dnode.change(tx, |_| Ok(())) {
            self.dnodes.remove(object);
            self.allocator.release(object, slots);
            return Err(error);
        }
        Ok(dnode)
    }

    /// True once an object of more than one slot was made since the opening: its dataset needs the feature `large_dnode`, by which
    /// OpenZFS knows that it cannot step from slot to slot.
    pub fn has_large_dnodes(&self) -> bool {
        self.allocator.0.lock().has_large
    }

    /// Notes that a directory gets a name of more than 255 bytes: before the transaction that adds it ends.
    pub fn note_long_name(&self) {
        self.allocator.0.lock().has_long_names = true;
    }

    /// True once such a name was added since the opening: its dataset needs the feature `longname`, without which names end there.
    pub fn has_long_names(&self) -> bool {
        self.allocator.0.lock().has_long_names
    }

    /// Makes an object at this number (also the accounting objects -1, -2, -3).
    pub fn claim_object(&self, object: ObjectId, new: NewObject, tx: &Tx) -> Result<Arc<Dnode>, DmuError> {
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
        self.taken(block)?;
        {
            let mut slots = self.allocator.0.lock();
            let wanted = mask(index, core.slots);
            let taken = slots.blocks.entry(block).or_default();
            if *taken & wanted != 0 {
                return Err(DmuError::ObjectExists);
            }
            *taken |= wanted;
            slots.unsynced.insert(object.0, true);
        }
        self.make_object(object, core, tx)
    }

    /// Frees an object and its blocks. Its number can be used again after the txg was synced. The accounting objects stay:
    /// [`DmuError::NotSupported`].
    pub fn free_object(&self, object: ObjectId, tx: &Tx) -> Result<(), DmuError> {
        if special_index(object).is_some() {
            return Err(DmuError::NotSupported);
        }
        let dnode = self.hold(object)?;
        // The block's bitmap must exist before its dnode is cleared on disk.
        self.taken(object.0 / PER_BLOCK)?;
        dnode.free(tx)?;
        self.allocator.0.lock().unsynced.insert(object.0, false);
        Ok(())
    }

    /// The object, read when it isn't in memory.
    pub fn hold(&self, object: ObjectId) -> Result<Arc<Dnode>, DmuError> {
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
            let seen = match self.dnodes.get(object) {
                Ok(dnode) if dnode.state.read().core.freed => return Err(none()),
                Ok(dnode) => {
                    DnodeEvent::HoldHit.count();
                    return Ok(dnode);
                }
                Err(seen) => seen,
            };
            let data = self.meta.read_block(BlockId(object.0 / PER_BLOCK))?.to_contiguous();
            let bytes = data.as_contiguous().ok_or(DmuError::Corrupt)?;
            let index = object.0 % PER_BLOCK;
            if !dnodes_in(bytes).any(|(at, _)| at == index) {
                return Err(none());
            }
            let phys = DnodePhys::decode(&bytes[index as usize * DNODE_SLOT_BYTES..]).map_err(|_| DmuError::Corrupt)?;
            let dnode = dnode_from_phys(&self.context, object, &phys.ok_or_else(none)?);
            DnodeEvent::HoldMiss.count();
            if let Some(dnode) = self.dnodes.insert(dnode, seen) {
                return Ok(dnode);
            }
        }
    }

    /// The first object with a number above `after`, dirty ones included. Start with `ObjectId(0)`.
    pub fn next_object(&self, after: ObjectId) -> Result<Option<ObjectId>, DmuError> {
        let first = after.0.checked_add(1).ok_or(DmuError::Invalid)?;
        let unsynced = {
            let slots = self.allocator.0.lock();
            slots.unsynced.range(first..).find(|(_, allocated)| **allocated).map(|(&object, _)| object)
        };
        let mut block = first / PER_BLOCK;
        while unsynced.is_none_or(|object| block <= object / PER_BLOCK) {
            let Some(next) = self.meta.next_data_block(block)? else { break };
            let data = self.meta.read_block(BlockId(next))?.to_contiguous();
            let bytes = data.as_contiguous().ok_or(DmuError::Corrupt)?;
            let slots = self.allocator.0.lock();
            let in_block = dnodes_in(bytes).map(|(index, _)| next * PER_BLOCK + index);
            let synced =
                in_block.filter(|&object| object >= first && object != 0).find(|object| slots.unsynced.get(object) != Some(&false));
            drop(slots);
            if let Some(object) = synced {
                return Ok(Some(ObjectId(unsynced.map_or(object, |other| other.min(object)))));
            }
            block = next + 1;
        }
        Ok(unsynced.map(ObjectId))
    }
}
