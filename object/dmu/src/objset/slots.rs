//! Which dnode slots are taken, and where to look for free ones.
//!
//! The bitmap of a dnode block is made from the block when it is first needed and then kept, since every later change goes
//! through it. A freed number stays taken until its txg was synced, so the old and the new object never share a txg.

use exec::Mutex;
use ondisk::{DNODE_SLOT_BYTES, DNODE_SLOTS_PER_BLOCK, OBJECT_NUMBER_SHIFT, ObjectId, ObjectType, Txg};
use std::collections::{BTreeMap, HashMap};

/// Slots in a dnode block.
pub(super) const PER_BLOCK: u64 = DNODE_SLOTS_PER_BLOCK as u64;
/// Dnode blocks below one indirect block of the meta-dnode: after that many, look for room from the start again.
const BLOCKS_PER_ROUND: u64 = 1024;

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
    /// Freed objects, with the txgs that freed them, whose slots stay taken until these are on disk; None where being synced is enough.
    resting: Option<Vec<(Txg, ObjectId, u8)>>,
}

impl Slots {
    /// Lets slots be used again.
    fn release(&mut self, object: ObjectId, slots: u8) {
        let (block, index) = (object.0 / PER_BLOCK, object.0 % PER_BLOCK);
        if let Some(taken) = self.blocks.get_mut(&block) {
            debug_assert_eq!(*taken & mask(index, slots), mask(index, slots), "what is let go was taken");
            *taken &= !mask(index, slots);
        }
        self.freed = Some(self.freed.map_or(block, |lowest| lowest.min(block)));
        self.unsynced.remove(&object.0);
    }
}

/// The allocator of object numbers.
#[derive(Default)]
pub(super) struct Allocator(Mutex<Slots>);

/// The bits of `slots` slots from `index`.
fn mask(index: u64, slots: u8) -> u32 {
    ((((1u64 << slots) - 1) << index) & u64::from(u32::MAX)) as u32
}

/// The first run of free slots in a bitmap of taken ones.
fn find_run(taken: u32, slots: u8) -> Option<u64> {
    (0..=PER_BLOCK - u64::from(slots)).find(|&index| taken & mask(index, slots) == 0)
}

/// Visits the dnodes of a block: (index, slots). Slots inside a large dnode are skipped.
pub(super) fn dnodes_in(block: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
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
    /// Has numbers that are freed rest until their txg is on disk.
    pub(super) fn rest(&self) {
        self.0.lock().resting.get_or_insert_default();
    }

    /// A freed object was synced in `txg`: its number can be used again, at once or when that is on disk.
    pub(super) fn release_in(&self, object: ObjectId, slots: u8, txg: Txg) {
        let mut state = self.0.lock();
        match &mut state.resting {
            Some(resting) => resting.push((txg, object, slots)),
            None => return state.release(object, slots),
        }
        state.unsynced.remove(&object.0);
    }

    /// A txg is being synced: what was freed before it is on disk.
    pub(super) fn end_rest(&self, txg: Txg) {
        let mut state = self.0.lock();
        let Some(resting) = &mut state.resting else { return };
        let (over, resting): (Vec<_>, Vec<_>) = resting.drain(..).partition(|(freed, _, _)| *freed < txg);
        state.resting = Some(resting);
        over.into_iter().for_each(|(_, object, slots)| state.release(object, slots));
    }

    /// A number that was taken and not used can be used again.
    pub(super) fn release(&self, object: ObjectId, slots: u8) {
        self.0.lock().release(object, slots);
    }

    /// The taken slots of a dnode block, when it was looked at before.
    pub(super) fn taken(&self, block: u64) -> Option<u32> {
        self.0.lock().blocks.get(&block).copied()
    }

    /// An object's dnode was synced.
    pub(super) fn settle(&self, object: ObjectId) {
        self.0.lock().unsynced.remove(&object.0);
    }

    /// The dnode block has these bytes: notes which of its slots are taken.
    pub(super) fn learn(&self, block: u64, bytes: &[u8]) {
        let mut taken = dnodes_in(bytes).fold(0, |taken, (index, slots)| taken | mask(index, slots as u8));
        // Object 0 is the meta-dnode itself.
        taken |= u32::from(block == 0);
        self.0.lock().blocks.entry(block).or_insert(taken);
    }

    /// The dnode block being filled.
    pub(super) fn cursor(&self) -> u64 {
        self.0.lock().cursor
    }

    /// Takes the first run of free slots in a block that was looked at before.
    pub(super) fn take_in(&self, block: u64, slots: u8) -> Option<ObjectId> {
        let mut state = self.0.lock();
        let index = find_run(*state.blocks.get(&block)?, slots)?;
        let object = block * PER_BLOCK + index;
        debug_assert!(index + u64::from(slots) <= PER_BLOCK, "a dnode lies in one block");
        debug_assert!(object != 0 && !state.unsynced.contains_key(&object), "a number is used again only after its txg was synced");
        *state.blocks.entry(block).or_default() |= mask(index, slots);
        state.unsynced.insert(object, true);
        Some(ObjectId(object))
    }

    /// Takes the slots of this object; false when one is taken.
    pub(super) fn take(&self, object: ObjectId, slots: u8) -> bool {
        let mut state = self.0.lock();
        let wanted = mask(object.0 % PER_BLOCK, slots);
        let taken = state.blocks.entry(object.0 / PER_BLOCK).or_default();
        if *taken & wanted != 0 {
            return false;
        }
        *taken |= wanted;
        state.unsynced.insert(object.0, true);
        true
    }

    /// Moves the cursor from a block without room to `next`, or to where slots were freed. False at the end of all numbers.
    pub(super) fn advance(&self, from: u64, next: u64) -> bool {
        let mut slots = self.0.lock();
        if slots.cursor != from {
            return true;
        }
        slots.round += 1;
        let again = slots.freed.filter(|_| slots.round >= BLOCKS_PER_ROUND);
        if again.is_some() {
            slots.round = 0;
            slots.freed = None;
        }
        slots.cursor = again.unwrap_or(next);
        slots.cursor < 1 << (OBJECT_NUMBER_SHIFT - 5)
    }

    /// An object was freed; its slots stay taken until that is synced.
    pub(super) fn free(&self, object: ObjectId) {
        self.0.lock().unsynced.insert(object.0, false);
    }

    /// The first object from `first` on that is allocated and not synced yet.
    pub(super) fn next_unsynced(&self, first: u64) -> Option<u64> {
        self.0.lock().unsynced.range(first..).find(|(_, allocated)| **allocated).map(|(&object, _)| object)
    }

    /// The first object from `first` on in a dnode block of these bytes that is not freed since.
    pub(super) fn next_in(&self, block: u64, bytes: &[u8], first: u64) -> Option<u64> {
        let slots = self.0.lock();
        let in_block = dnodes_in(bytes).map(|(index, _)| block * PER_BLOCK + index);
        in_block.filter(|&object| object >= first && object != 0).find(|object| slots.unsynced.get(object) != Some(&false))
    }
}
