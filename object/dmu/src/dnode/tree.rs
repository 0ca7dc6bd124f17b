//! The block tree of an object as of the last sync: its roots, and what else only a sync changes.

use super::core::Core;
use ondisk::{BlockId, BlockPtr, DNODE_BLOCK_PTRS_MAX, DnodePhys, ObjectType, SECTOR_BYTES, dnode_flags};
use std::sync::Arc;

/// The block tree as of the last sync; immutable, replaced as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// Counts the replacements: what was cached under another generation is stale.
    pub generation: u64,
    pub levels: u8,
    pub indirect_shift: u8,
    pub block_ptrs: [BlockPtr; DNODE_BLOCK_PTRS_MAX],
    pub block_ptr_count: u8,
    pub spill: Option<BlockPtr>,
    pub used_bytes: u64,
    pub flags: u8,
    /// The dnode is on disk.
    pub exists: bool,
    /// Bonus as of the sync: tells whom the space is charged to.
    pub bonus_type: ObjectType,
    pub bonus: Arc<[u8]>,
}

impl Tree {
    /// The tree of a dnode that was never synced.
    pub(crate) fn empty(core: &Core) -> Tree {
        Tree {
            generation: 0,
            levels: 1,
            indirect_shift: core.indirect_shift,
            block_ptrs: [BlockPtr::HOLE; DNODE_BLOCK_PTRS_MAX],
            block_ptr_count: core.block_ptr_count,
            spill: None,
            used_bytes: 0,
            flags: dnode_flags::USED_BYTES,
            exists: false,
            bonus_type: ObjectType::NONE,
            bonus: Arc::from([].as_slice()),
        }
    }

    pub(crate) fn from_phys(phys: &DnodePhys, bonus: &Arc<[u8]>) -> Tree {
        Tree {
            generation: 0,
            levels: phys.levels,
            indirect_shift: phys.indirect_shift,
            block_ptrs: phys.block_ptrs,
            block_ptr_count: phys.block_ptr_count,
            spill: phys.spill,
            used_bytes: phys.used_bytes(),
            flags: phys.flags | dnode_flags::USED_BYTES,
            exists: true,
            bonus_type: phys.bonus_type,
            bonus: bonus.clone(),
        }
    }

    /// log2 of the pointers in an indirect block.
    pub(crate) fn pointer_shift(&self) -> u32 {
        u32::from(self.indirect_shift) - 7
    }

    /// The pointer at the dnode itself, for a block of the highest level.
    pub(crate) fn root(&self, id: u64) -> BlockPtr {
        match usize::try_from(id) {
            Ok(index) if index < usize::from(self.block_ptr_count) => self.block_ptrs[index],
            _ => BlockPtr::HOLE,
        }
    }

    /// Non-hole blocks below the dnode (dnodes, for the meta-dnode).
    pub(crate) fn fill(&self) -> u64 {
        self.block_ptrs[..usize::from(self.block_ptr_count)].iter().filter(|bp| !bp.is_hole()).map(BlockPtr::fill).sum()
    }
}

/// The record of a dnode; in pools from before version 3 its space is counted in sectors (OpenZFS: `dnode_diduse_space`).
pub(crate) fn dnode_phys(core: &Core, tree: &Tree, counts_sectors: bool) -> DnodePhys {
    let (used, flags) = match counts_sectors {
        true => (tree.used_bytes / SECTOR_BYTES as u64, tree.flags & !dnode_flags::USED_BYTES),
        false => (tree.used_bytes, tree.flags),
    };
    DnodePhys {
        object_type: core.kind,
        indirect_shift: core.indirect_shift,
        levels: tree.levels,
        bonus_type: core.bonus_type,
        checksum: core.checksum,
        compression: core.compression,
        flags,
        data_block_sectors: (core.block_size / 512) as u16,
        extra_slots: core.slots - 1,
        max_block: BlockId(core.max_block),
        used,
        block_ptrs: tree.block_ptrs,
        block_ptr_count: core.block_ptr_count,
        bonus: core.bonus.to_vec(),
        spill: tree.spill,
    }
}
