//! The facts of an object that change in open context: what its record says besides the tree of its blocks.

use ondisk::{BlockPtr, Checksum, Compression, DNODE_CORE_BYTES, DNODE_SLOT_BYTES, DnodePhys, ObjectType};
use std::sync::Arc;

/// Bonus bytes beside `pointers` block pointers and perhaps one for a spill block; `None` when even those don't fit.
pub(crate) fn bonus_room(slots: u8, pointers: u8, has_spill: bool) -> Option<usize> {
    let pointers = usize::from(pointers) + usize::from(has_spill);
    (usize::from(slots) * DNODE_SLOT_BYTES - DNODE_CORE_BYTES).checked_sub(pointers * BlockPtr::BYTES)
}

/// Facts that change in open context.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub kind: ObjectType,
    pub bonus_type: ObjectType,
    pub bonus: Arc<[u8]>,
    /// Bonus to the end of its room, where nobody can read it and it just came: what is behind `bonus` is ciphertext, too.
    pub sealed_bonus: Option<Arc<[u8]>>,
    /// Bytes of a data block.
    pub block_size: usize,
    pub indirect_shift: u8,
    pub block_ptr_count: u8,
    /// Never fewer levels than this (the meta-dnode of a data set starts with all it will need).
    pub levels_min: u8,
    pub slots: u8,
    pub checksum: Checksum,
    pub compression: Compression,
    pub max_block: u64,
    pub has_spill: bool,
    pub freed: bool,
}

impl Core {
    pub(crate) fn from_phys(phys: &DnodePhys) -> Core {
        Core {
            kind: phys.object_type,
            bonus_type: phys.bonus_type,
            bonus: Arc::from(phys.bonus.as_slice()),
            sealed_bonus: None,
            block_size: phys.data_block_bytes(),
            indirect_shift: phys.indirect_shift,
            block_ptr_count: phys.block_ptr_count,
            levels_min: phys.levels,
            slots: phys.extra_slots + 1,
            checksum: phys.checksum,
            compression: phys.compression,
            max_block: phys.max_block.0,
            has_spill: phys.spill.is_some(),
            freed: false,
        }
    }

    /// Bytes of a bonus that nobody can read, behind the pointers in the slots of the dnode, and where they go: those that just came, or those that
    /// `slots` have of it before they are written anew.
    pub(crate) fn sealed_in(&self, slots: &[u8]) -> (usize, Vec<u8>) {
        let start = DNODE_CORE_BYTES + usize::from(self.block_ptr_count) * BlockPtr::BYTES;
        if let Some(bonus) = &self.sealed_bonus {
            return (start, bonus.to_vec());
        }
        let spill = if self.has_spill { BlockPtr::BYTES } else { 0 };
        let had = DnodePhys::decode(slots).ok().flatten();
        let is_same = had.is_some_and(|had| had.block_ptr_count == self.block_ptr_count);
        let kept = slots.get(start..slots.len().saturating_sub(spill)).filter(|_| is_same);
        (start, kept.unwrap_or_default().to_vec())
    }

    /// log2 of the pointers in an indirect block.
    pub(crate) fn pointer_shift(&self) -> u32 {
        u32::from(self.indirect_shift) - 7
    }

    /// Levels that reach `max_block` (OpenZFS: `dnode_new_blkid`).
    pub(crate) fn levels_needed(&self, have: u8) -> u8 {
        let mut levels = have.max(self.levels_min).max(1);
        let reach = |levels: u8| u128::from(self.block_ptr_count) << (self.pointer_shift() * u32::from(levels - 1)).min(100);
        while u128::from(self.max_block) >= reach(levels) {
            levels += 1;
        }
        levels
    }
}
