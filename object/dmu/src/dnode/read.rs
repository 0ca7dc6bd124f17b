//! Reading: the newest dirty bytes of each block, else what the tree points to; finding data and holes.
//!
//! A read of several blocks asks memory first; at the first block that isn't there, all that follow are started, so that
//! they arrive together.

use super::contents::Fetched;
use super::gather::cut;
use super::prefetch::Access;
use super::segments::segments;
use super::{Dnode, Zeros};
use crate::DmuError;
use abd::Abd;
use ondisk::{BlockId, BlockPtr};

impl Dnode {
    /// Fills `out` from `offset`; holes and what lies beyond the last block read as zeros.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), DmuError> {
        let (block_size, mut run) = self.start_read(offset, out.len())?;
        let mut rest = out;
        for segment in segments(offset, rest.len(), block_size) {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(segment.length);
            rest = after;
            match self.contents.fetch_run(segment.block, &mut run)? {
                Fetched::Zeros => part.fill(0),
                Fetched::Dirty(block) => block.copy_to(segment.within, part),
                Fetched::Clean(data) => {
                    let have = data.len().saturating_sub(segment.within).min(part.len());
                    data.copy_to(segment.within.min(data.len()), &mut part[..have]);
                    part[have..].fill(0);
                }
            }
        }
        Ok(())
    }

    /// `length` bytes from `offset` without a copy: a gang of slices of the blocks.
    pub fn read_abd(&self, offset: u64, length: usize) -> Result<Abd, DmuError> {
        let (block_size, mut run) = self.start_read(offset, length)?;
        let mut parts = Vec::with_capacity(length / block_size + 2);
        for segment in segments(offset, length, block_size) {
            let end = segment.within + segment.length;
            let data = match self.contents.fetch_run(segment.block, &mut run)? {
                Fetched::Zeros => {
                    parts.push(Abd::zeroed(segment.length));
                    continue;
                }
                Fetched::Dirty(block) => block.data(),
                Fetched::Clean(data) => data,
            };
            if end <= data.len() {
                parts.push(data.slice(segment.within..end));
            } else {
                let have = data.len().saturating_sub(segment.within);
                parts.push(data.slice(data.len() - have..data.len()));
                parts.push(Abd::zeroed(segment.length - have));
            }
        }
        Ok(if parts.len() == 1 { parts.swap_remove(0) } else { Abd::gang(&parts) })
    }

    /// Bytes as of [`Dnode::read_abd`] when all of them are in memory as they are: waits for nothing, and decompresses no data. None when they are not.
    pub fn read_at_hand(&self, offset: u64, length: usize) -> Option<Abd> {
        offset.checked_add(length as u64)?;
        let block_size = self.contents.block_size().ok()?;
        let mut parts = Vec::with_capacity(length / block_size + 2);
        for segment in segments(offset, length, block_size) {
            parts.push(match self.contents.fetch_now(segment.block)? {
                Fetched::Zeros => Abd::zeroed(segment.length),
                Fetched::Dirty(block) => cut(&block.data(), &segment),
                Fetched::Clean(data) => cut(&data, &segment),
            });
        }
        // Who reads on finds what comes next in memory, too.
        self.start_read(offset, length).ok()?;
        Some(if parts.len() == 1 { parts.swap_remove(0) } else { Abd::gang(&parts) })
    }

    /// One whole block (zeros for a hole).
    pub fn read_block(&self, block: BlockId) -> Result<Abd, DmuError> {
        match self.contents.fetch(block.0)? {
            Fetched::Zeros => Ok(Abd::zeroed(self.contents.block_size()?)),
            Fetched::Dirty(block) => Ok(block.data()),
            Fetched::Clean(data) => Ok(data),
        }
    }

    /// Checks the range and starts the reads of what a sequential reader wants next. Gives the block size and, for a range
    /// of several blocks, the last one.
    fn start_read(&self, offset: u64, length: usize) -> Result<(usize, Option<u64>), DmuError> {
        let (size, max_block) = self.contents.extent()?;
        let block_size = size as usize;
        let end = offset.checked_add(length as u64).ok_or(DmuError::Invalid)?;
        if length == 0 || max_block == 0 {
            return Ok((block_size, None));
        }
        let first = offset / size;
        let last = ((end - 1) / size).min(max_block);
        if first <= last {
            self.read_ahead(Access { blocks: first..last + 1, block_size: size, max_block, now_ns: 0 });
        }
        Ok((block_size, (first < last).then_some(last)))
    }

    /// Starts the reads ahead of a stream.
    fn read_ahead(&self, access: Access) {
        // Somebody else being in here is reading the same object: one of the two is enough.
        let ahead = match self.prefetcher.try_lock() {
            Some(mut prefetcher) => prefetcher.note(Access { now_ns: self.context.blocks.io().exec().now_ns(), ..access }),
            None => return,
        };
        if !ahead.is_empty() {
            self.contents.prefetch_blocks(ahead);
        }
    }

    /// Starts to read a range that will be wanted.
    pub fn prefetch(&self, offset: u64, length: u64) {
        let (block_size, max_block) = {
            let state = self.contents.state.read();
            (state.core.block_size as u64, state.core.max_block)
        };
        if length > 0 {
            let last = (offset.saturating_add(length) - 1) / block_size;
            self.contents.prefetch_blocks(offset / block_size..last.min(max_block) + 1);
        }
    }

    /// Takes blocks out of the cache whose last byte lies in the range: a reader that goes on in a block still wants it (OpenZFS:
    /// `DMU_UNCACHEDIO`, `db_pending_evict`). Never waits; blocks whose pointer is not in memory stay.
    pub fn forget(&self, offset: u64, length: usize) {
        self.contents.forget(offset, length);
    }

    /// Number of blocks of the object that take no read: dirty ones, holes, and those that `holds` says are in memory. Waits for no block; where a
    /// pointer is not in memory, its block is not either (OpenZFS: `dmu_object_cached_size`).
    pub fn blocks_in_memory(&self, holds: &dyn Fn(&BlockPtr) -> bool) -> u64 {
        self.contents.blocks_in_memory(holds)
    }

    /// The first offset ≥ `offset` with data, dirty data included; `None` when there is none up to the last block.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>, DmuError> {
        self.next_data_as(offset, Zeros::Data)
    }

    /// [`Dnode::next_data`], where dirty blocks of zeros count as told.
    pub fn next_data_as(&self, offset: u64, zeros: Zeros) -> Result<Option<u64>, DmuError> {
        self.contents.next_data_as(offset, zeros)
    }

    /// The first offset ≥ `offset` in a hole; the end of the last block counts as one.
    pub fn next_hole(&self, offset: u64) -> Result<u64, DmuError> {
        self.next_hole_as(offset, Zeros::Data)
    }

    /// [`Dnode::next_hole`], where dirty blocks of zeros count as told.
    pub fn next_hole_as(&self, offset: u64, zeros: Zeros) -> Result<u64, DmuError> {
        self.contents.next_hole_as(offset, zeros)
    }
}
