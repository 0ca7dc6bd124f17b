//! The file of an arena: a ring of bytes behind the header, addressed by positions that only grow.

use super::facts::ArenaError;
use super::layout::{ENTRY_BYTES, Entry, Header, RING_START};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::{Errno, pread, pwrite, pwritev};
use std::io::IoSlice;

/// Least and most bytes of an arena.
const BYTES_MIN: u64 = 64 << 10;
const BYTES_MAX: u64 = 64 << 30;
/// Buffers that the system takes at once.
const BUFFERS_MAX: usize = 1024;
/// Bytes of a page: what is given back to the system are whole ones.
const PAGE_BYTES: u64 = 4096;

/// File of an arena.
#[derive(Debug)]
pub(super) struct Store {
    pub file: OwnedFd,
    /// Bytes of the file.
    pub size: u64,
}

impl Store {
    /// Makes a file of so many bytes, which nobody can make shorter.
    pub(super) fn create(bytes: u64) -> Result<Store, ArenaError> {
        let size = bytes.clamp(BYTES_MIN, BYTES_MAX);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Older kernels do not know that it is nothing to be executed.
        let made = memfd_create("zirconia-arena", flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| memfd_create("zirconia-arena", flags));
        let file = made.map_err(ArenaError::System)?;
        ftruncate(&file, size).map_err(ArenaError::System)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(ArenaError::System)?;
        Ok(Store { file, size })
    }

    /// Takes a file that somebody else made; what it says of itself has its length.
    pub(super) fn open(file: OwnedFd) -> Result<(Store, Header), ArenaError> {
        let size = fstat(&file).map_err(ArenaError::System)?.st_size as u64;
        if !(BYTES_MIN..=BYTES_MAX).contains(&size) {
            return Err(ArenaError::Unsound("it has the length of none"));
        }
        let store = Store { file, size };
        let mut before = vec![0; RING_START as usize];
        store.read_file(0, &mut before)?;
        let header = Header::newest(&before)?;
        if header.size == size { Ok((store, header)) } else { Err(ArenaError::Unsound("its length is another one")) }
    }

    /// Bytes of the ring.
    pub(super) fn capacity(&self) -> u64 {
        self.size - RING_START
    }

    fn read_file(&self, mut at: u64, mut out: &mut [u8]) -> Result<(), ArenaError> {
        while !out.is_empty() {
            match pread(&self.file, &mut *out, at) {
                Ok(0) => return Err(ArenaError::Unsound("it is shorter than it was")),
                Ok(count) => {
                    out = &mut out[count..];
                    at += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(ArenaError::System(errno)),
            }
        }
        Ok(())
    }

    /// Reads from a position, around the end of the ring.
    pub(super) fn read(&self, position: u64, out: &mut [u8]) -> Result<(), ArenaError> {
        let at = position % self.capacity();
        let first = (self.capacity() - at).min(out.len() as u64) as usize;
        let (head, rest) = out.split_at_mut(first);
        self.read_file(RING_START + at, head)?;
        self.read_file(RING_START, rest)
    }

    /// Writes an entry: what comes before its payload, and that. False when the system has no memory for it; what is there is no entry then.
    pub(super) fn write(&self, entry: &Entry, head: &[u8; ENTRY_BYTES], payload: &[&[u8]]) -> bool {
        let at = entry.position % self.capacity();
        if at + Entry::bytes_with(entry.length) <= self.capacity() && payload.len() < BUFFERS_MAX {
            let mut slices = Vec::with_capacity(payload.len() + 1);
            slices.push(IoSlice::new(head));
            slices.extend(payload.iter().map(|part| IoSlice::new(part)));
            let wanted = ENTRY_BYTES as u64 + entry.length;
            return pwritev(&self.file, &slices, RING_START + at).is_ok_and(|written| written as u64 == wanted);
        }
        let mut position = entry.position + ENTRY_BYTES as u64;
        for part in payload {
            if !self.write_around(position, part) {
                return false;
            }
            position += part.len() as u64;
        }
        self.write_around(entry.position, head)
    }

    fn write_around(&self, position: u64, bytes: &[u8]) -> bool {
        let at = position % self.capacity();
        let (head, rest) = bytes.split_at((self.capacity() - at).min(bytes.len() as u64) as usize);
        self.write_file(RING_START + at, head) && self.write_file(RING_START, rest)
    }

    fn write_file(&self, mut at: u64, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match pwrite(&self.file, bytes, at) {
                Ok(count) if count > 0 => {
                    bytes = &bytes[count..];
                    at += count as u64;
                }
                Err(Errno::INTR) => {}
                _ => return false,
            }
        }
        true
    }

    /// Writes the header, beside the one before.
    pub(super) fn write_header(&self, header: &Header) -> bool {
        self.write_file(header.place(), &header.encode())
    }

    /// Gives the memory of a range of positions back to the system, but for its ends.
    pub(super) fn give_back(&self, from: u64, to: u64) {
        let mut from = from;
        while from < to {
            let at = from % self.capacity();
            let end = (at + (to - from)).min(self.capacity());
            from += end - at;
            let (start, end) = ((RING_START + at).next_multiple_of(PAGE_BYTES), (RING_START + end) / PAGE_BYTES * PAGE_BYTES);
            if start < end {
                // It only takes room if that fails.
                let _ = fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, start, end - start);
            }
        }
    }
}
