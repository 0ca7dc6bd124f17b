//! The blocks of an object as they lie on disk: a walk over its tree from the dnode, without the object layer.
//!
//! Nothing that is read is trusted: a pointer of another level than its place is an error, and no place beyond the dnode's last block is
//! visited, so that a walk ends on any image.

use dmu::{BlockError, BlockIo};
use ondisk::{BlockId, BlockPtr, Bookmark, DnodePhys, Level, ObjectId, ObjsetId};
use std::fmt;

/// Reason why a walk stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkError {
    /// Block that could not be read.
    Block(BlockError),
    /// Shape is wrong: an indirect block has another size, or holds a pointer of another level, than its place demands.
    Shape,
}

impl fmt::Display for WalkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WalkError::Block(error) => write!(f, "{error}"),
            WalkError::Shape => f.write_str("an indirect block does not fit its dnode"),
        }
    }
}

/// Object whose tree is walked.
pub struct Tree<'a> {
    /// Source of its blocks.
    pub io: &'a dyn BlockIo,
    /// Number of its object set.
    pub objset: ObjsetId,
    /// Number of the object.
    pub object: ObjectId,
    /// Dnode of the object, as on disk.
    pub phys: &'a DnodePhys,
}

/// Callback for every pointer that was ever written, parents first: level, number within the level, pointer. False does not descend.
pub type Visitor<'v> = dyn FnMut(u8, u64, &BlockPtr) -> bool + 'v;

impl Tree<'_> {
    fn bookmark(&self, level: u8, block: u64) -> Bookmark {
        Bookmark { objset: self.objset, object: self.object, level: Level(level), block: BlockId(block) }
    }

    /// Bytes of one of the object's blocks.
    pub fn read(&self, level: u8, block: u64, bp: &BlockPtr) -> Result<Vec<u8>, WalkError> {
        self.io.read(bp, &self.bookmark(level, block)).map(|data| data.to_vec()).map_err(WalkError::Block)
    }

    /// Bytes of one of the object's blocks as they are stored: compressed.
    pub fn stored(&self, level: u8, block: u64, bp: &BlockPtr) -> Result<Vec<u8>, WalkError> {
        if bp.is_embedded() {
            return Ok(bp.embedded_payload());
        }
        self.io.read_stored_now(bp, &self.bookmark(level, block)).map(|data| data.to_vec()).map_err(WalkError::Block)
    }

    /// Visits every pointer.
    pub fn walk(&self, visit: &mut Visitor<'_>) -> Result<(), WalkError> {
        let top = self.phys.levels.saturating_sub(1);
        for (index, bp) in self.phys.block_ptrs.iter().take(usize::from(self.phys.block_ptr_count)).enumerate() {
            self.descend(top, index as u64, bp, visit)?;
        }
        Ok(())
    }

    fn descend(&self, level: u8, block: u64, bp: &BlockPtr, visit: &mut Visitor<'_>) -> Result<(), WalkError> {
        if bp.birth().0 == 0 || self.first_below(level, block).is_none_or(|first| first > self.phys.max_block.0) {
            return Ok(());
        }
        if bp.level() != level && !bp.is_embedded() {
            return Err(WalkError::Shape);
        }
        if !visit(level, block, bp) || level == 0 || bp.is_hole() {
            return Ok(());
        }
        let data = self.read(level, block, bp)?;
        if data.len() != 1 << self.phys.indirect_shift {
            return Err(WalkError::Shape);
        }
        let children = data.len() / BlockPtr::BYTES;
        for (index, raw) in data.chunks_exact(BlockPtr::BYTES).enumerate() {
            if let Some(raw) = raw.first_chunk() {
                self.descend(level - 1, block * children as u64 + index as u64, &BlockPtr::decode(raw, true), visit)?;
            }
        }
        Ok(())
    }

    /// Number of the first level-0 block below a place; None when no object is so long.
    fn first_below(&self, level: u8, block: u64) -> Option<u64> {
        let shift = u32::from(level) * u32::from(self.phys.indirect_shift.saturating_sub(7));
        if block == 0 { Some(0) } else { block.checked_shl(shift).filter(|first| shift < 64 && first >> shift == block) }
    }

    /// Offset in bytes in the object of a place's first byte, for display.
    pub fn offset(&self, level: u8, block: u64) -> u64 {
        self.first_below(level, block).unwrap_or(u64::MAX).wrapping_mul(self.phys.data_block_bytes() as u64)
    }
}
