//! The one allocation type and the two ways to hold a part of it: shared for reading, or owned for writing.
//!
//! Invariants (everything unsafe in this crate rests on them):
//! 1. a byte of an allocation is covered by at most one [`OwnedRange`], and then by no [`SharedRange`];
//! 2. slices are made for a range only, never for the whole allocation, so ranges of one allocation never alias;
//! 3. memory is initialized (zeros) before the first range over it exists.
#![expect(unsafe_code, reason = "page-aligned allocation for O_DIRECT; disjoint exclusive parts of one allocation")]

use crate::PAGE_BYTES;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

/// Owned page-aligned memory; looked at only through ranges.
#[derive(Debug)]
struct AlignedBuf {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: AlignedBuf owns its memory exclusively, like a Box<[u8]>.
unsafe impl Send for AlignedBuf {}
// SAFETY: AlignedBuf itself gives no access; ranges keep readers and the one writer of a byte apart (invariant 1).
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    fn new(length: usize) -> Self {
        let size = length.max(1).next_multiple_of(PAGE_BYTES);
        let layout = Layout::from_size_align(size, PAGE_BYTES).expect("the size is far below isize::MAX");
        // SAFETY: the layout has a non-zero size.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(raw) else { handle_alloc_error(layout) };
        AlignedBuf { pointer, layout }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
    }
}

/// A readable part of an allocation; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedRange {
    buf: Arc<AlignedBuf>,
    offset: usize,
    length: usize,
}

impl SharedRange {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range lies inside the allocation, is initialized, and no OwnedRange covers it while self lives.
        unsafe { std::slice::from_raw_parts(self.buf.pointer.as_ptr().add(self.offset), self.length) }
    }

    /// The part `start..end` of this range.
    pub(crate) fn slice(&self, start: usize, end: usize) -> SharedRange {
        assert!(start <= end && end <= self.length, "range {start}..{end} of {}", self.length);
        SharedRange { buf: self.buf.clone(), offset: self.offset + start, length: end - start }
    }

    /// True when `next` continues this range in the same allocation.
    pub(crate) fn is_followed_by(&self, next: &SharedRange) -> bool {
        Arc::ptr_eq(&self.buf, &next.buf) && self.offset + self.length == next.offset
    }

    /// Makes this range longer by `next`, which must follow it.
    pub(crate) fn append(&mut self, next: SharedRange) {
        assert!(self.is_followed_by(&next), "only adjacent ranges of one allocation join");
        self.length += next.length;
    }

    /// The bytes for writing, when no other range of the allocation exists.
    pub(crate) fn get_mut(&mut self) -> Option<&mut [u8]> {
        Arc::get_mut(&mut self.buf)?;
        // SAFETY: self is the only range of this allocation and is borrowed exclusively; the range lies inside it.
        Some(unsafe { std::slice::from_raw_parts_mut(self.buf.pointer.as_ptr().add(self.offset), self.length) })
    }

    /// Exclusive ownership of this range, when no other range of the allocation exists.
    pub(crate) fn into_owned(mut self) -> Result<OwnedRange, SharedRange> {
        match Arc::get_mut(&mut self.buf) {
            Some(_) => Ok(OwnedRange { buf: self.buf, offset: self.offset, length: self.length }),
            None => Err(self),
        }
    }
}

/// A writable part of an allocation that nobody else can see.
#[derive(Debug)]
pub(crate) struct OwnedRange {
    buf: Arc<AlignedBuf>,
    offset: usize,
    length: usize,
}

impl OwnedRange {
    /// A fresh allocation of `length` bytes with unspecified (initialized) contents.
    pub(crate) fn allocate(length: usize) -> OwnedRange {
        OwnedRange { buf: Arc::new(AlignedBuf::new(length)), offset: 0, length }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: inside the allocation, initialized, and only self covers it.
        unsafe { std::slice::from_raw_parts(self.buf.pointer.as_ptr().add(self.offset), self.length) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.buf.pointer.as_ptr().add(self.offset), self.length) }
    }

    /// Two disjoint parts that together are this one.
    pub(crate) fn split_at(self, middle: usize) -> (OwnedRange, OwnedRange) {
        assert!(middle <= self.length, "split at {middle} of {}", self.length);
        let tail = OwnedRange { buf: self.buf.clone(), offset: self.offset + middle, length: self.length - middle };
        (OwnedRange { length: middle, ..self }, tail)
    }

    /// Gives up exclusivity.
    pub(crate) fn into_shared(self) -> SharedRange {
        SharedRange { buf: self.buf, offset: self.offset, length: self.length }
    }
}
