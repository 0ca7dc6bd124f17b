//! Owned handles to device memory, rows and stores. Dropping the last one gives the memory back, to an [`Owner`] of which nothing else is known
//! here.
//!
//! A [`View`] keeps its buffer's memory alive, memory keeps its generation of the provider, so nothing a handle names can go
//! away under it (in DPUSM a handle has no count, and a sub-range does not keep its parent). Once the provider is dead, giving back
//! is no call any more: the device took its memory with it.

use crate::{OpError, StoreKind};
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most data columns of a row (as `kernels::raidz`).
pub const DATA_COLUMNS_MAX: usize = kernels::raidz::DATA_COLUMNS_MAX;
/// Most parity columns of a row.
pub const PARITY_MAX: usize = kernels::raidz::PARITY_MAX;

/// Handle by which a provider knows a buffer or store: a value of the provider's own type, which only it looks into.
pub struct DeviceHandle(Box<dyn Any + Send + Sync>);

impl DeviceHandle {
    /// Wraps the provider's own value.
    pub fn new<T: Any + Send + Sync>(own: T) -> DeviceHandle {
        DeviceHandle(Box::new(own))
    }

    /// The provider's own value; None when the handle is of another type, so of another provider.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }

    /// The provider's own value, by value.
    pub fn into_own<T: Any>(self) -> Option<T> {
        self.0.downcast().ok().map(|own| *own)
    }
}

impl fmt::Debug for DeviceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceHandle")
    }
}

/// Port: the generation of a provider that gave out what handles stand for, and takes it back.
pub(crate) trait Owner: Send + Sync {
    /// The provider's name.
    fn name(&self) -> &str;
    /// Takes a buffer back.
    fn give_back(&self, handle: DeviceHandle);
    /// Closes a store.
    fn close(&self, handle: DeviceHandle);
}

/// Device memory, with what it takes to give it back.
pub(crate) struct Memory {
    pub(crate) owner: Arc<dyn Owner>,
    /// Handle of the memory, until it is dropped.
    handle: Option<DeviceHandle>,
    bytes: usize,
    /// True when a graph that uses it was given up while the provider had not finished.
    abandoned: AtomicBool,
}

impl Memory {
    pub(crate) fn new(owner: Arc<dyn Owner>, handle: DeviceHandle, bytes: usize) -> Memory {
        Memory { owner, handle: Some(handle), bytes, abandoned: AtomicBool::new(false) }
    }

    /// A view of all of it.
    pub(crate) fn whole(self: &Arc<Memory>) -> View {
        View { memory: self.clone(), offset: 0, bytes: self.bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.owner.give_back(handle);
        }
    }
}

/// A part of a buffer, which it keeps alive.
#[derive(Clone)]
pub struct View {
    pub(crate) memory: Arc<Memory>,
    offset: usize,
    bytes: usize,
}

impl View {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// True when there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Offset of the view in its buffer, in bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// A part of this part.
    ///
    /// # Errors
    /// `Invalid` when the range is not inside.
    pub fn slice(&self, range: Range<usize>) -> Result<View, OpError> {
        if range.start > range.end || range.end > self.bytes {
            return Err(OpError::Invalid);
        }
        Ok(View { memory: self.memory.clone(), offset: self.offset + range.start, bytes: range.end - range.start })
    }

    /// The provider's own handle of the whole buffer; [`View::offset`] and [`View::len`] say which part is meant.
    pub fn handle(&self) -> &DeviceHandle {
        self.memory.handle.as_ref().expect("memory keeps its handle until it is dropped")
    }

    /// True when both are parts of one buffer.
    pub fn is_same_buffer(&self, other: &View) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    /// True when the two have bytes in common.
    pub fn overlaps(&self, other: &View) -> bool {
        self.is_same_buffer(other) && self.offset < other.offset + other.bytes && other.offset < self.offset + self.bytes
    }

    /// Refuses an operand that graphs for `owner` may not use.
    pub(crate) fn check(&self, owner: &Arc<dyn Owner>) -> Result<(), OpError> {
        if !Arc::ptr_eq(&self.memory.owner, owner) {
            return Err(OpError::Mismatch);
        }
        if self.memory.abandoned.load(Ordering::Acquire) { Err(OpError::Abandoned) } else { Ok(()) }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({}+{} of {} bytes)", self.offset, self.bytes, self.memory.bytes)
    }
}

/// One row of RAID-Z: parity columns first (P, Q, R), then data columns, as views, so that a data column can be part of the buffer
/// of a block, at any offset (rows after the first too).
#[derive(Clone, Debug)]
pub struct RaidContext {
    columns: Vec<View>,
    parity: usize,
}

impl RaidContext {
    /// A row of these columns.
    ///
    /// # Errors
    /// `Invalid` for no or too many columns, and for parity that is not as long as the longest data column; `Mismatch` when they
    /// are not all of one provider.
    pub fn new(parity: Vec<View>, data: Vec<View>) -> Result<RaidContext, OpError> {
        let parities = parity.len();
        let mut columns = parity;
        columns.extend(data);
        RaidContext { columns, parity: parities }.checked()
    }

    fn checked(self) -> Result<RaidContext, OpError> {
        let (parity, data) = (self.parity(), self.data());
        if !(1..=PARITY_MAX).contains(&parity.len()) || !(1..=DATA_COLUMNS_MAX).contains(&data.len()) {
            return Err(OpError::Invalid);
        }
        let longest = data.iter().map(View::len).max().unwrap_or(0);
        if parity.iter().any(|column| column.len() != longest) {
            return Err(OpError::Invalid);
        }
        let first = &self.columns[0].memory.owner;
        if self.columns.iter().any(|column| !Arc::ptr_eq(&column.memory.owner, first)) {
            return Err(OpError::Mismatch);
        }
        Ok(self)
    }

    /// Makes the same row with another column in place `index` (parity first).
    ///
    /// # Errors
    /// As [`RaidContext::new`]; `Invalid` when there is no such column.
    pub fn with_column(mut self, index: usize, column: View) -> Result<RaidContext, OpError> {
        *self.columns.get_mut(index).ok_or(OpError::Invalid)? = column;
        self.checked()
    }

    /// All columns, parity first.
    pub fn columns(&self) -> &[View] {
        &self.columns
    }

    /// The parity columns.
    pub fn parity(&self) -> &[View] {
        &self.columns[..self.parity]
    }

    /// The data columns.
    pub fn data(&self) -> &[View] {
        &self.columns[self.parity..]
    }

    /// Number of parity columns.
    pub fn parities(&self) -> usize {
        self.parity
    }
}

/// Called once with the outcome of a write or flush: errno on failure.
pub type HostDone = Box<dyn FnOnce(Result<(), i32>) + Send>;

/// Called once with the bytes that were read: errno on failure.
pub type HostRead = Box<dyn FnOnce(Result<abd::Abd, i32>) + Send>;

/// Port: the host's way to a file or disk, for providers that cannot reach it by themselves. The engine implements it.
pub trait HostStore: Send + Sync {
    /// Reads `bytes` bytes from `offset` on; `done` is called once, perhaps before this returns. Must not wait. A way that is for writes only
    /// refuses.
    fn read(&self, offset: u64, bytes: usize, done: HostRead) {
        let _ = (offset, bytes);
        done(Err(ENOTSUP));
    }

    /// Writes `data` at `offset` bytes; `done` is called once, perhaps before this returns. Must not wait.
    fn write(&self, offset: u64, data: abd::Abd, done: HostDone);
    /// Makes what was written durable.
    fn flush(&self, done: HostDone);
}

/// Errno of what is not supported: ENOTSUP.
const ENOTSUP: i32 = 95;

/// The host's way where there is none: for providers that open paths by themselves, or write nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoHost;

impl HostStore for NoHost {
    fn write(&self, _offset: u64, _data: abd::Abd, done: HostDone) {
        done(Err(ENOTSUP));
    }

    fn flush(&self, done: HostDone) {
        done(Err(ENOTSUP));
    }
}

/// File or disk that a store is opened on.
#[derive(Clone)]
pub struct StoreTarget {
    /// File or disk.
    pub kind: StoreKind,
    /// Path of the file or disk, for providers that write by themselves.
    pub path: PathBuf,
    /// Port of the host to it, for those that do not.
    pub host: Arc<dyn HostStore>,
}

impl fmt::Debug for StoreTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreTarget({:?} {})", self.kind, self.path.display())
    }
}

struct StoreInner {
    owner: Arc<dyn Owner>,
    handle: Option<DeviceHandle>,
    kind: StoreKind,
}

impl Drop for StoreInner {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.owner.close(handle);
        }
    }
}

/// A file or disk that a provider has open; dropping the last clone closes it.
#[derive(Clone)]
pub struct Store(Arc<StoreInner>);

impl Store {
    pub(crate) fn new(owner: Arc<dyn Owner>, handle: DeviceHandle, kind: StoreKind) -> Store {
        Store(Arc::new(StoreInner { owner, handle: Some(handle), kind }))
    }

    /// The provider's own handle.
    pub fn handle(&self) -> &DeviceHandle {
        self.0.handle.as_ref().expect("a store keeps its handle until it is dropped")
    }

    /// File or disk.
    pub fn kind(&self) -> StoreKind {
        self.0.kind
    }

    pub(crate) fn is_same(&self, other: &Store) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn check(&self, owner: &Arc<dyn Owner>) -> Result<(), OpError> {
        if Arc::ptr_eq(&self.0.owner, owner) { Ok(()) } else { Err(OpError::Mismatch) }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({:?} of {})", self.0.kind, self.0.owner.name())
    }
}
