//! The one allocation type and the two ways to hold a part of it: shared for reading, or owned for writing.
//!
//! Invariants (everything unsafe in this crate rests on them):
//! 1. a byte of an allocation is covered by at most one [`OwnedRange`], and then by no [`SharedRange`];
//! 2. slices are made for a range only, never for the whole allocation, so ranges of one allocation never alias;
//! 3. memory is initialized (zeros) before the first range over it exists;
//! 4. `slab` hands a block to one holder at a time and unmaps a slab only when all its blocks are back;
//! 5. lent memory is looked at only while its lender waits ([`lend`]), and written to only when it was lent for writing;
//! 6. unstable memory (see `shared`) is never seen through a reference: it is copied word by word, or named to the kernel.
#![expect(unsafe_code, reason = "page-aligned allocation for O_DIRECT; disjoint exclusive parts of one allocation")]

use crate::shared;
use crate::slab::{self, Place};
use crate::watch;
use exec::{Exec, WaitQueue};
use std::io::{IoSlice, IoSliceMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Alignment of mappings: the size of a huge page.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

/// Zeroed memory from the system, aligned to and asked for as huge pages; given back on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    pointer: NonNull<u8>,
    size: usize,
    /// True when watchers know it: memory of our own.
    is_told: bool,
}

// SAFETY: a Mapping owns its memory exclusively, like a Box<[u8]>.
unsafe impl Send for Mapping {}
// SAFETY: a Mapping itself gives no access to its bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Address at which the mapping starts.
    pub(crate) fn address(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// Maps `size` bytes, a multiple of the page size.
    #[cfg(not(miri))]
    pub(crate) fn new(size: usize) -> Mapping {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
        let room = size + HUGE_BYTES;
        // SAFETY: a new private mapping at an address of the kernel's choice touches no memory of ours.
        let raw = unsafe { mmap_anonymous(std::ptr::null_mut(), room, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        let Ok(raw) = raw else { std::alloc::handle_alloc_error(slab::layout(size)) };
        let head = raw.cast::<u8>().align_offset(HUGE_BYTES);
        let tail = room - head - size;
        // SAFETY: `head`, `size` and `tail` cut the new mapping into three; the outer two are not used by anybody.
        unsafe {
            let start = raw.cast::<u8>().add(head);
            if head > 0 {
                let _ = munmap(raw, head);
            }
            if tail > 0 {
                let _ = munmap(start.add(size).cast(), tail);
            }
            // Advice only: without huge pages the memory is as good, just slower to fault in.
            let _ = madvise(start.cast(), size, Advice::LinuxHugepage);
            watch::mapped(start.addr(), size);
            Mapping { pointer: NonNull::new_unchecked(start), size, is_told: true }
        }
    }

    /// Allocates `size` bytes (the interpreter knows no partial unmapping).
    #[cfg(miri)]
    pub(crate) fn new(size: usize) -> Mapping {
        // SAFETY: the layout has a non-zero size.
        let raw = unsafe { std::alloc::alloc_zeroed(slab::layout(size)) };
        watch::mapped(raw.addr(), size);
        Mapping { pointer: NonNull::new(raw).expect("the interpreter has memory"), size, is_told: true }
    }

    /// Maps the first `size` bytes of a file, a multiple of the page size, shared with whoever else has the file.
    #[cfg(not(miri))]
    pub(crate) fn of_file(file: rustix::fd::BorrowedFd<'_>, size: usize) -> rustix::io::Result<Mapping> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let raw = unsafe { mmap(std::ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0) }?;
        let pointer = NonNull::new(raw.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Mapping { pointer, size, is_told: false })
    }

    /// The interpreter maps no files.
    #[cfg(miri)]
    pub(crate) fn of_file(_: rustix::fd::BorrowedFd<'_>, _: usize) -> rustix::io::Result<Mapping> {
        Err(rustix::io::Errno::NOSYS)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.is_told {
            watch::unmapping(self.pointer.as_ptr().addr());
        }
        // SAFETY: mapped in `new` or `of_file` with this size; the owner of a mapping knows that no block of it is in use.
        #[cfg(not(miri))]
        unsafe {
            let _ = rustix::mm::munmap(self.pointer.as_ptr().cast(), self.size);
        }
        // SAFETY: allocated in `new` with this layout.
        #[cfg(miri)]
        unsafe {
            std::alloc::dealloc(self.pointer.as_ptr(), slab::layout(self.size));
        }
    }
}

/// One allocation: a block of a slab, or a mapping of its own; looked at only through ranges.
#[derive(Debug)]
struct AlignedBuf {
    pointer: NonNull<u8>,
    home: Home,
}

#[derive(Debug)]
enum Home {
    /// A block of a slab; the slab stays mapped while the block is out.
    Block(Place),
    /// A mapping of its own.
    Own(Option<Mapping>),
    /// Memory of somebody else, who waits for it.
    Lent(Arc<Loan>, Lent),
    /// Memory that others write to at any time; the mapping outlives the range.
    Unstable(#[expect(dead_code, reason = "keeps the memory mapped")] Arc<Mapping>),
}

/// Use that lent memory may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lent {
    ForReading,
    ForWriting,
}

/// Tells the lender when the last range over his memory is gone.
#[derive(Debug, Default)]
struct Loan {
    returned: AtomicBool,
    changed: WaitQueue,
}

// SAFETY: AlignedBuf owns its memory exclusively, like a Box<[u8]>.
unsafe impl Send for AlignedBuf {}
// SAFETY: AlignedBuf itself gives no access; ranges keep readers and the one writer of a byte apart (invariant 1).
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    fn new(length: usize) -> Self {
        if length > slab::BLOCK_BYTES_MAX {
            let mapping = slab::take_mapping(length.next_multiple_of(HUGE_BYTES));
            return AlignedBuf { pointer: mapping.pointer, home: Home::Own(Some(mapping)) };
        }
        slab::take_block(length, |mapping, offset, place| {
            assert!(offset < mapping.size);
            // SAFETY: the offset lies inside the mapping.
            let pointer = unsafe { mapping.pointer.add(offset) };
            AlignedBuf { pointer, home: Home::Block(place) }
        })
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        match &mut self.home {
            Home::Block(place) => slab::return_block(place),
            Home::Own(mapping) => mapping.take().into_iter().for_each(slab::return_mapping),
            Home::Lent(loan, _) => {
                loan.returned.store(true, Ordering::Release);
                loan.changed.notify_all();
            }
            Home::Unstable(_) => {}
        }
    }
}

impl AlignedBuf {
    fn is_unstable(&self) -> bool {
        matches!(self.home, Home::Unstable(_))
    }
    fn is_writable(&self) -> bool {
        !matches!(self.home, Home::Unstable(_) | Home::Lent(_, Lent::ForReading))
    }
}

/// Ends the process when dropped: a wait that unwinds would leave others with memory that is about to go.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Waits until the memory is back, also when the lender's work panics.
struct Lender<'a> {
    exec: &'a Exec,
    loan: Arc<Loan>,
}

impl Drop for Lender<'_> {
    fn drop(&mut self) {
        let bomb = Bomb;
        let loan = &self.loan;
        if !loan.returned.load(Ordering::Acquire) {
            loan.changed.wait_until(self.exec, &|| loan.returned.load(Ordering::Acquire));
        }
        std::mem::forget(bomb);
    }
}

/// Lends `pointer .. pointer + length` to `work`; returns when every range over it is gone.
///
/// # Safety
/// The memory must be initialized, and until this returns nobody else may write to it, nor (with `ForWriting`) read it.
unsafe fn lend<R>(exec: &Exec, pointer: NonNull<u8>, length: usize, lent: Lent, work: impl FnOnce(OwnedRange) -> R) -> R {
    let loan = Arc::<Loan>::default();
    let lender = Lender { exec, loan: loan.clone() };
    let buf = Arc::new(AlignedBuf { pointer, home: Home::Lent(loan, lent) });
    let result = work(OwnedRange { buf, offset: 0, length });
    drop(lender);
    result
}

/// Lends bytes for reading.
pub(crate) fn lend_shared<R>(exec: &Exec, bytes: &[u8], work: impl FnOnce(SharedRange) -> R) -> R {
    // SAFETY: the borrow lasts until `lend` returns and keeps writers away; ranges for reading are never written to.
    unsafe { lend(exec, NonNull::from(bytes).cast(), bytes.len(), Lent::ForReading, |range| work(range.into_shared())) }
}

/// Lends bytes for writing.
pub(crate) fn lend_exclusive<R>(exec: &Exec, bytes: &mut [u8], work: impl FnOnce(OwnedRange) -> R) -> R {
    let length = bytes.len();
    // SAFETY: the exclusive borrow lasts until `lend` returns.
    unsafe { lend(exec, NonNull::from(bytes).cast(), length, Lent::ForWriting, work) }
}

/// An iovec as the system has it, which [`IoSlice`] and [`IoSliceMut`] are by contract.
#[repr(C)]
struct RawSlice {
    base: *const u8,
    length: usize,
}
const _: () = assert!(size_of::<RawSlice>() == size_of::<IoSlice<'_>>() && size_of::<RawSlice>() == size_of::<IoSliceMut<'_>>());

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
        assert!(!self.buf.is_unstable(), "memory that others write to is not lent as a slice");
        // SAFETY: the range lies inside the allocation, is initialized, and no OwnedRange covers it while self lives.
        unsafe { std::slice::from_raw_parts(self.buf.pointer.as_ptr().add(self.offset), self.length) }
    }

    /// True when others may write to the memory at any time.
    pub(crate) fn is_unstable(&self) -> bool {
        self.buf.is_unstable()
    }

    /// Address at which the range starts, for looking at its alignment and for the kernel.
    pub(crate) fn address(&self) -> *const u8 {
        self.buf.pointer.as_ptr().wrapping_add(self.offset)
    }

    /// Copies the bytes from `start` on, as they are now.
    pub(crate) fn copy_to(&self, start: usize, out: &mut [u8]) {
        assert!(start + out.len() <= self.length);
        if self.buf.is_unstable() {
            // SAFETY: inside the mapping that the range keeps; `load` makes no reference to it.
            unsafe { shared::load(self.address().add(start), out) };
        } else {
            out.copy_from_slice(&self.bytes()[start..start + out.len()]);
        }
    }

    /// The range for a vectored write.
    pub(crate) fn io_slice(&self) -> IoSlice<'_> {
        let raw = RawSlice { base: self.address(), length: self.length };
        // SAFETY: IoSlice is an iovec by contract; over unstable memory only the kernel looks at what it names.
        unsafe { std::mem::transmute(raw) }
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
        Arc::get_mut(&mut self.buf).filter(|buf| buf.is_writable())?;
        // SAFETY: self is the only range of this allocation and is borrowed exclusively; the range lies inside it.
        Some(unsafe { std::slice::from_raw_parts_mut(self.buf.pointer.as_ptr().add(self.offset), self.length) })
    }

    /// Exclusive ownership of this range, when no other range of the allocation exists.
    pub(crate) fn into_owned(mut self) -> Result<OwnedRange, SharedRange> {
        match Arc::get_mut(&mut self.buf).filter(|buf| buf.is_writable()) {
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

    /// A range of memory that others write to; `offset + length` must lie in the mapping.
    pub(crate) fn unstable(mapping: Arc<Mapping>, offset: usize, length: usize) -> OwnedRange {
        assert!(offset.checked_add(length).is_some_and(|end| end <= mapping.size), "range outside of the pages");
        let buf = AlignedBuf { pointer: mapping.pointer, home: Home::Unstable(mapping) };
        OwnedRange { buf: Arc::new(buf), offset, length }
    }

    /// True when others may write to the memory at any time.
    pub(crate) fn is_unstable(&self) -> bool {
        self.buf.is_unstable()
    }

    /// Address at which the range starts.
    pub(crate) fn address(&self) -> *const u8 {
        self.buf.pointer.as_ptr().wrapping_add(self.offset)
    }

    /// Overwrites the bytes from `start` on.
    pub(crate) fn copy_from(&mut self, start: usize, bytes: &[u8]) {
        assert!(start + bytes.len() <= self.length);
        if self.buf.is_unstable() {
            // SAFETY: inside the mapping that the range keeps; `store` makes no reference to it.
            unsafe { shared::store(self.buf.pointer.as_ptr().add(self.offset + start), bytes) };
        } else {
            self.bytes_mut()[start..start + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// The range for a vectored read.
    pub(crate) fn io_slice_mut(&mut self) -> IoSliceMut<'_> {
        let raw = RawSlice { base: self.address(), length: self.length };
        // SAFETY: IoSliceMut is an iovec by contract, and self is borrowed exclusively; over unstable memory only the kernel
        // writes to what it names.
        unsafe { std::mem::transmute(raw) }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        assert!(!self.buf.is_unstable(), "memory that others write to is not lent as a slice");
        // SAFETY: inside the allocation, initialized, and only self covers it.
        unsafe { std::slice::from_raw_parts(self.buf.pointer.as_ptr().add(self.offset), self.length) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(!self.buf.is_unstable(), "memory that others write to is not lent as a slice");
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
