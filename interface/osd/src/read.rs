//! Reading: from the devices past the cache where at least a block is asked for, else through it. Nothing is copied.

use crate::OsdError;
use crate::loan::PAGE;
use crate::object::{Object, Shape};
use crate::stats::Count;
use abd::Abd;
use dmu::Dnode;
use std::ops::Range;

impl Object {
    /// Reads up to `length` bytes from `offset`; short only at the end of the object. Past the cache when they are at least a block, or the property
    /// `direct=always` says so.
    ///
    /// # Errors
    /// [`OsdError::NotFound`], [`OsdError::WrongKind`] for an index, those of the devices.
    pub fn read(&self, offset: u64, length: u64) -> Result<Abd, OsdError> {
        self.read_as(offset, length, false)
    }

    /// Does [`Object::read`] past the cache, however few bytes they are, unless direct I/O is off. Who reads on in sequence reads each block once.
    ///
    /// # Errors
    /// As of [`Object::read`].
    pub fn read_direct(&self, offset: u64, length: u64) -> Result<Abd, OsdError> {
        self.read_as(offset, length, true)
    }

    fn read_as(&self, offset: u64, length: u64, is_asked: bool) -> Result<Abd, OsdError> {
        let node = self.there_as(false)?;
        let dnode = node.dnode();
        loop {
            let shape = Shape::of(dnode, self.device.record_size())?;
            let block = shape.block;
            let wants = is_asked || self.device.is_always_direct() || length >= block;
            let is_direct = self.device.is_direct() && wants && shape.is_bulk && offset.is_multiple_of(PAGE);
            let end = offset.saturating_add(length);
            // What is kept of a block is all of it: nobody may change any of it meanwhile.
            let locked = if is_direct { offset - offset % block..end.checked_next_multiple_of(block).unwrap_or(end) } else { offset..end };
            let _guard = self.lock(locked, false);
            self.check_current(&node)?;
            if Shape::of(dnode, self.device.record_size())?.block != block {
                continue;
            }
            let end = end.min(node.fields().size);
            if offset >= end {
                return Ok(Abd::default());
            }
            self.device.stats.add(Count::Read, end - offset);
            return if is_direct {
                self.device.stats.add(Count::ReadDirect, end - offset);
                self.read_blocks(dnode, offset..end, block)
            } else {
                Ok(dnode.read_abd(offset, (end - offset) as usize)?)
            };
        }
    }

    /// Reads the blocks of a range directly, but for the first one where it is left of somebody's request before.
    fn read_blocks(&self, dnode: &Dnode, range: Range<u64>, block: u64) -> Result<Abd, OsdError> {
        let (number, within) = (range.start / block, range.start % block);
        let is_small = range.end - range.start < block && range.end <= (number + 1) * block;
        let _turn = is_small.then(|| self.turn(number * block..(number + 1) * block));
        let head = if within > 0 || range.end < (number + 1) * block {
            let part = within as usize..(range.end - number * block).min(block) as usize;
            self.left.lock().serve(number, part)
        } else {
            None
        };
        let mut parts = Vec::with_capacity(2);
        let mut at = range.start;
        if let Some(head) = head {
            self.device.stats.add(Count::Left, head.len() as u64);
            at += head.len() as u64;
            parts.push(head);
        }
        if at < range.end {
            parts.push(self.fetch(dnode, at..range.end, block)?);
        }
        Ok(if parts.len() == 1 { parts.swap_remove(0) } else { Abd::gang(&parts) })
    }

    /// Reads whole blocks around a range, and keeps those at its ends for who reads on.
    fn fetch(&self, dnode: &Dnode, range: Range<u64>, block: u64) -> Result<Abd, OsdError> {
        let (first, last) = (range.start / block, (range.end - 1) / block);
        let start = first * block;
        let data = dnode.read_direct(start, ((last + 1) * block - start) as usize)?;
        self.device.stats.add(Count::Fetched, data.len() as u64);
        let bytes_of = |number: u64| {
            let (from, to) = (range.start.max(number * block), range.end.min((number + 1) * block));
            to - from
        };
        let mut left = self.left.lock();
        for number in [first, last].into_iter().take(if first == last { 1 } else { 2 }) {
            if bytes_of(number) < block {
                let from = (number - first) * block;
                left.keep(number, data.slice(from as usize..(from + block) as usize), bytes_of(number));
            }
        }
        drop(left);
        Ok(data.slice((range.start - start) as usize..(range.end - start) as usize))
    }
}
