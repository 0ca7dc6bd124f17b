//! Device memory of software: an allocation of its own, read as snapshots and written in whole results.

use abd::{Abd, AbdPart};
use dpusm::{DeviceHandle, MemoryCount, MemoryStats, OpError};
use exec::Mutex;
use std::ops::Range;

/// Way in which bytes come into device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMode {
    /// The bytes are copied.
    Copy,
    /// Memory that nobody changes is shared instead: for models of devices that copy by themselves, so that the copy costs the
    /// host nothing. The contents are the same, until the buffer is freed.
    Share,
}

/// One buffer.
pub(crate) struct DeviceMemory {
    bytes: Mutex<Abd>,
    requested_bytes: u64,
    mode: CopyMode,
}

impl DeviceMemory {
    fn new(bytes: usize, mode: CopyMode) -> DeviceMemory {
        DeviceMemory { bytes: Mutex::new(Abd::scratch(bytes)), requested_bytes: bytes as u64, mode }
    }

    /// The bytes of a range as they are now, without a copy.
    pub(crate) fn snapshot(&self, range: Range<usize>) -> Result<Abd, OpError> {
        let bytes = self.bytes.lock();
        if range.start > range.end || range.end > bytes.len() {
            return Err(OpError::Invalid);
        }
        Ok(bytes.slice(range))
    }

    /// Puts a result in at `offset`. A result as long as the buffer becomes the buffer.
    pub(crate) fn put(&self, offset: usize, result: Abd) -> Result<(), OpError> {
        let mut bytes = self.bytes.lock();
        if offset.checked_add(result.len()).is_none_or(|end| end > bytes.len()) {
            return Err(OpError::Invalid);
        }
        if result.len() == bytes.len() {
            *bytes = result;
            return Ok(());
        }
        if self.mode == CopyMode::Share {
            let end = offset + result.len();
            *bytes = Abd::gang(&[bytes.slice(0..offset), result, bytes.slice(end..bytes.len())]);
            return Ok(());
        }
        let mut at = offset;
        let target = bytes.make_mut();
        result.fold((), |(), run| {
            target[at..at + run.len()].copy_from_slice(run);
            at += run.len();
            Some(())
        });
        Ok(())
    }

    /// Takes host bytes in.
    pub(crate) fn copy_in(&self, offset: usize, source: &Abd) -> Result<(), OpError> {
        if self.mode == CopyMode::Share && !source.is_unstable() {
            return self.put(offset, source.clone());
        }
        let mut own = AbdPart::scratch(source.len());
        own.copy_from_abd(source);
        self.put(offset, own.freeze())
    }
}

/// Heap of a device: all its memory.
pub(crate) struct Heap {
    stats: Mutex<MemoryStats>,
    bytes_max: u64,
    mode: CopyMode,
}

impl Heap {
    pub(crate) fn new(bytes_max: u64, mode: CopyMode) -> Heap {
        Heap { stats: Mutex::default(), bytes_max, mode }
    }

    pub(crate) fn alloc(&self, bytes: usize) -> Result<DeviceHandle, OpError> {
        let mut stats = self.stats.lock();
        if stats.active.requested_bytes.saturating_add(bytes as u64) > self.bytes_max {
            return Err(OpError::NoMemory);
        }
        let actual = bytes.next_multiple_of(abd::PAGE_BYTES) as u64;
        add(&mut stats.active, bytes as u64, actual);
        add(&mut stats.total, bytes as u64, actual);
        drop(stats);
        Ok(DeviceHandle::new(DeviceMemory::new(bytes, self.mode)))
    }

    pub(crate) fn free(&self, handle: DeviceHandle) {
        let Some(memory) = handle.into_own::<DeviceMemory>() else { return };
        let mut stats = self.stats.lock();
        let actual = (memory.requested_bytes as usize).next_multiple_of(abd::PAGE_BYTES) as u64;
        stats.active.buffers -= 1;
        stats.active.requested_bytes -= memory.requested_bytes;
        stats.active.actual_bytes -= actual;
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        *self.stats.lock()
    }
}

fn add(count: &mut MemoryCount, requested: u64, actual: u64) {
    count.buffers += 1;
    count.requested_bytes += requested;
    count.actual_bytes += actual;
}
