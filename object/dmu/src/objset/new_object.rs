//! What a new object looks like, and the facts that its dnode begins with.

use crate::DmuError;
use crate::dnode::{Core, bonus_room};
use ondisk::{
    BLOCK_BYTES_MAX, Checksum, Compression, DNODE_BLOCK_PTRS_MAX, DNODE_SLOTS_MAX, INDIRECT_SHIFT_MAX, INDIRECT_SHIFT_MIN, ObjectType,
    SECTOR_BYTES, bonus_bytes_max,
};
use std::sync::Arc;

/// Properties of an object to be created. `..NewObject::new(kind)` gives the defaults.
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
    /// Block pointers in the dnode: 1–3; 0 takes as many as fit.
    pub block_ptr_count: u8,
}

impl NewObject {
    /// Type `kind`, block size 512, no bonus, one slot.
    pub fn new(kind: ObjectType) -> NewObject {
        NewObject { kind, block_size: 0, indirect_shift: 0, bonus_type: ObjectType::NONE, bonus_len: 0, slots: 0, block_ptr_count: 0 }
    }

    /// The facts of the object (OpenZFS: `dnode_allocate`).
    pub(super) fn core(&self) -> Result<Core, DmuError> {
        let slots = self.slots.max(1);
        let block_size = self.block_size.max(1).next_multiple_of(SECTOR_BYTES);
        let shift = if self.indirect_shift == 0 { INDIRECT_SHIFT_MAX } else { self.indirect_shift };
        let room = bonus_bytes_max(usize::from(slots).min(DNODE_SLOTS_MAX));
        let fits = usize::from(slots) <= DNODE_SLOTS_MAX && block_size <= BLOCK_BYTES_MAX && self.bonus_len <= room;
        if !fits || self.kind == ObjectType::NONE || !(INDIRECT_SHIFT_MIN..=INDIRECT_SHIFT_MAX).contains(&shift) {
            return Err(DmuError::Invalid);
        }
        let block_ptr_count = match (self.block_ptr_count, self.bonus_type) {
            (count @ 1.., _) => count,
            (0, ObjectType::SA) => 1,
            (0, _) => (1 + (room - self.bonus_len) / 128).min(DNODE_BLOCK_PTRS_MAX) as u8,
        };
        let is_too_long = bonus_room(slots, block_ptr_count, false).is_none_or(|room| self.bonus_len > room);
        if usize::from(block_ptr_count) > DNODE_BLOCK_PTRS_MAX || is_too_long {
            return Err(DmuError::Invalid);
        }
        Ok(Core {
            kind: self.kind,
            bonus_type: self.bonus_type,
            bonus: Arc::from(vec![0; self.bonus_len]),
            sealed_bonus: None,
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
