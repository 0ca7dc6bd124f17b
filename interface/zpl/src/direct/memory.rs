//! Direct I/O between files and the caller's own memory, without a copy on the way where nothing is transformed.
//!
//! Here the alignment of memory is known: a slice that does not begin and end on a page is misaligned, as for O_DIRECT.

use super::{Access, How, Memory};
use crate::io::WriteData;
use crate::znode::Node;
use crate::{Zfs, ZplError};
use abd::{PAGE_BYTES, SharedPages, with_lent};
use std::ops::Range;

impl Memory {
    /// The alignment of a slice.
    pub fn of(bytes: &[u8]) -> Memory {
        let aligned = bytes.as_ptr().addr().is_multiple_of(PAGE_BYTES) && bytes.len().is_multiple_of(PAGE_BYTES);
        if aligned { Memory::Aligned } else { Memory::Misaligned }
    }
}

impl Zfs {
    /// Fills `out` from `offset`; returns the bytes read, fewer only at the end of the file. The alignment of `out` is looked
    /// at, whatever `access` says.
    pub fn read_into(&self, node: &Node, offset: u64, out: &mut [u8], access: Access) -> Result<usize, ZplError> {
        let access = Access { memory: Memory::of(out), ..access };
        let length = out.len() as u64;
        if !self.is_asked(access) {
            let data = self.read_cached(node, offset, length)?;
            data.copy_to(0, &mut out[..data.len()]);
            return Ok(data.len());
        }
        let reading = self.plan_read(node, offset..offset.saturating_add(length), access)?;
        let mut done = 0;
        for piece in reading.plan.pieces() {
            let part = &mut out[done..done + (piece.range.end - piece.range.start) as usize];
            done += part.len();
            match piece.how {
                How::Direct => node.dnode.read_direct_into(piece.range.start, part)?,
                How::Buffered { uncached, .. } => self.read_buffered(node, piece.range.start, part.len(), uncached)?.copy_to(0, part),
            }
        }
        self.note_access(node);
        Ok(done)
    }

    /// Writes `data` at `offset`; the bytes are in place on the disks, or copied, when it returns. The alignment of `data` is
    /// looked at, whatever `access` says.
    pub fn write_from(&self, node: &Node, offset: u64, data: &[u8], access: Access) -> Result<u64, ZplError> {
        let access = Access { memory: Memory::of(data), ..access };
        with_lent(&self.exec, data, |data| {
            let write = WriteData { offset, data, may_keep: false, kill_suid: false, synchronous: false };
            self.write_with(node, write, access)
        })
    }

    /// As [`Zfs::read_into`], to pages that others may change meanwhile. What did not verify there is read again.
    pub fn read_pages(
        &self,
        node: &Node,
        offset: u64,
        pages: &SharedPages,
        range: Range<usize>,
        access: Access,
    ) -> Result<usize, ZplError> {
        let start = range.start;
        let aligned = start.is_multiple_of(PAGE_BYTES) && range.len().is_multiple_of(PAGE_BYTES);
        let access = Access { memory: if aligned { Memory::Aligned } else { Memory::Misaligned }, ..access };
        let length = range.len() as u64;
        if !self.is_asked(access) {
            let data = self.read_cached(node, offset, length)?;
            pages.part(start..start + data.len()).copy_from_abd(&data);
            return Ok(data.len());
        }
        let reading = self.plan_read(node, offset..offset.saturating_add(length), access)?;
        let mut done = start;
        for piece in reading.plan.pieces() {
            let part = done..done + (piece.range.end - piece.range.start) as usize;
            done = part.end;
            match piece.how {
                How::Direct => node.dnode.read_direct_pages(piece.range.start, pages, part)?,
                How::Buffered { uncached, .. } => {
                    let data = self.read_buffered(node, piece.range.start, part.len(), uncached)?;
                    pages.part(part).copy_from_abd(&data);
                }
            }
        }
        self.note_access(node);
        Ok(done - start)
    }
}
