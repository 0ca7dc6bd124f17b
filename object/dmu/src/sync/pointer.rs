//! What a sync makes of a block pointer before it goes into its parent.

use ondisk::{BlockPtr, ObjectType, Txg};

/// A pointer as it goes into its parent: with its fill, or a hole that remembers when it was punched.
///
/// OpenZFS: `zio_write_compress` (a hole over something that was born gets a birth when `hole_birth` is active).
pub(super) fn finish_pointer(mut new: BlockPtr, old: &BlockPtr, shape: &Shape) -> BlockPtr {
    if !new.is_hole() {
        new.set_fill(shape.fill);
        return new;
    }
    if old.birth() == Txg::ZERO || !shape.hole_birth {
        return BlockPtr::HOLE;
    }
    let mut hole = BlockPtr::HOLE;
    hole.set_lsize(shape.lsize);
    hole.set_object_type(shape.object_type);
    hole.set_level(shape.level);
    hole.set_birth(shape.txg, shape.txg);
    hole
}

/// Fields of a block pointer besides the place of the block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub txg: Txg,
    pub lsize: usize,
    pub object_type: ObjectType,
    pub level: u8,
    pub fill: u64,
    pub hole_birth: bool,
}

/// True when the store rewrote the old block instead of allocating a new one.
pub(super) fn is_in_place(old: &BlockPtr, new: &BlockPtr) -> bool {
    let is_block = |bp: &BlockPtr| !bp.is_hole() && !bp.is_embedded();
    is_block(old) && is_block(new) && old.birth() == new.birth() && old.dva(0) == new.dva(0)
}
