//! The dnode (OpenZFS: `dnode_phys_t`, `dnode.h`): what an object set knows of an object.
//!
//! A dnode takes one to 32 slots of 512 bytes: a core of 64 bytes, one to three block pointers, the bonus, and at the end the pointer to
//! the spill block if there is one. [`DnodePhys`] holds the parts; decoding checks that they fit into the slots.

use crate::record::{ByteOrder, Field, record};
use crate::{BlockId, BlockPtr, Checksum, Compression, ObjectType};
use std::fmt;

/// Bytes of a slot (OpenZFS: `DNODE_MIN_SIZE`).
pub const DNODE_SLOT_BYTES: usize = 512;
/// log2 of [`DNODE_SLOT_BYTES`].
pub const DNODE_SLOT_SHIFT: u32 = 9;
/// Bytes of a block of dnodes (OpenZFS: `DNODE_BLOCK_SIZE`).
pub const DNODE_BLOCK_BYTES: usize = 16 << 10;
/// Slots in a block of dnodes.
pub const DNODE_SLOTS_PER_BLOCK: usize = DNODE_BLOCK_BYTES / DNODE_SLOT_BYTES;
/// Most slots that one dnode takes.
pub const DNODE_SLOTS_MAX: usize = 32;
/// Bytes before the block pointers (OpenZFS: `DNODE_CORE_SIZE`).
pub const DNODE_CORE_BYTES: usize = 64;
/// Most block pointers (OpenZFS: `DN_MAX_NBLKPTR`).
pub const DNODE_BLOCK_PTRS_MAX: usize = 3;
/// Most levels (OpenZFS: `DN_MAX_LEVELS`).
pub const DNODE_LEVELS_MAX: u8 = 12;
/// Smallest indirect block is 4 KiB (OpenZFS: `DN_MIN_INDBLKSHIFT`).
pub const INDIRECT_SHIFT_MIN: u8 = 12;
/// Largest indirect block is 128 KiB (OpenZFS: `DN_MAX_INDBLKSHIFT`).
pub const INDIRECT_SHIFT_MAX: u8 = 17;
/// Objects are numbered below 2^48 (OpenZFS: `DN_MAX_OBJECT_SHIFT`).
pub const OBJECT_NUMBER_SHIFT: u32 = 48;
/// Most bonus bytes of a dnode of one slot (OpenZFS: `DN_OLD_MAX_BONUSLEN`).
pub const BONUS_BYTES_MAX_ONE_SLOT: usize = 320;

/// Most bonus bytes of a dnode of `slots` slots with one block pointer and no spill (OpenZFS: `DN_SLOTS_TO_BONUSLEN`).
pub const fn bonus_bytes_max(slots: usize) -> usize {
    slots * DNODE_SLOT_BYTES - DNODE_CORE_BYTES - BlockPtr::BYTES
}

record! {
    /// The part of a dnode before its block pointers.
    DnodeCore = "dnode_phys_t", 64 {
        0 => dn_type: ObjectType,
        1 => dn_indblkshift: u8,
        2 => dn_nlevels: u8,
        3 => dn_nblkptr: u8,
        4 => dn_bonustype: ObjectType,
        5 => dn_checksum: Checksum,
        6 => dn_compress: Compression,
        7 => dn_flags: u8,
        8 => dn_datablkszsec: u16,
        10 => dn_bonuslen: u16,
        12 => dn_extra_slots: u8,
        13 => dn_pad2: [u8; 3],
        16 => dn_maxblkid: u64,
        24 => dn_used: u64,
        32 => dn_pad3: [u64; 4],
    }
}

/// Flags of a dnode (`dn_flags`).
pub mod dnode_flags {
    /// `dn_used` counts bytes, not sectors.
    pub const USED_BYTES: u8 = 1 << 0;
    /// Space is accounted to user and group.
    pub const USERUSED_ACCOUNTED: u8 = 1 << 1;
    /// A spill block pointer exists.
    pub const SPILL_BLKPTR: u8 = 1 << 2;
    /// The object is accounted to user, group and project.
    pub const USEROBJUSED_ACCOUNTED: u8 = 1 << 3;
}

/// Reason why bytes are not a dnode, or a dnode does not fit its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnodeError {
    /// Fewer bytes than the dnode's slots.
    Short,
    /// `dn_nblkptr` is not 1–3.
    BlockPtrs(u8),
    /// `dn_nlevels` is not 1–12.
    Levels(u8),
    /// `dn_indblkshift` is not that of an indirect block.
    IndirectShift(u8),
    /// `dn_datablkszsec` is 0 or more than 16 MiB.
    BlockSize(u16),
    /// The block pointers, bonus and spill take more than the slots.
    Bonus(usize),
    /// `dn_extra_slots` is more than 31.
    Slots(u8),
}
impl fmt::Display for DnodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DnodeError::Short => f.write_str("a dnode runs past the end of its block"),
            DnodeError::BlockPtrs(count) => write!(f, "a dnode with {count} block pointers"),
            DnodeError::Levels(levels) => write!(f, "a dnode of {levels} levels"),
            DnodeError::IndirectShift(shift) => write!(f, "a dnode with indirect blocks of 2^{shift} bytes"),
            DnodeError::BlockSize(sectors) => write!(f, "a dnode with blocks of {sectors} sectors"),
            DnodeError::Bonus(bytes) => write!(f, "a bonus of {bytes} bytes does not fit its dnode"),
            DnodeError::Slots(extra) => write!(f, "a dnode of {extra} extra slots"),
        }
    }
}
impl std::error::Error for DnodeError {}

/// An object's dnode. Without an object there is no dnode: a free slot decodes to `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnodePhys {
    /// Type of the object's contents (`dn_type`).
    pub object_type: ObjectType,
    /// log2 of the bytes of an indirect block (`dn_indblkshift`).
    pub indirect_shift: u8,
    /// Levels of the block tree, data included (`dn_nlevels`).
    pub levels: u8,
    /// Type of the bonus (`dn_bonustype`).
    pub bonus_type: ObjectType,
    /// Checksum of the object's blocks; `INHERIT` nearly always (`dn_checksum`).
    pub checksum: Checksum,
    /// Compression of the object's blocks; `INHERIT` nearly always (`dn_compress`).
    pub compression: Compression,
    /// See [`dnode_flags`]; the spill bit follows [`DnodePhys::spill`] on encode.
    pub flags: u8,
    /// Bytes of a data block in sectors of 512 (`dn_datablkszsec`).
    pub data_block_sectors: u16,
    /// Slots beyond the first (`dn_extra_slots`).
    pub extra_slots: u8,
    /// Largest data block that exists or is a known hole (`dn_maxblkid`).
    pub max_block: BlockId,
    /// Allocated space: bytes when [`dnode_flags::USED_BYTES`] is set, else sectors (`dn_used`).
    pub used: u64,
    /// Block pointers of the highest level in use; the first [`DnodePhys::block_ptr_count`].
    pub block_ptrs: [BlockPtr; DNODE_BLOCK_PTRS_MAX],
    /// Number of block pointers (`dn_nblkptr`).
    pub block_ptr_count: u8,
    /// The bonus (`dn_bonus`, `dn_bonuslen` bytes).
    pub bonus: Vec<u8>,
    /// Pointer to the spill block (`dn_spill`).
    pub spill: Option<BlockPtr>,
}

impl DnodePhys {
    /// Number of slots.
    pub fn slots(&self) -> usize {
        usize::from(self.extra_slots) + 1
    }
    /// Bytes of a data block.
    pub fn data_block_bytes(&self) -> usize {
        usize::from(self.data_block_sectors) << 9
    }
    /// The block pointers in use.
    pub fn ptrs(&self) -> &[BlockPtr] {
        &self.block_ptrs[..usize::from(self.block_ptr_count).min(DNODE_BLOCK_PTRS_MAX)]
    }
    /// Allocated space in bytes.
    pub fn used_bytes(&self) -> u64 {
        if self.flags & dnode_flags::USED_BYTES != 0 { self.used } else { self.used.saturating_mul(512) }
    }
    /// Bytes that the bonus can have beside the pointers and the spill pointer (OpenZFS: `DN_MAX_BONUS_LEN`).
    pub fn bonus_room(&self) -> usize {
        let pointers = usize::from(self.block_ptr_count) + usize::from(self.spill.is_some());
        (self.slots() * DNODE_SLOT_BYTES - DNODE_CORE_BYTES).saturating_sub(pointers * BlockPtr::BYTES)
    }

    /// Decodes the dnode in the first slots of `slots` (little-endian); `Ok(None)` when the slot is free or inside a larger dnode.
    pub fn decode(slots: &[u8]) -> Result<Option<DnodePhys>, DnodeError> {
        let core = DnodeCore::decode(slots).map_err(|_| DnodeError::Short)?;
        if core.dn_type == ObjectType::NONE {
            return Ok(None);
        }
        check(&core)?;
        let end = (usize::from(core.dn_extra_slots) + 1) * DNODE_SLOT_BYTES;
        let tail = slots.get(DNODE_CORE_BYTES..end).ok_or(DnodeError::Short)?;
        let count = usize::from(core.dn_nblkptr);
        let has_spill = core.dn_flags & dnode_flags::SPILL_BLKPTR != 0;
        let bonus_start = count * BlockPtr::BYTES;
        let bonus_end = tail.len() - if has_spill { BlockPtr::BYTES } else { 0 };
        let mut block_ptrs = [BlockPtr::HOLE; DNODE_BLOCK_PTRS_MAX];
        // OpenZFS's lists of what was redacted have the spill pointer on the last one, which is a hole there.
        for (ptr, raw) in block_ptrs.iter_mut().zip(tail[..bonus_end].chunks_exact(BlockPtr::BYTES)).take(count) {
            *ptr = Field::get(raw, ByteOrder::Little);
        }
        let bonus_bytes = usize::from(core.dn_bonuslen);
        let bonus = match bonus_bytes {
            0 => Some([].as_slice()),
            _ => tail.get(bonus_start..bonus_end).and_then(|room| room.get(..bonus_bytes)),
        };
        Ok(Some(DnodePhys {
            object_type: core.dn_type,
            indirect_shift: core.dn_indblkshift,
            levels: core.dn_nlevels,
            bonus_type: core.dn_bonustype,
            checksum: core.dn_checksum,
            compression: core.dn_compress,
            flags: core.dn_flags,
            data_block_sectors: core.dn_datablkszsec,
            extra_slots: core.dn_extra_slots,
            max_block: BlockId(core.dn_maxblkid),
            used: core.dn_used,
            block_ptrs,
            block_ptr_count: core.dn_nblkptr,
            bonus: bonus.ok_or(DnodeError::Bonus(bonus_bytes))?.to_vec(),
            spill: has_spill.then(|| Field::get(&tail[bonus_end..], ByteOrder::Little)),
        }))
    }

    /// Encodes into the first [`DnodePhys::slots`] slots of `out`, zeroing what the dnode does not use.
    pub fn encode_into(&self, out: &mut [u8]) -> Result<(), DnodeError> {
        let out = out.get_mut(..self.slots() * DNODE_SLOT_BYTES).ok_or(DnodeError::Short)?;
        let core = self.core();
        check(&core)?;
        if self.bonus.len() > self.bonus_room() {
            return Err(DnodeError::Bonus(self.bonus.len()));
        }
        out.fill(0);
        core.put(out, ByteOrder::Little);
        let tail = &mut out[DNODE_CORE_BYTES..];
        for (ptr, raw) in self.ptrs().iter().zip(tail.chunks_exact_mut(BlockPtr::BYTES)) {
            ptr.put(raw, ByteOrder::Little);
        }
        let bonus_start = self.ptrs().len() * BlockPtr::BYTES;
        tail[bonus_start..bonus_start + self.bonus.len()].copy_from_slice(&self.bonus);
        if let Some(spill) = &self.spill {
            let start = tail.len() - BlockPtr::BYTES;
            spill.put(&mut tail[start..], ByteOrder::Little);
        }
        Ok(())
    }

    fn core(&self) -> DnodeCore {
        let spill_bit = if self.spill.is_some() { dnode_flags::SPILL_BLKPTR } else { 0 };
        DnodeCore {
            dn_type: self.object_type,
            dn_indblkshift: self.indirect_shift,
            dn_nlevels: self.levels,
            dn_nblkptr: self.block_ptr_count,
            dn_bonustype: self.bonus_type,
            dn_checksum: self.checksum,
            dn_compress: self.compression,
            dn_flags: self.flags & !dnode_flags::SPILL_BLKPTR | spill_bit,
            dn_datablkszsec: self.data_block_sectors,
            dn_bonuslen: self.bonus.len() as u16,
            dn_extra_slots: self.extra_slots,
            dn_maxblkid: self.max_block.0,
            dn_used: self.used,
            ..DnodeCore::ZERO
        }
    }
}

fn check(core: &DnodeCore) -> Result<(), DnodeError> {
    if !(1..=DNODE_BLOCK_PTRS_MAX as u8).contains(&core.dn_nblkptr) {
        return Err(DnodeError::BlockPtrs(core.dn_nblkptr));
    }
    if !(1..=DNODE_LEVELS_MAX).contains(&core.dn_nlevels) {
        return Err(DnodeError::Levels(core.dn_nlevels));
    }
    // Pools of before 2007 may have smaller indirect blocks than what is made today.
    if !(10..=INDIRECT_SHIFT_MAX).contains(&core.dn_indblkshift) {
        return Err(DnodeError::IndirectShift(core.dn_indblkshift));
    }
    if core.dn_datablkszsec == 0 || usize::from(core.dn_datablkszsec) << 9 > crate::BLOCK_BYTES_MAX {
        return Err(DnodeError::BlockSize(core.dn_datablkszsec));
    }
    if usize::from(core.dn_extra_slots) >= DNODE_SLOTS_MAX {
        return Err(DnodeError::Slots(core.dn_extra_slots));
    }
    Ok(())
}
