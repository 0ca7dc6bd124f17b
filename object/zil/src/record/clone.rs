//! The record of a range that shares blocks with another one (OpenZFS: `lr_clone_range_t`, `zfs_log_clone_range`).

use super::end_of;
use super::reader::{self, Reader, RecordError, object};
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
        let pointers = pointers_of(&fixed, rest)?;
        let record = CloneRecord { object: target, offset: fixed.lr_offset, end, block, pointers, order };
        let fits = |bp: BlockPtr| bp.is_hole() || bp.lsize() as u64 == block;
        if record.pointers().all(fits) { Ok(record) } else { Err(RecordError::Damaged("one of its blocks has another size")) }
    }

    /// Pointers of the blocks, in their order.
    pub fn pointers(&self) -> impl Iterator<Item = BlockPtr> + use<'a> {
        decoded(self.pointers, self.order)
    }
}

/// Pointers of the blocks that take space, of a record of which everything else may be encrypted: what a claim adds references to, and what goes with
/// the log.
///
/// # Errors
/// [`RecordError::Damaged`] when it does not say how many there are.
pub(crate) fn shared_blocks(bytes: &[u8], order: ByteOrder) -> Result<impl Iterator<Item = BlockPtr>, RecordError> {
    let (fixed, rest) = reader::fixed::<LrCloneRange>(bytes, order)?;
    Ok(decoded(pointers_of(&fixed, rest)?, order).filter(|bp| !bp.is_hole() && !bp.is_embedded()))
}

fn pointers_of<'a>(fixed: &LrCloneRange, rest: Reader<'a>) -> Result<&'a [u8], RecordError> {
    let pointers = fixed.lr_nbps.checked_mul(BlockPtr::BYTES as u64).and_then(|length| rest.first(length));
    pointers.ok_or(RecordError::Damaged("it has fewer blocks than it says"))
}

fn decoded(pointers: &[u8], order: ByteOrder) -> impl Iterator<Item = BlockPtr> {
    let is_little = order.is_little();
    pointers.as_chunks::<{ BlockPtr::BYTES }>().0.iter().map(move |raw| BlockPtr::decode(raw, is_little))
}
