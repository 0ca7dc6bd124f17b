//! Reading: through the cache, and past it where that was asked for.

use crate::{Access, Volume, VolumeError};
use abd::Abd;
use direct_io::{How, Operation, Plan};
use dmu::Zeros;
use exec::completion;
use ondisk::Compression;
use range_lock::RangeGuard;
use std::ops::Range;
use std::sync::Arc;

/// Continuation that receives what was read; must not wait.
pub type ReadThen = Box<dyn FnOnce(Result<Abd, VolumeError>) + Send>;

impl Volume {
    /// Reads up to `length` bytes from `offset`, without a copy; short only at the end of the volume.
    ///
    /// # Errors
    /// Those of the devices.
    pub fn read(self: &Arc<Self>, offset: u64, length: u64, access: Access) -> Result<Abd, VolumeError> {
        let (done, waiter) = completion();
        self.read_then(offset, length, access, Box::new(move |result| done.complete(result)));
        waiter.wait(&self.exec)
    }

    /// Does [`Volume::read`] without waiting for the devices of what is read past the cache: `then` runs when the bytes are there.
    pub fn read_then(self: &Arc<Self>, offset: u64, length: u64, access: Access, then: ReadThen) {
        let range = offset..offset.saturating_add(length);
        let guard = self.lock(range.clone(), false);
        let plan = self.plan(Operation::Read, &range, access);
        self.count_read(range.end.min(self.size()).saturating_sub(range.start));
        let (direct, rest) = match self.read_buffered(&plan) {
            Ok(parts) => parts,
            Err(error) => {
                drop(guard);
                return then(Err(error));
            }
        };
        match direct {
            None => {
                drop(guard);
                then(Ok(rest));
            }
            Some(range) => self.read_direct(range, rest, guard, then),
        }
    }

    /// Does [`Volume::read`] through the cache where that needs no wait: all bytes are in memory as they are, and nobody changes a part of the range. None, and
    /// nothing is counted, where it would need one, or would go past the cache. For who must not wait at all: a caller's thread that serves others, too.
    pub fn read_at_hand(&self, offset: u64, length: u64) -> Option<Abd> {
        if self.is_always_direct() || !self.keeps_data() {
            return None;
        }
        let guard = self.try_lock(offset..offset.saturating_add(length))?;
        let length = self.size().saturating_sub(offset).min(length);
        let data = self.data.read_at_hand(offset, length as usize)?;
        drop(guard);
        self.count_read(length);
        Some(data)
    }

    /// Reads what of a plan goes through the cache: at most one piece, the last one. Gives the range that is still to be read directly.
    fn read_buffered(&self, plan: &Plan) -> Result<(Option<Range<u64>>, Abd), VolumeError> {
        let (mut direct, mut rest) = (None, Abd::default());
        for piece in plan.pieces() {
            match piece.how {
                How::Direct => direct = Some(piece.range.clone()),
                How::Buffered { uncached, .. } => {
                    let (start, length) = (piece.range.start, (piece.range.end - piece.range.start) as usize);
                    rest = self.data.read_abd(start, length)?;
                    if uncached || !self.keeps_data() {
                        let at_end = piece.range.end >= self.size();
                        self.data.forget(start, if at_end { usize::MAX } else { length });
                    }
                }
            }
        }
        Ok((direct, rest))
    }

    /// Reads past the cache; what was read through it follows behind.
    fn read_direct(self: &Arc<Self>, range: Range<u64>, rest: Abd, guard: RangeGuard, then: ReadThen) {
        let own = self.clone();
        self.data.read_direct_then(range.start, (range.end - range.start) as usize, move |result| {
            // The volume stays until its bytes are there.
            drop((guard, own));
            then(match result {
                Ok(direct) if rest.is_empty() => Ok(direct),
                Ok(direct) => Ok(Abd::gang(&[direct, rest])),
                Err(error) => Err(error.into()),
            });
        });
    }

    /// Offset of the next byte of data at or after `offset`; None when there is none.
    ///
    /// # Errors
    /// Those of reading the volume's indirect blocks.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>, VolumeError> {
        let size = self.size();
        if offset >= size {
            return Ok(None);
        }
        Ok(self.data.next_data_as(offset, self.zeros())?.map(|found| found.max(offset)).filter(|found| *found < size))
    }

    /// Offset of the next byte of a hole at or after `offset`, the end of the volume counts as one; None behind the end.
    ///
    /// # Errors
    /// As of [`Volume::seek_data`].
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>, VolumeError> {
        let size = self.size();
        if offset >= size {
            return Ok(None);
        }
        Ok(Some(self.data.next_hole_as(offset, self.zeros())?.clamp(offset, size)))
    }

    /// Meaning of blocks of zeros that are not synced yet: with compression they become holes.
    fn zeros(&self) -> Zeros {
        if self.objset().props().compression == Compression::OFF { Zeros::Data } else { Zeros::Hole }
    }
}
