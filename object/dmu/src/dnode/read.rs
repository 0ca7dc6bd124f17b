//! Reading: the newest dirty bytes of each block, else what the tree points to.
//!
//! A pointer that was found may be stale by the time it is used: a sync can replace the tree and free the block meanwhile.
//! Freed space isn't reused for two txgs and the old bytes equal the new ones unless somebody wrote, so a stale read is
//! correct when it succeeds; when it fails and the tree has been replaced, the block is looked up again.
//!
//! A read of several blocks asks memory first; at the first block that isn't there, all that follow are started, so that
//! they arrive together.

use super::Dnode;
use crate::DmuError;
use crate::state::{DirtyBlock, Found, Written};
use abd::Abd;
use ondisk::BlockId;
use std::sync::Arc;

/// The bytes of one block.
pub(super) enum Fetched {
    Zeros,
    Dirty(Arc<DirtyBlock>),
    Clean(Abd),
}

/// A part of a block that an access touches.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub block: u64,
    /// Offset in the block.
    pub within: usize,
    pub length: usize,
}

/// Cuts an access into blocks.
pub(super) fn segments(offset: u64, length: usize, block_size: usize) -> impl Iterator<Item = Segment> {
    let size = block_size as u64;
    let end = offset + length as u64;
    let mut position = offset;
    std::iter::from_fn(move || {
        if position >= end {
            return None;
        }
        let block = if size.is_power_of_two() { position >> size.trailing_zeros() } else { position / size };
        let within = position - block * size;
        let length = (size - within).min(end - position);
        position += length;
        Some(Segment { block, within: within as usize, length: length as usize })
    })
}

impl Dnode {
    /// Fills `out` from `offset`; holes and what lies beyond the last block read as zeros.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), DmuError> {
        let (block_size, mut run) = self.start_read(offset, out.len())?;
        let mut rest = out;
        for segment in segments(offset, rest.len(), block_size) {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(segment.length);
            rest = after;
            match self.fetch_run(segment.block, &mut run)? {
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
            let data = match self.fetch_run(segment.block, &mut run)? {
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

    /// One whole block (zeros for a hole).
    pub fn read_block(&self, block: BlockId) -> Result<Abd, DmuError> {
        match self.fetch(block.0)? {
            Fetched::Zeros => Ok(Abd::zeroed(self.block_size()?)),
            Fetched::Dirty(block) => Ok(block.data()),
            Fetched::Clean(data) => Ok(data),
        }
    }

    /// The newest bytes of a block.
    pub(super) fn fetch(&self, block: u64) -> Result<Fetched, DmuError> {
        self.fetch_run(block, &mut None)
    }

    /// As [`Dnode::fetch`]; when the block isn't in memory, starts the reads up to the end of the run (and clears it).
    fn fetch_run(&self, block: u64, run: &mut Option<u64>) -> Result<Fetched, DmuError> {
        let mut tries = 0;
        loop {
            let tree = {
                let state = self.state.read();
                if state.core.freed {
                    return Err(DmuError::NoSuchObject);
                }
                match state.find(block) {
                    Found::Dirty(_, found) => return Ok(Fetched::Dirty(found)),
                    Found::Written(found) => {
                        drop(state);
                        match self.fetch_written(block, &found)? {
                            Some(fetched) => return Ok(fetched),
                            None => continue,
                        }
                    }
                    Found::Freed => return Ok(Fetched::Zeros),
                    Found::Clean(_) if block > state.core.max_block => return Ok(Fetched::Zeros),
                    Found::Clean(tree) => tree,
                }
            };
            let found = self.pointer(&tree, 0, block).and_then(|bp| {
                if bp.is_hole() {
                    return Ok(Fetched::Zeros);
                }
                let io = &self.context.env.io;
                if let Some(last) = *run {
                    if let Some(data) = io.cached(&bp) {
                        return Ok(Fetched::Clean(data));
                    }
                    *run = None;
                    self.prefetch_blocks(block..last + 1);
                }
                self.read_pointed(&tree, &bp, (0, block)).map(Fetched::Clean)
            });
            match found {
                Ok(found) => return Ok(found),
                Err(error) => self.retry_if_stale(&tree, &mut tries, error)?,
            }
        }
    }

    /// The bytes of a block that a direct write put on disk; None when it was replaced meanwhile and its space perhaps, too.
    fn fetch_written(&self, block: u64, written: &Arc<Written>) -> Result<Option<Fetched>, DmuError> {
        if written.bp.is_hole() {
            return Ok(Some(Fetched::Zeros));
        }
        let (io, bookmark) = (&self.context.env.io, self.context.bookmark(self.object, 0, block));
        match io.read_kept(&written.bp, &bookmark, self.keep(&written.bp)) {
            Ok(data) => Ok(Some(Fetched::Clean(data))),
            Err(error) if self.still_has(block, written) => {
                io.lost(&written.bp, &bookmark, error);
                Err(error.into())
            }
            Err(_) => Ok(None),
        }
    }

    /// True when the record is still the newest of its block.
    pub(super) fn still_has(&self, block: u64, written: &Arc<Written>) -> bool {
        matches!(self.state.read().find(block), Found::Written(now) if Arc::ptr_eq(&now, written))
    }

    pub(super) fn block_size(&self) -> Result<usize, DmuError> {
        let state = self.state.read();
        if state.core.freed { Err(DmuError::NoSuchObject) } else { Ok(state.core.block_size) }
    }

    /// Checks the range and starts the reads of what a sequential reader wants next. Gives the block size and, for a range
    /// of several blocks, the last one.
    fn start_read(&self, offset: u64, length: usize) -> Result<(usize, Option<u64>), DmuError> {
        let (block_size, max_block) = {
            let state = self.state.read();
            if state.core.freed {
                return Err(DmuError::NoSuchObject);
            }
            (state.core.block_size, state.core.max_block)
        };
        let end = offset.checked_add(length as u64).ok_or(DmuError::Invalid)?;
        if length == 0 || max_block == 0 {
            return Ok((block_size, None));
        }
        let first = offset / block_size as u64;
        let last = ((end - 1) / block_size as u64).min(max_block);
        if first <= last {
            self.read_ahead(first, last, block_size, max_block);
        }
        Ok((block_size, (first < last).then_some(last)))
    }
}
