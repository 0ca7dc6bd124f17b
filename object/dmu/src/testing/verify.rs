//! Checks a whole object set in a [`MemBlockIo`] from its root pointer, with code of its own: what `zdb -bcc` and `zdb -d`
//! would complain about.

use super::MemBlockIo;
use ondisk::{
    BlockPtr, DNODE_SLOT_BYTES, DnodePhys, GROUPUSED_OBJECT, META_DNODE_OBJECT, ObjectId, ObjectType, ObjsetPhys, PROJECTUSED_OBJECT,
    USERUSED_OBJECT,
};
use std::collections::BTreeSet;

/// Kind of a fault in an object set's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeFaultKind {
    /// A referenced block isn't in the store (never written, or freed).
    Missing,
    /// The stored block isn't what the pointer describes.
    Mismatch,
    /// Two pointers lead to one block.
    SharedBlock,
    /// A record does not decode.
    Undecodable,
    /// A pointer's level, type, size or birth doesn't fit its place.
    Shape,
    /// A fill count is wrong.
    Fill,
    /// An indirect block has only holes.
    EmptyIndirect,
    /// `dn_used` isn't the sum of the blocks.
    Used,
    /// A block lies beyond `dn_maxblkid`.
    BeyondMax,
    /// A block is in the store that nothing refers to.
    Leak,
    /// The store saw a wrong birth, free or read.
    Violation(&'static str),
}

/// Place and kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeFault {
    /// Kind of the fault.
    pub kind: TreeFaultKind,
    /// Object that has the fault.
    pub object: ObjectId,
    /// Level of the block, 0 for data.
    pub level: u8,
    /// Number of the block within its level.
    pub block: u64,
}

struct Walk<'a> {
    io: &'a MemBlockIo,
    seen: BTreeSet<u64>,
    root: BlockPtr,
}

fn fault(kind: TreeFaultKind, object: ObjectId, level: u8, block: u64) -> TreeFault {
    TreeFault { kind, object, level, block }
}

/// Checks the object set at `root` and that the store has no other live block.
pub fn verify_tree(io: &MemBlockIo, root: BlockPtr) -> Result<(), TreeFault> {
    let meta = META_DNODE_OBJECT;
    if let Some(&violation) = io.violations().first() {
        return Err(fault(TreeFaultKind::Violation(violation), meta, 0, 0));
    }
    let mut walk = Walk { io, seen: BTreeSet::new(), root };
    if !root.is_hole() {
        let block = walk.load(&root, (meta, 0, 0))?;
        let phys = ObjsetPhys::decode(&block).map_err(|_| fault(TreeFaultKind::Undecodable, meta, 0, 0))?;
        let special = [
            (USERUSED_OBJECT, phys.userused_dnode.as_ref()),
            (GROUPUSED_OBJECT, phys.groupused_dnode.as_ref()),
            (PROJECTUSED_OBJECT, phys.projectused_dnode.as_ref()),
        ];
        for (object, dnode) in special {
            dnode.map_or(Ok(0), |dnode| walk.dnode(object, dnode))?;
        }
        if walk.dnode(meta, &phys.meta_dnode)? != root.fill() {
            return Err(fault(TreeFaultKind::Fill, meta, u8::MAX, 0));
        }
    }
    match io.live_blocks().difference(&walk.seen).next() {
        Some(&offset) => Err(fault(TreeFaultKind::Leak, meta, 0, offset)),
        None => Ok(()),
    }
}

impl Walk<'_> {
    fn load(&mut self, bp: &BlockPtr, at: (ObjectId, u8, u64)) -> Result<Vec<u8>, TreeFault> {
        let wrong = |kind| fault(kind, at.0, at.1, at.2);
        let offset = bp.dva(0).offset;
        let stored = self.io.block(offset).filter(|block| block.killed.is_none()).ok_or(wrong(TreeFaultKind::Missing))?;
        if stored.bp.0[..11] != bp.0[..11] || stored.bp.checksum() != bp.checksum() || stored.data.len() != bp.lsize() || !stored.born {
            return Err(wrong(TreeFaultKind::Mismatch));
        }
        if !self.seen.insert(offset) {
            return Err(wrong(TreeFaultKind::SharedBlock));
        }
        Ok(stored.data.to_vec())
    }

    /// Checks a dnode; gives the fill of its pointers.
    fn dnode(&mut self, object: ObjectId, phys: &DnodePhys) -> Result<u64, TreeFault> {
        let top = phys.levels - 1;
        let (mut fill, mut used) = (0, 0);
        for (id, bp) in phys.ptrs().iter().enumerate() {
            let below = self.block(object, phys, (top, id as u64), bp)?;
            fill += below.0;
            used += below.1;
        }
        if let Some(spill) = &phys.spill {
            if spill.is_hole() || spill.object_type() != phys.bonus_type || spill.fill() != 1 {
                return Err(fault(TreeFaultKind::Shape, object, 0, u64::MAX - 1));
            }
            self.load(spill, (object, 0, u64::MAX - 1))?;
            used += spill.asize();
        }
        if used != phys.used_bytes() {
            return Err(fault(TreeFaultKind::Used, object, 0, used));
        }
        Ok(fill)
    }

    /// Checks a block and all below: (fill, allocated bytes).
    fn block(&mut self, object: ObjectId, phys: &DnodePhys, at: (u8, u64), bp: &BlockPtr) -> Result<(u64, u64), TreeFault> {
        let (level, id) = at;
        let wrong = |kind| fault(kind, object, level, id);
        if bp.is_hole() {
            let is_virgin = *bp == BlockPtr::HOLE;
            return if is_virgin || bp.level() == level { Ok((0, 0)) } else { Err(wrong(TreeFaultKind::Shape)) };
        }
        let size = if level > 0 { 1 << phys.indirect_shift } else { phys.data_block_bytes() };
        if bp.level() != level || bp.object_type() != phys.object_type || bp.lsize() != size || bp.birth() > self.root.birth() {
            return Err(wrong(TreeFaultKind::Shape));
        }
        let data = self.load(bp, (object, level, id))?;
        let (mut fill, mut used) = (0, bp.asize());
        if level > 0 {
            let fanout = (size / BlockPtr::BYTES) as u64;
            for (index, raw) in data.chunks_exact(BlockPtr::BYTES).enumerate() {
                let raw = raw.first_chunk().ok_or(wrong(TreeFaultKind::Undecodable))?;
                let child = BlockPtr::decode(raw, true);
                if !child.is_hole() && child.birth() > bp.birth() {
                    return Err(wrong(TreeFaultKind::Shape));
                }
                let below = self.block(object, phys, (level - 1, id * fanout + index as u64), &child)?;
                fill += below.0;
                used += below.1;
            }
            if fill == 0 {
                return Err(wrong(TreeFaultKind::EmptyIndirect));
            }
        } else if phys.object_type == ObjectType::DNODE {
            fill = self.dnode_block(id, &data)?;
        } else {
            fill = 1;
        }
        if level == 0 && id > phys.max_block.0 {
            return Err(wrong(TreeFaultKind::BeyondMax));
        }
        if bp.fill() != fill {
            return Err(wrong(TreeFaultKind::Fill));
        }
        Ok((fill, used))
    }

    /// Checks the dnodes of a block; gives how many there are.
    fn dnode_block(&mut self, id: u64, data: &[u8]) -> Result<u64, TreeFault> {
        let (mut index, mut count) = (0, 0);
        while index * DNODE_SLOT_BYTES < data.len() {
            let object = ObjectId(id * 32 + index as u64);
            let decoded = DnodePhys::decode(&data[index * DNODE_SLOT_BYTES..]);
            match decoded.map_err(|_| fault(TreeFaultKind::Undecodable, object, 0, 0))? {
                None => index += 1,
                Some(phys) => {
                    self.dnode(object, &phys)?;
                    index += phys.slots();
                    count += 1;
                }
            }
        }
        Ok(count)
    }
}
