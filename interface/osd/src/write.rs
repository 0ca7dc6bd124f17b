//! Writing and punching in a transaction: whole blocks go to the devices at once, parts of blocks wait in the txg for the rest of them.
//!
//! A part of a block is put into memory as a whole block: a gang of what was there before and of the buffer, neither of which is copied. The part that
//! completes a block sends that gang to the devices instead, and nothing of it is left to the txg's sync.

use crate::loan::PAGE;
use crate::object::{Object, Shape, block_for};
use crate::stats::Count;
use crate::{OsdError, device::Device};
use abd::Abd;
use dmu::{BlockError, DmuError, Dnode, Tx};
use ondisk::BlockId;
use range_lock::RangeGuard;
use std::ops::Range;
use std::sync::Arc;
use zpl::{FILE_BYTES_MAX, Kept, ZplError};

/// Index of the modification time among an object's times.
const MTIME: usize = 1;
/// Index of the change time among an object's times.
const CTIME: usize = 2;

/// Part of a write that lies in one block, or is whole blocks.
struct Piece<'a> {
    offset: u64,
    data: Abd,
    dnode: &'a Dnode,
    shape: Shape,
    tx: &'a Tx,
}

/// Result of a try to go past memory.
enum Tried {
    /// The devices have it.
    Done,
    /// Reason why it has to go through memory.
    Not(Count),
}

impl Piece<'_> {
    /// Writes whole blocks to the devices: these bytes, which begin at `offset`.
    fn try_direct(&self, device: &Device, offset: u64, data: &Abd) -> Result<Tried, OsdError> {
        if !self.shape.is_bulk {
            return Ok(Tried::Not(Count::Small));
        }
        if !device.is_direct() {
            return Ok(Tried::Not(Count::Off));
        }
        match self.dnode.write_direct_abd(offset, data.clone(), self.tx) {
            Ok(()) => {
                device.stats.add(Count::Written, data.len() as u64);
                Ok(Tried::Done)
            }
            // Blocks are allocated at once, and what they replace is free two txgs later: the sync may find room.
            Err(DmuError::Block(BlockError::NoSpace, _)) => Ok(Tried::Not(Count::NoRoom)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Object {
    /// Writes bytes in a transaction; the buffer is kept where that saves a copy.
    pub(crate) fn put(&self, offset: u64, data: &Abd, tx: &Tx) -> Result<(), OsdError> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX).ok_or(OsdError::Store(ZplError::TooBig))?;
        let node = self.there_as(false)?;
        if data.is_empty() {
            return Ok(());
        }
        let dnode = node.dnode();
        let (_guard, shape) = self.lock_to_write(&node, &(offset..end), tx)?;
        self.device.stats.add(Count::Asked, end - offset);
        let mut at = offset;
        while at < end {
            let within = at % shape.block;
            let whole = (end - at) / shape.block * shape.block;
            let next = if within == 0 && whole > 0 { at + whole } else { (at - within + shape.block).min(end) };
            let piece = Piece { offset: at, data: data.slice((at - offset) as usize..(next - offset) as usize), dnode, shape, tx };
            if within == 0 && whole > 0 {
                self.put_blocks(&piece)?
            } else {
                self.put_part(&piece, node.fields().size)?
            }
            at = next;
        }
        let now = self.device.exec.wall_clock();
        Ok(self.device.zfs.change_within(&node, tx, |fields| {
            fields.size = fields.size.max(end);
            fields.times[MTIME] = now;
            fields.times[CTIME] = now;
        })?)
    }

    /// Locks the blocks of a range, and makes the only block of the object larger where it has to be.
    fn lock_to_write(&self, node: &Arc<Kept>, range: &Range<u64>, tx: &Tx) -> Result<(RangeGuard, Shape), OsdError> {
        let dnode = node.dnode();
        loop {
            let record = self.device.record_size();
            let shape = Shape::of(dnode, record)?;
            let wanted = self.wanted_block(shape, range.end, record);
            let blocks = range.start - range.start % shape.block..range.end.checked_next_multiple_of(shape.block).unwrap_or(u64::MAX);
            let guard = self.lock(if wanted.is_some() { 0..u64::MAX } else { blocks.clone() }, true);
            self.check_current(node)?;
            if Shape::of(dnode, record)? != shape {
                // Somebody else changed it meanwhile.
                continue;
            }
            self.left.lock().forget(blocks.start / shape.block..blocks.end.div_ceil(shape.block));
            let Some(wanted) = wanted else { return Ok((guard, shape)) };
            dnode.set_block_size(wanted as usize, tx)?;
            self.change_blocks(0..u64::MAX);
            return Ok((guard, Shape::of(dnode, record)?));
        }
    }

    /// Bytes that the only block of the object gets before something is written that ends at `end`; None when it stays.
    fn wanted_block(&self, shape: Shape, end: u64, record: u64) -> Option<u64> {
        if !shape.is_single || (shape.block >= record && shape.block.is_power_of_two()) {
            return None;
        }
        let planned = self.planned().min(record);
        // One that was made by others with a size of its own, or when records were larger.
        let least = if end > shape.block && !shape.block.is_power_of_two() { shape.block.next_power_of_two() } else { 0 };
        Some(planned.max(block_for(end, record)).max(least)).filter(|wanted| *wanted > shape.block)
    }

    /// Writes whole blocks.
    fn put_blocks(&self, piece: &Piece<'_>) -> Result<(), OsdError> {
        let (bytes, stats) = (piece.data.len() as u64, &self.device.stats);
        let first = piece.offset / piece.shape.block;
        self.edges.lock().forget(first..first + bytes / piece.shape.block);
        match piece.try_direct(&self.device, piece.offset, &piece.data)? {
            Tried::Done => stats.add(Count::Direct, bytes),
            Tried::Not(reason) => {
                stats.add(reason, bytes);
                piece.dnode.write_abd(piece.offset, self.stable(&piece.data), piece.tx)?;
            }
        }
        Ok(())
    }

    /// Writes a part of a block of an object that has `size` bytes.
    fn put_part(&self, piece: &Piece<'_>, size: u64) -> Result<(), OsdError> {
        let (block, bytes, stats) = (piece.shape.block, piece.data.len(), &self.device.stats);
        let (number, within) = (piece.offset / block, (piece.offset % block) as usize);
        let is_paged = (within as u64).is_multiple_of(PAGE) && (bytes as u64).is_multiple_of(PAGE);
        if !is_paged || !piece.shape.is_bulk {
            self.edges.lock().forget(number..number + 1);
            stats.add(if piece.shape.is_bulk { Count::Misaligned } else { Count::Small }, bytes as u64);
            stats.add(Count::Copied, bytes as u64);
            return Ok(piece.dnode.write_abd(piece.offset, piece.data.to_stable(), piece.tx)?);
        }
        let start = number * block;
        let before = self.before(piece.dnode, start, (block, size))?;
        let parts = [before.slice(0..within), self.stable(&piece.data), before.slice(within + bytes..block as usize)];
        let whole = Abd::gang(&parts);
        let waited = self.edges.lock().cover(number, within..within + bytes, block as usize);
        if let Some(waited) = waited
            && let Tried::Done = piece.try_direct(&self.device, start, &whole)?
        {
            stats.add(Count::Direct, waited + bytes as u64);
            stats.add(Count::Coalesced, waited);
            return Ok(());
        }
        Ok(piece.dnode.write_abd(start, whole, piece.tx)?)
    }

    /// Bytes of a block before the write, of an object that has `size` bytes.
    fn before(&self, dnode: &Dnode, start: u64, (block, size): (u64, u64)) -> Result<Abd, OsdError> {
        if start >= size {
            return Ok(self.device.zeros(block as usize));
        }
        let before = dnode.read_block(BlockId(start / block))?;
        if before.len() as u64 == block { Ok(before) } else { Err(OsdError::Store(ZplError::CORRUPT)) }
    }

    /// Bytes that nobody changes any more.
    fn stable(&self, data: &Abd) -> Abd {
        if data.is_unstable() {
            self.device.stats.add(Count::Copied, data.len() as u64);
        }
        data.to_stable()
    }

    /// Frees a range of bytes in a transaction: they read as zeros. One without an end shortens the object, or lengthens it, to where it begins.
    pub(crate) fn free(&self, range: &Range<u64>, tx: &Tx) -> Result<(), OsdError> {
        let node = self.there_as(false)?;
        let truncates = range.end == u64::MAX;
        if range.start > FILE_BYTES_MAX {
            return Err(OsdError::Store(ZplError::TooBig));
        }
        // The object's size may change, and what is behind it.
        let _guard = self.lock(0..u64::MAX, true);
        self.check_current(&node)?;
        self.change_blocks(0..u64::MAX);
        let size = node.fields().size;
        if range.start < size {
            node.dnode().free_range(range.start, range.end - range.start, tx)?;
        }
        if truncates && range.start > size {
            let record = self.device.record_size();
            if let Some(wanted) = self.wanted_block(Shape::of(node.dnode(), record)?, range.start, record) {
                node.dnode().set_block_size(wanted as usize, tx)?;
            }
        }
        let now = self.device.exec.wall_clock();
        Ok(self.device.zfs.change_within(&node, tx, |fields| {
            if truncates {
                fields.size = range.start;
            }
            fields.times[MTIME] = now;
            fields.times[CTIME] = now;
        })?)
    }
}
