//! Pages that others may write to while an I/O uses them: a guest's memory, a mapping shared with another process.
//!
//! Rust's references promise that bytes do not change underneath them; nobody can promise that for such memory. So no
//! reference to it is ever made. It is copied word by word with relaxed atomic loads and stores, or its address is given to
//! the kernel; [`crate::Abd::fold`] hands kernels of computation a small private copy, piece by piece. What was computed from
//! it holds for the bytes seen at that moment, which is why the I/O pipeline checks a direct write after the device has it.
#![expect(unsafe_code, reason = "loads and stores without references to memory that others write to")]

use crate::PAGE_BYTES;
use crate::aligned::{Mapping, OwnedRange};
use rustix::fd::BorrowedFd;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();
/// Type of the file system that ordinary memory files are of (Linux: `TMPFS_MAGIC`).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Bytes up to the first whole word, in whole words, and after them.
fn split(address: usize, length: usize) -> (usize, usize, usize) {
    let head = (address.next_multiple_of(WORD) - address).min(length);
    let words = (length - head) / WORD * WORD;
    (head, words, length - head - words)
}

/// Copies `out.len()` bytes from `source`, each word as it is at some moment.
///
/// # Safety
/// The bytes must be readable and initialized; they may change meanwhile.
pub(crate) unsafe fn load(source: *const u8, out: &mut [u8]) {
    let (head, words, _) = split(source.addr(), out.len());
    let (first, rest) = out.split_at_mut(head);
    let (middle, last) = rest.split_at_mut(words);
    // SAFETY: all addresses lie in the range that the caller vouches for; words are aligned.
    unsafe {
        for (index, byte) in first.iter_mut().enumerate() {
            *byte = (*source.add(index).cast::<AtomicU8>()).load(Ordering::Relaxed);
        }
        let from = source.add(head).cast::<AtomicU64>();
        for (index, word) in middle.as_chunks_mut::<WORD>().0.iter_mut().enumerate() {
            *word = u64::from_le((*from.add(index)).load(Ordering::Relaxed)).to_le_bytes();
        }
        let from = source.add(head + words);
        for (index, byte) in last.iter_mut().enumerate() {
            *byte = (*from.add(index).cast::<AtomicU8>()).load(Ordering::Relaxed);
        }
    }
}

/// Copies `bytes` to `target`, word by word.
///
/// # Safety
/// The bytes must be writable; others may read and write them meanwhile.
pub(crate) unsafe fn store(target: *mut u8, bytes: &[u8]) {
    let (head, words, _) = split(target.addr(), bytes.len());
    let (first, rest) = bytes.split_at(head);
    let (middle, last) = rest.split_at(words);
    // SAFETY: as in `load`.
    unsafe {
        for (index, byte) in first.iter().enumerate() {
            (*target.add(index).cast::<AtomicU8>()).store(*byte, Ordering::Relaxed);
        }
        let to = target.add(head).cast::<AtomicU64>();
        for (index, word) in middle.as_chunks::<WORD>().0.iter().enumerate() {
            (*to.add(index)).store(u64::from_le_bytes(*word).to_le(), Ordering::Relaxed);
        }
        let to = target.add(head + words);
        for (index, byte) in last.iter().enumerate() {
            (*to.add(index).cast::<AtomicU8>()).store(*byte, Ordering::Relaxed);
        }
    }
}

/// Pages that their user may change at any time, also while an I/O of ours uses them; clones are the same pages.
#[derive(Clone, Debug)]
pub struct SharedPages {
    mapping: Arc<Mapping>,
    length: usize,
}

impl SharedPages {
    /// Fresh pages of zeros; `length` is rounded up to whole pages.
    pub fn new(length: usize) -> SharedPages {
        let length = length.max(1).next_multiple_of(PAGE_BYTES);
        SharedPages { mapping: Arc::new(Mapping::new(length)), length }
    }

    /// Pages of a memory file, which whoever else has the file reads and writes too. Bytes that were taken out of the file are zeros again.
    ///
    /// # Errors
    /// `PERM` for a file whose end is not sealed against shrinking (F_SEAL_SHRINK): a look behind it would end the process. `INVAL` for one that is no
    /// ordinary memory file (of huge pages, which may run out), has less than `length` bytes, or for a length that is not whole pages; those of mapping.
    pub fn of_memory_file(file: BorrowedFd<'_>, length: usize) -> rustix::io::Result<SharedPages> {
        // Looked at before the length, which holds from then on.
        if !fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
            return Err(Errno::PERM);
        }
        let is_long = u64::try_from(fstat(file)?.st_size).is_ok_and(|bytes| bytes >= length as u64);
        if !is_long || length == 0 || !length.is_multiple_of(PAGE_BYTES) || fstatfs(file)?.f_type != TMPFS_MAGIC {
            return Err(Errno::INVAL);
        }
        Ok(SharedPages { mapping: Arc::new(Mapping::of_file(file, length)?), length })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Always false; there is at least a page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Changes bytes, perhaps underneath an I/O. Panics outside of the pages.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: checked to lie in the mapping, which self keeps.
        unsafe { store(self.mapping.address().add(offset), bytes) };
    }

    /// The bytes as they are now. Panics outside of the pages.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.check(offset, out.len());
        // SAFETY: checked to lie in the mapping, which self keeps.
        unsafe { load(self.mapping.address().add(offset), out) };
    }

    fn check(&self, offset: usize, length: usize) {
        assert!(offset.checked_add(length).is_some_and(|end| end <= self.length), "{offset}+{length} of {} bytes", self.length);
    }

    /// The range, to be named to the kernel or copied from and to.
    pub(crate) fn range(&self, range: Range<usize>) -> OwnedRange {
        self.check(range.start, range.len());
        OwnedRange::unstable(self.mapping.clone(), range.start, range.len())
    }
}
