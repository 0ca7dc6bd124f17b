//! The one allocation type: page-aligned memory that is always initialized, recycled through per-size free lists.
#![expect(unsafe_code, reason = "page-aligned allocation for O_DIRECT; one type, one Drop")]

use crate::PAGE_BYTES;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Owned page-aligned bytes.
#[derive(Debug)]
pub(crate) struct AlignedBuf {
    pointer: NonNull<u8>,
    length: usize,
    layout: Layout,
}

// SAFETY: AlignedBuf owns its memory exclusively, like a Box<[u8]>.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access is read-only; writes need `&mut`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    pub(crate) fn new(length: usize) -> Self {
        let size = length.max(1).next_multiple_of(PAGE_BYTES);
        let layout = Layout::from_size_align(size, PAGE_BYTES).expect("the size is far below isize::MAX");
        // SAFETY: the layout has a non-zero size.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(raw) else { handle_alloc_error(layout) };
        AlignedBuf { pointer, length, layout }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: `pointer` is valid for `length` initialized bytes while self lives.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.length) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.length) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
    }
}
