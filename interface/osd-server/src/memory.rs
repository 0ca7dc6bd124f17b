//! Memory that a client shares: a file whose length is sealed, read and written as a file; and mapped, where the devices may have its pages themselves.
//!
//! As a file it can do no harm: a page that cannot be had is an error. Mapped, it is memory that others write to at any time. A client may have what is
//! written to its file appended (`O_APPEND`) at any time, too: it must not become longer, or it would take any amount of memory.

use abd::{Abd, SharedPages};
use osd_client::{Piece, Place};
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Number of memories that a connection shares, at most.
pub(crate) const MEMORIES_MAX: u32 = 64;
/// Bytes of a page.
const PAGE: u64 = abd::PAGE_BYTES as u64;

/// Memory that is shared.
pub(crate) struct Memory {
    file: File,
    bytes: u64,
    /// Pages of the file, where what is written is not copied first.
    pages: Option<SharedPages>,
}

/// Memories of a connection, by their numbers.
pub(crate) struct Memories {
    known: BTreeMap<u32, Memory>,
    bytes_max: u64,
}

impl Memories {
    pub(crate) fn new(bytes_max: u64) -> Memories {
        Memories { known: BTreeMap::new(), bytes_max }
    }

    /// Takes memory in under a number that is free.
    pub(crate) fn share(&mut self, number: u32, file: Option<OwnedFd>, bytes: u64, is_direct: bool) -> Result<(), Errno> {
        let file = file.ok_or(Errno::BADF)?;
        if number >= MEMORIES_MAX || bytes == 0 || !bytes.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        if self.known.contains_key(&number) {
            return Err(Errno::EXIST);
        }
        let taken: u64 = self.known.values().map(|memory| memory.bytes).sum();
        let length = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        if bytes > self.bytes_max.saturating_sub(taken) {
            return Err(Errno::NOMEM);
        }
        if !fcntl_get_seals(&file)?.contains(SealFlags::GROW) {
            return Err(Errno::PERM);
        }
        // Mapping it once says all else that has to be known of the file, also where it is not kept mapped.
        let pages = SharedPages::of_memory_file(file.as_fd(), length)?;
        self.known.insert(number, Memory { file: file.into(), bytes, pages: is_direct.then_some(pages) });
        Ok(())
    }

    /// Lets go of memory; what is written of it at this moment keeps it mapped.
    pub(crate) fn unshare(&mut self, number: u32) -> Result<(), Errno> {
        self.known.remove(&number).map(drop).ok_or(Errno::BADF)
    }

    fn at(&self, place: &Place) -> Result<&Memory, Errno> {
        let memory = self.known.get(&place.memory).ok_or(Errno::BADF)?;
        let end = place.offset.checked_add(place.bytes).ok_or(Errno::INVAL)?;
        if end > memory.bytes { Err(Errno::INVAL) } else { Ok(memory) }
    }

    /// Sum of the bytes of pieces, each of which has some, in memory that is shared.
    pub(crate) fn check(&self, pieces: &[Piece], bytes_max: u64) -> Result<u64, Errno> {
        let mut sum = 0u64;
        for piece in pieces {
            if piece.place.bytes == 0 {
                return Err(Errno::INVAL);
            }
            self.at(&piece.place)?;
            sum = sum.saturating_add(piece.place.bytes);
        }
        if sum > bytes_max { Err(Errno::TOOBIG) } else { Ok(sum) }
    }

    /// Pages of a piece themselves, where they may be written from: whole ones, in the object too. They may change at any time.
    pub(crate) fn pages(&self, piece: &Piece) -> Result<Option<Abd>, Errno> {
        let place = &piece.place;
        let memory = self.at(place)?;
        if [piece.offset, place.offset, place.bytes].iter().any(|number| !number.is_multiple_of(PAGE)) {
            return Ok(None);
        }
        // The place lies in the memory, whose length is one of this machine's numbers.
        let range = place.offset as usize..(place.offset + place.bytes) as usize;
        Ok(memory.pages.as_ref().map(|pages| pages.abd(range)))
    }

    /// Copies the bytes of a place.
    pub(crate) fn fetch(&self, place: &Place, out: &mut [u8]) -> Result<(), Errno> {
        self.at(place)?.file.read_exact_at(out, place.offset).map_err(|_| Errno::FAULT)
    }

    /// Copies bytes to the beginning of a place.
    pub(crate) fn store(&self, place: &Place, data: &Abd) -> Result<(), Errno> {
        let memory = self.at(place)?;
        let mut at = place.offset;
        let stored = data.fold((), |(), bytes| {
            memory.file.write_all_at(bytes, at).ok()?;
            at += bytes.len() as u64;
            Some(())
        });
        stored.ok_or(Errno::FAULT)
    }
}
