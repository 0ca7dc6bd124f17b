//! Direct I/O between files and the caller's own memory, without a copy on the way where nothing is transformed.
//!
//! Here the alignment of memory is known: a slice that does not begin and end on a page is misaligned, as for O_DIRECT.

use super::Data;
use super::request::{Reading, WriteData, read_buffered};
use crate::ZplError;
use crate::direct::{Access, How, Memory};
use crate::nodes::Node;
use abd::{PAGE_BYTES, SharedPages, with_lent};
use std::ops::Range;

impl Data {
    /// Fills `out` from `offset`; returns the bytes read, fewer only at the end of the file. The alignment of `out` is looked
    /// at, whatever `access` says.
    pub(crate) fn read_into(&self, node: &Node, offset: u64, out: &mut [u8], access: Access) -> Result<usize, ZplError> {
        let access = Access { memory: Memory::of(out), ..access };
        let length = out.len() as u64;
        let (_guard, plan) = match Reading::prepare(node, offset..offset.saturating_add(length), access)? {
            Reading::Planned(guard, plan) => (guard, plan),
            cached => {
                let data = self.driver.read(node, cached)?;
                data.copy_to(0, &mut out[..data.len()]);
                return Ok(data.len());
            }
        };
        let mut done = 0;
        for piece in plan.pieces() {
            let part = &mut out[done..done + (piece.range.end - piece.range.start) as usize];
            done += part.len();
            match piece.how {
                How::Direct => node.dnode.read_direct_into(piece.range.start, part)?,
                How::Buffered { uncached, .. } => read_buffered(node, piece.range.start, part.len(), uncached)?.copy_to(0, part),
            }
        }
        self.store.note_access(node);
        Ok(done)
    }

    /// Writes `data` at `offset`; the bytes are in place on the disks, or copied, when it returns. The alignment of `data` is
    /// looked at, whatever `access` says.
    pub(crate) fn write_from(&self, node: &Node, offset: u64, data: &[u8], access: Access) -> Result<u64, ZplError> {
        let access = Access { memory: Memory::of(data), ..access };
        with_lent(&self.store.exec, data, |data| {
            let write = WriteData { offset, data, may_keep: false, kill_suid: false, synchronous: false };
            self.write(node, write, access)
        })
    }

    /// Does [`Data::read_into`] to pages that others may change meanwhile. What did not verify there is read again.
    pub(crate) fn read_pages(
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
        let (_guard, plan) = match Reading::prepare(node, offset..offset.saturating_add(length), access)? {
            Reading::Planned(guard, plan) => (guard, plan),
            cached => {
                let data = self.driver.read(node, cached)?;
                pages.part(start..start + data.len()).copy_from_abd(&data);
                return Ok(data.len());
            }
        };
        let mut done = start;
        for piece in plan.pieces() {
            let part = done..done + (piece.range.end - piece.range.start) as usize;
            done = part.end;
            match piece.how {
                How::Direct => node.dnode.read_direct_pages(piece.range.start, pages, part)?,
                How::Buffered { uncached, .. } => {
                    let data = read_buffered(node, piece.range.start, part.len(), uncached)?;
                    pages.part(part).copy_from_abd(&data);
                }
            }
        }
        self.store.note_access(node);
        Ok(done - start)
    }
}
