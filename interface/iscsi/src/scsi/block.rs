//! Commands that read, write, compare, fill and unmap blocks (SBC-3), over the port of the unit.

use crate::bytes::{be8, be16, be32, be64};
use crate::scsi::disk::{Disk, Nexus};
use crate::scsi::inquiry::{COMPARE_BLOCKS_MAX, SAME_BLOCKS_MAX, TRANSFER_BYTES_MAX, UNMAP_BLOCKS_MAX, UNMAP_DESCRIPTORS_MAX};
use crate::scsi::sense::{Fault, Sense};
use crate::scsi::table::{Entry, Kind};
use crate::unit::{Extent, Geometry, UnitError, ask};
use abd::{Abd, AbdPart};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Length in bytes of the pieces that long work is done in; a task that is aborted ends between two.
const PIECE_BYTES: u64 = 1024 * 1024;

/// A command on blocks whose range was checked.
pub(crate) struct Work<'a> {
    pub(crate) nexus: &'a Nexus,
    pub(crate) entry: &'static Entry,
    pub(crate) cdb: &'a [u8; 16],
    pub(crate) geometry: Geometry,
    pub(crate) is_aborted: &'a AtomicBool,
}

/// Blocks of a command and the bytes that the initiator is to send for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u64,
    pub(crate) blocks: u64,
    pub(crate) out_bytes: u64,
}

/// Checks the range of a command on blocks before any data come.
pub(crate) fn check(entry: &Entry, cdb: &[u8; 16], geometry: &Geometry, sent_bytes: u64) -> Result<Span, Fault> {
    let block = u64::from(geometry.block_bytes);
    let (first, mut blocks) = entry.span(cdb);
    let mut limit = TRANSFER_BYTES_MAX / block;
    match entry.kind {
        Kind::CompareWrite => {
            blocks = u64::from(cdb[13]);
            limit = COMPARE_BLOCKS_MAX;
            // What is compared and what is written, both.
            if sent_bytes != 2 * blocks * block {
                return Err(Sense::FIELD_IN_CDB.into());
            }
        }
        Kind::WriteSame | Kind::Prefetch | Kind::Synchronize => limit = u64::MAX,
        _ => {}
    }
    if first >= geometry.blocks || blocks > geometry.blocks - first {
        return Err(Sense::OUT_OF_RANGE.into());
    }
    if entry.kind == Kind::WriteSame {
        blocks = if blocks == 0 { geometry.blocks - first } else { blocks };
        limit = SAME_BLOCKS_MAX;
        let has_data = !has_no_data(entry, cdb);
        let is_unmapping = cdb[1] & 0x08 != 0;
        if (is_unmapping && !geometry.is_thin) || (has_data && sent_bytes != block) {
            return Err(Sense::FIELD_IN_CDB.into());
        }
    }
    if blocks > limit {
        return Err(Sense::FIELD_IN_CDB.into());
    }
    let out_bytes = match entry.kind {
        Kind::Write | Kind::WriteVerify | Kind::OrWrite => blocks * block,
        Kind::CompareWrite => 2 * blocks * block,
        Kind::WriteSame if !has_no_data(entry, cdb) => block,
        Kind::Verify if byte_check(cdb) == 1 => blocks * block,
        Kind::Verify if byte_check(cdb) == 3 => block,
        Kind::Verify if byte_check(cdb) == 2 => return Err(Sense::FIELD_IN_CDB.into()),
        _ => 0,
    };
    if entry.kind == Kind::WriteVerify && byte_check(cdb) > 1 {
        return Err(Sense::FIELD_IN_CDB.into());
    }
    Ok(Span { first, blocks, out_bytes })
}

fn byte_check(cdb: &[u8; 16]) -> u8 {
    cdb[1] >> 1 & 3
}

/// True for WRITE SAME(16) without a block of data (NDOB).
fn has_no_data(entry: &Entry, cdb: &[u8; 16]) -> bool {
    entry.usage.len() == 16 && cdb[1] & 1 != 0
}

impl Work<'_> {
    fn disk(&self) -> &Disk {
        &self.nexus.disk
    }

    fn block(&self) -> u64 {
        u64::from(self.geometry.block_bytes)
    }

    fn extent(&self, span: Span) -> Extent {
        Extent { at: span.first * self.block(), bytes: span.blocks * self.block() }
    }

    fn fault(&self, error: UnitError) -> Fault {
        Fault::of_unit(error, self.geometry.block_bytes)
    }

    /// True when a write has to be durable before it is answered: FUA, or no write cache.
    fn is_durable(&self) -> bool {
        let has_fua = matches!(self.entry.kind, Kind::Write | Kind::CompareWrite | Kind::OrWrite) && self.entry.usage.len() > 6;
        (has_fua && self.cdb[1] & 0x08 != 0) || !self.disk().modes.has_write_cache.load(Ordering::Relaxed)
    }

    async fn read_extent(&self, extent: Extent) -> Result<Abd, Fault> {
        let data = ask(|done| self.disk().unit.read(extent, done)).await.map_err(|error| self.fault(error))?;
        // A unit that gives something else than it was asked for must not shift what the initiator sees.
        if data.len() as u64 == extent.bytes { Ok(data) } else { Err(Sense::FAILED.into()) }
    }

    async fn write_at(&self, at: u64, data: Abd, is_durable: bool) -> Result<(), Fault> {
        ask(|done| self.disk().unit.write(at, data, is_durable, done)).await.map_err(|error| self.fault(error))
    }

    /// Pieces of an extent.
    fn pieces(extent: Extent) -> impl Iterator<Item = Extent> {
        let end = extent.at + extent.bytes;
        (extent.at..end).step_by(PIECE_BYTES as usize).map(move |at| Extent { at, bytes: PIECE_BYTES.min(end - at) })
    }

    fn go_on(&self) -> Result<(), Fault> {
        // Whoever aborted the task does not see this.
        if self.is_aborted.load(Ordering::Relaxed) { Err(Sense::FAILED.into()) } else { Ok(()) }
    }

    fn range(span: Span) -> Range<u64> {
        span.first..span.first + span.blocks
    }

    /// Carries out a READ.
    pub(crate) async fn read(&self, span: Span) -> Result<Abd, Fault> {
        if span.blocks == 0 {
            return Ok(Abd::default());
        }
        // FUA asks for what is on the medium: what is in a cache must be there, too.
        if self.entry.usage.len() > 6 && self.cdb[1] & 0x08 != 0 {
            ask(|done| self.disk().unit.flush(done)).await.map_err(|error| self.fault(error))?;
        }
        self.read_extent(self.extent(span)).await
    }

    /// Carries out a WRITE or WRITE AND VERIFY of the whole blocks of `data`.
    pub(crate) async fn write(&self, span: Span, data: Abd) -> Result<(), Fault> {
        let whole = (data.len() as u64 / self.block()).min(span.blocks);
        if whole == 0 {
            return Ok(());
        }
        let data = data.slice(0..(whole * self.block()) as usize);
        let span = Span { blocks: whole, ..span };
        let verifies = self.entry.kind == Kind::WriteVerify;
        let held = self.disk().ranges.shared(self.nexus.session, Self::range(span)).await;
        self.write_at(span.first * self.block(), data.clone(), verifies || self.is_durable()).await?;
        drop(held);
        if verifies {
            let stored = self.read_extent(self.extent(span)).await?;
            if byte_check(self.cdb) == 1 {
                compare(&stored, &data)?;
            }
        }
        Ok(())
    }

    /// Carries out a VERIFY: reads, and compares with what was sent.
    pub(crate) async fn verify(&self, span: Span, data: Abd) -> Result<(), Fault> {
        match byte_check(self.cdb) {
            0 => {
                for piece in Self::pieces(self.extent(span)) {
                    self.go_on()?;
                    self.read_extent(piece).await?;
                }
            }
            1 if span.blocks > 0 => {
                let stored = self.read_extent(self.extent(span)).await?;
                if data.len() < stored.len() {
                    return Err(Sense::WRONG_AMOUNT.into());
                }
                compare(&stored, &data.slice(0..stored.len()))?;
            }
            3 if span.blocks > 0 => {
                let stored = self.read_extent(self.extent(span)).await?;
                let block = self.geometry.block_bytes as usize;
                if data.len() < block {
                    return Err(Sense::WRONG_AMOUNT.into());
                }
                for at in (0..stored.len()).step_by(block) {
                    compare(&stored.slice(at..at + block), &data.slice(0..block))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Carries out a COMPARE AND WRITE: nobody writes to the range between the two.
    pub(crate) async fn compare_and_write(&self, span: Span, data: Abd) -> Result<(), Fault> {
        let half = (span.blocks * self.block()) as usize;
        if span.blocks == 0 {
            return Ok(());
        }
        if data.len() < 2 * half {
            return Err(Sense::WRONG_AMOUNT.into());
        }
        let _held = self.disk().ranges.exclusive(Self::range(span)).await;
        let stored = self.read_extent(self.extent(span)).await?;
        compare(&stored, &data.slice(0..half))?;
        self.write_at(span.first * self.block(), data.slice(half..2 * half), self.is_durable()).await
    }

    /// Carries out an ORWRITE: sets bits of what is stored.
    pub(crate) async fn or_write(&self, span: Span, data: Abd) -> Result<(), Fault> {
        let bytes = (span.blocks * self.block()) as usize;
        if span.blocks == 0 {
            return Ok(());
        }
        if data.len() < bytes {
            return Err(Sense::WRONG_AMOUNT.into());
        }
        let _held = self.disk().ranges.exclusive(Self::range(span)).await;
        let stored = self.read_extent(self.extent(span)).await?;
        let mut part = AbdPart::scratch(bytes);
        part.copy_from_abd(&stored);
        let sent = data.slice(0..bytes).to_vec();
        part.iter_mut().zip(sent).for_each(|(byte, bits)| *byte |= bits);
        self.write_at(span.first * self.block(), part.freeze(), self.is_durable()).await
    }

    /// Carries out a WRITE SAME: zeros without writing them, anything else piece by piece.
    pub(crate) async fn write_same(&self, span: Span, data: Abd) -> Result<(), Fault> {
        let extent = self.extent(span);
        let block = self.block();
        if !has_no_data(self.entry, self.cdb) && (data.len() as u64) < block {
            return Err(Sense::WRONG_AMOUNT.into());
        }
        let is_zero = has_no_data(self.entry, self.cdb) || data.slice(0..block as usize).is_zero();
        let may_unmap = self.cdb[1] & 0x08 != 0;
        let _held = self.disk().ranges.shared(self.nexus.session, Self::range(span)).await;
        if is_zero {
            let start = |done| self.disk().unit.write_zeroes(extent, may_unmap, self.is_durable(), done);
            return ask(start).await.map_err(|error| self.fault(error));
        }
        let pattern = data.slice(0..block as usize);
        let copies = (PIECE_BYTES.min(extent.bytes) / block) as usize;
        let mut part = AbdPart::scratch(copies * block as usize);
        for at in 0..copies {
            pattern.copy_to(0, &mut part[at * block as usize..(at + 1) * block as usize]);
        }
        let piece_data = part.freeze();
        for piece in Self::pieces(extent) {
            self.go_on()?;
            self.write_at(piece.at, piece_data.slice(0..piece.bytes as usize), self.is_durable()).await?;
        }
        Ok(())
    }

    /// Carries out SYNCHRONIZE CACHE.
    pub(crate) async fn synchronize(&self) -> Result<(), Fault> {
        ask(|done| self.disk().unit.flush(done)).await.map_err(|error| self.fault(error))
    }

    /// Carries out PRE-FETCH.
    pub(crate) fn prefetch(&self, span: Span) {
        let blocks = if span.blocks == 0 { self.geometry.blocks - span.first } else { span.blocks };
        let bytes = (blocks * self.block()).min(TRANSFER_BYTES_MAX);
        self.disk().unit.prefetch(Extent { at: span.first * self.block(), bytes });
    }

    /// Carries out UNMAP with its parameter list (SBC-3).
    pub(crate) async fn unmap(&self, list: &[u8]) -> Result<(), Fault> {
        if be16(self.cdb, 7) == 0 {
            return Ok(());
        }
        if list.len() < 8 {
            return Err(Sense::PARAMETER_LENGTH.into());
        }
        let described = usize::from(be16(list, 2));
        let descriptors = list[8..].get(..described.min(list.len() - 8)).unwrap_or_default();
        let extents = self.extents(descriptors)?;
        if extents.is_empty() {
            return Ok(());
        }
        let block = self.block();
        // One range over all of them: who holds one and waits for the next waits for somebody that waits for it.
        let first = extents.iter().map(|extent| extent.at).min().unwrap_or_default();
        let end = extents.iter().map(|extent| extent.at + extent.bytes).max().unwrap_or_default();
        let _held = self.disk().ranges.shared(self.nexus.session, first / block..end / block).await;
        ask(|done| self.disk().unit.unmap(extents, done)).await.map_err(|error| self.fault(error))
    }

    fn extents(&self, descriptors: &[u8]) -> Result<Vec<Extent>, Fault> {
        let block = self.block();
        let mut extents = Vec::new();
        let mut total = 0u64;
        if (descriptors.len() / 16) as u64 > UNMAP_DESCRIPTORS_MAX {
            return Err(Sense::FIELD_IN_PARAMETERS.into());
        }
        for descriptor in descriptors.chunks_exact(16) {
            let (first, blocks) = (be64(descriptor, 0), u64::from(be32(descriptor, 8)));
            if first > self.geometry.blocks || blocks > self.geometry.blocks - first {
                return Err(Sense::OUT_OF_RANGE.into());
            }
            total += blocks;
            if total > UNMAP_BLOCKS_MAX {
                return Err(Sense::FIELD_IN_PARAMETERS.into());
            }
            if blocks > 0 {
                extents.push(Extent { at: first * block, bytes: blocks * block });
            }
        }
        Ok(extents)
    }
}

/// Fails with the offset of the first byte that differs; both have the same length.
fn compare(stored: &Abd, sent: &Abd) -> Result<(), Fault> {
    let sent = sent.to_contiguous();
    let sent = sent.as_contiguous().unwrap_or_default();
    let mut at = 0;
    let mut different = None;
    stored.fold((), |(), bytes| {
        let other = sent.get(at..at + bytes.len()).unwrap_or_default();
        if other != bytes {
            let offset = bytes.iter().zip(other).position(|(a, b)| a != b).unwrap_or(other.len());
            different = Some((at + offset) as u64);
            return None;
        }
        at += bytes.len();
        Some(())
    });
    match different {
        Some(offset) => Err(Sense::MISCOMPARE.at(offset).into()),
        None => Ok(()),
    }
}

/// Length in bytes of the parameter list of a command that has one.
pub(crate) fn list_bytes(entry: &Entry, cdb: &[u8; 16]) -> u64 {
    match (entry.kind, entry.usage.len()) {
        (Kind::ModeSelect, 6) => u64::from(be8(cdb, 4)),
        (Kind::ModeSelect | Kind::Unmap, _) => u64::from(be16(cdb, 7)),
        (Kind::PersistentOut, _) => u64::from(be32(cdb, 5)),
        _ => 0,
    }
}
