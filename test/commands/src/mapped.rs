//! A file in memory, as mmap(2) with `MAP_SHARED` gives it to programs: what others do to the file shows in it, what is stored
//! in it becomes the file's.
//!
//! No Rust reference to the memory is ever made, because the kernel and other threads change it: bytes go in and out through
//! volatile accesses.
#![expect(unsafe_code, reason = "mapping a file and touching what others change has no safe form")]

use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::ops::Range;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Bytes of a word of memory.
const WORD: usize = size_of::<u64>();

/// Mapping, shared, of a file's first bytes. Bytes behind the page of the file's end must not be touched: that is a SIGBUS.
#[derive(Debug)]
pub struct Mapped {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and lives until the value is dropped.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Maps the first `bytes` (a multiple of the page size); pages come in one by one, not their neighbours with them.
    pub fn new(file: &File, bytes: usize) -> io::Result<Mapped> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a place where nothing is; nothing of ours is replaced.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
        let mapped = Mapped { start: start.cast(), bytes };
        // SAFETY: the advice changes what is read ahead, never the contents.
        unsafe { rustix::mm::madvise(start, bytes, Advice::Random) }?;
        Ok(mapped)
    }

    fn place(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} of a mapping of {} bytes", self.bytes);
        self.start.wrapping_add(range.start)
    }

    /// Bytes of a range.
    pub fn read(&self, range: Range<usize>) -> Vec<u8> {
        let (start, words) = (self.place(&range), self.words(&range));
        let byte = |at: usize| {
            // SAFETY: `place` checked that the range is inside the mapping, which lives as long as `self`.
            unsafe { start.wrapping_add(at).read_volatile() }
        };
        let mut bytes = Vec::with_capacity(range.len());
        bytes.extend((0..words.start).map(byte));
        for at in words.clone().step_by(WORD) {
            // SAFETY: as above, and `words` has offsets at which a word begins.
            let word = unsafe { start.wrapping_add(at).cast::<u64>().read_volatile() };
            bytes.extend_from_slice(&u64::from_le(word).to_le_bytes());
        }
        bytes.extend((words.end..range.len()).map(byte));
        bytes
    }

    /// Stores bytes.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let range = at..at + bytes.len();
        let (start, words) = (self.place(&range), self.words(&range));
        for index in (0..words.start).chain(words.end..bytes.len()) {
            // SAFETY: `place` checked that the range is inside the mapping, which lives as long as `self`.
            unsafe { start.wrapping_add(index).write_volatile(bytes[index]) };
        }
        for (index, word) in bytes[words.clone()].as_chunks::<WORD>().0.iter().enumerate() {
            let to = start.wrapping_add(words.start + index * WORD).cast::<u64>();
            // SAFETY: as above, and `words` has offsets at which a word begins.
            unsafe { to.write_volatile(u64::from_le_bytes(*word).to_le()) };
        }
    }

    /// Part of a range, as offsets in it, that is whole words of memory: byte by byte, programs that are compiled quickly take long.
    fn words(&self, range: &Range<usize>) -> Range<usize> {
        let head = self.place(range).align_offset(WORD).min(range.len());
        head..head + (range.len() - head) / WORD * WORD
    }

    /// Waits until what was stored in the pages of a range is the file's (msync with `MS_SYNC`).
    pub fn sync(&self, range: Range<usize>) -> io::Result<()> {
        let pages = range.start / PAGE * PAGE..range.end.next_multiple_of(PAGE).min(self.bytes);
        let start = self.place(&pages);
        // SAFETY: the range is inside the mapping; its contents don't change.
        Ok(unsafe { rustix::mm::msync(start.cast(), pages.len(), MsyncFlags::SYNC) }?)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into the mapping; it is ours and unmapped once.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.bytes) };
    }
}
