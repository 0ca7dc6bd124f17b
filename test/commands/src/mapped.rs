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
        let start = self.place(&range);
        // SAFETY: `place` checked that the range is inside the mapping, which lives as long as `self`.
        (0..range.len()).map(|at| unsafe { start.wrapping_add(at).read_volatile() }).collect()
    }

    /// Stores bytes.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let start = self.place(&(at..at + bytes.len()));
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: `place` checked that the range is inside the mapping, which lives as long as `self`.
            unsafe { start.wrapping_add(index).write_volatile(*byte) };
        }
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
