//! Freeing: what is discarded or zeroed becomes holes.
//!
//! A free is done and noted in one transaction: OpenZFS notes a discard in a transaction of its own, before it frees (`zvol_os.c`).

use crate::write::OVERHEAD_BYTES;
use crate::{Volume, VolumeError};
use dsl::TxSpace;
use std::ops::Range;

/// Blocks that one transaction frees, at most: what is read and remembered for it has a bound (OpenZFS's limit of a discard).
const BLOCKS_MAX: u64 = 16_384;

impl Volume {
    /// Frees the whole blocks in a range, which read as zeros then; what of the range fills no block stays as it is (OpenZFS: `zvol_discard`).
    ///
    /// # Errors
    /// [`VolumeError::ReadOnly`], [`VolumeError::OutOfRange`]; those of the transaction, and of the devices: some of it may be freed then.
    pub fn discard(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        let end = offset.checked_add(length).ok_or(VolumeError::OutOfRange)?;
        let block = self.block_size();
        let whole = offset.checked_next_multiple_of(block).unwrap_or(end)..end - end % block;
        let _guard = self.lock(offset..end, true);
        self.check_change(end)?;
        self.free(whole, TxSpace::Frees)?;
        self.end_free()
    }

    /// Makes a range zeros: whole blocks become holes, zeros are written to the rest.
    ///
    /// # Errors
    /// As of [`Volume::discard`]; [`VolumeError::NoSpace`] and [`VolumeError::OverQuota`] where blocks are zeroed in part.
    pub fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        let end = offset.checked_add(length).ok_or(VolumeError::OutOfRange)?;
        let block = self.block_size();
        let is_whole = offset.is_multiple_of(block) && end.is_multiple_of(block);
        // Two edges at most.
        let space = if is_whole { TxSpace::Frees } else { TxSpace::Writes(2 * block + OVERHEAD_BYTES) };
        let _guard = self.lock(offset..end, true);
        self.check_change(end)?;
        self.free(offset..end, space)?;
        self.end_free()
    }

    /// Frees a range that is locked, in as many transactions as it takes.
    fn free(&self, range: Range<u64>, space: TxSpace) -> Result<(), VolumeError> {
        let step = BLOCKS_MAX * self.block_size();
        let mut at = range.start;
        while at < range.end {
            let end = (at - at % step).saturating_add(step).min(range.end);
            // Disks are waited for before the transaction, not in it: it would hold up everybody's next txg.
            self.data.prepare_free(at, end - at)?;
            let tx = self.dataset.assign(space)?;
            self.data.free_range(at, end - at, &tx)?;
            self.journal.note_freed(&(at..end), &tx);
            at = end;
        }
        Ok(())
    }

    /// Ends what nobody asked to be durable by itself.
    fn end_free(&self) -> Result<(), VolumeError> {
        if self.is_durable(false) { self.flush() } else { Ok(()) }
    }
}
