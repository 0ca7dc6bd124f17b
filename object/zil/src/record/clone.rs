//! The record of a range that shares blocks with another one (OpenZFS: `lr_clone_range_t`, `zfs_log_clone_range`).

use super::end_of;
use super::reader::{self, RecordError, object};
use ondisk::zil::{LrCloneRange, foid};
use ondisk::{BLOCK_BYTES_MAX, BlockPtr, ByteOrder, ObjectId};

/// Range of a file or volume that gets blocks which others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneRecord<'a> {
    /// Object that gets them.
    pub object: ObjectId,
    /// Offset of the first byte.
    pub offset: u64,
    /// Offset behind the last byte.
    pub end: u64,
    /// Bytes of a block.
    pub block: u64,
    pointers: &'a [u8],
    order: ByteOrder,
}

impl<'a> CloneRecord<'a> {
    pub(super) fn decode(bytes: &'a [u8], order: ByteOrder) -> Result<CloneRecord<'a>, RecordError> {
        let (fixed, rest) = reader::fixed::<LrCloneRange>(bytes, order)?;
        let (target, end) = (object(foid::object(fixed.lr_foid).0)?, end_of(fixed.lr_offset, fixed.lr_length)?);
        let block = fixed.lr_blksz;
        if block == 0 || block > BLOCK_BYTES_MAX as u64 || fixed.lr_length == 0 {
            return Err(RecordError::Damaged("its range or its blocks have no bytes"));
        }
        if fixed.lr_nbps != fixed.lr_length.div_ceil(block) {
            return Err(RecordError::Damaged("its blocks are not those of its range"));
        }
        let length = fixed.lr_nbps.checked_mul(BlockPtr::BYTES as u64).and_then(|length| rest.first(length));
        let pointers = length.ok_or(RecordError::Damaged("it has fewer blocks than it says"))?;
        let record = CloneRecord { object: target, offset: fixed.lr_offset, end, block, pointers, order };
        let fits = |bp: BlockPtr| bp.is_hole() || bp.lsize() as u64 == block;
        if record.pointers().all(fits) { Ok(record) } else { Err(RecordError::Damaged("one of its blocks has another size")) }
    }

    /// Pointers of the blocks, in their order.
    pub fn pointers(&self) -> impl Iterator<Item = BlockPtr> + use<'a> {
        let is_little = self.order.is_little();
        self.pointers.as_chunks::<{ BlockPtr::BYTES }>().0.iter().map(move |raw| BlockPtr::decode(raw, is_little))
    }

    /// Pointers of the blocks that take space: a claim adds a reference to each, which goes with the log.
    pub fn blocks(&self) -> impl Iterator<Item = BlockPtr> + use<'a> {
        self.pointers().filter(|bp| !bp.is_hole() && !bp.is_embedded())
    }
}
