//! The synchronous engine: `preadv`/`pwritev` on the thread that submits. No queue, no wake-up, no second thread.
//!
//! It costs the least CPU where an I/O is a memory copy (tmpfs, page cache). On a device with latency it holds the
//! submitting worker for the duration; use the ring engine there.

use crate::calls;
use crate::priority;
use crate::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, DeviceReply, IoPriority};
use abd::{Abd, AbdPart, io_slices_mut};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, preadv};
use std::fs::File;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file, or anything that can be opened as one, behind the device trait.
#[derive(Debug)]
pub struct FileDevice {
    facts: DeviceFacts,
    file: File,
    size_bytes: AtomicU64,
    /// Open files that nobody else may have while this is open.
    _held: Arc<Vec<File>>,
}

impl FileDevice {
    /// Opens an existing regular file for reading and, unless `read_only`, writing.
    pub fn open(path: &Path, read_only: bool) -> Result<FileDevice, DeviceError> {
        let file = File::options().read(true).write(!read_only).custom_flags(libc::O_NONBLOCK).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(DeviceError::NotADevice);
        }
        Ok(FileDevice::from_file(file, metadata.len(), DeviceFacts { read_only, ..DeviceFacts::solid(path, "psync") }))
    }

    /// A device over the first `size_bytes` of an open file.
    pub fn from_file(file: File, size_bytes: u64, facts: DeviceFacts) -> FileDevice {
        FileDevice { facts, file, size_bytes: AtomicU64::new(size_bytes), _held: Arc::default() }
    }

    /// Keeps these open for as long as the device.
    pub(crate) fn holding(self, held: &Arc<Vec<File>>) -> FileDevice {
        FileDevice { _held: held.clone(), ..self }
    }

    fn read(&self, parts: &mut [AbdPart], offset: u64) -> Result<(), DeviceError> {
        let mut slices = io_slices_mut(parts);
        let mut rest: &mut [IoSliceMut<'_>] = &mut slices;
        let mut position = offset;
        while !rest.is_empty() {
            let runs = rest.len().min(calls::RUNS_PER_CALL_MAX);
            match preadv(&self.file, &mut rest[..runs], position) {
                Ok(0) => return Err(DeviceError::Short),
                Ok(count) => {
                    position += count as u64;
                    IoSliceMut::advance_slices(&mut rest, count);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn trim_file(&self, offset: u64, length_bytes: u64) -> Result<(), DeviceError> {
        if self.facts.whole_disk {
            return crate::sys::discard(&self.file, offset, length_bytes);
        }
        Ok(fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length_bytes)?)
    }
}

impl BlockDevice for FileDevice {
    fn submit(&self, io: DeviceIo) {
        if let Err(error) = io.check(&self.facts, self.size_bytes()) {
            return io.fail(error);
        }
        let DeviceIo { op, offset, then, priority } = io;
        priority::take_on(priority);
        then(match op {
            DeviceOp::Read(mut parts) => DeviceReply { outcome: self.read(&mut parts, offset), parts },
            DeviceOp::Write(data) => DeviceReply::of(calls::write_all(&self.file, &data, offset)),
            DeviceOp::Flush => DeviceReply::of(self.file.sync_data().map_err(DeviceError::from)),
            DeviceOp::Trim { length_bytes } => DeviceReply::of(self.trim_file(offset, length_bytes)),
        });
    }

    fn can_write_durably(&self) -> bool {
        true
    }

    fn write_durably(&self, offset: u64, data: &Abd) -> Result<(), DeviceError> {
        self.facts.check((offset, data.len() as u64), true, self.size_bytes())?;
        priority::take_on(IoPriority::Awaited);
        calls::write_durably(&self.file, data, offset, self.facts.whole_disk)
    }

    fn forget_cached(&self, offset: u64, length_bytes: u64) {
        // Where the kernel cannot, the device is asked whenever it is.
        let _ = rustix::fs::fadvise(&self.file, offset, NonZeroU64::new(length_bytes), rustix::fs::Advice::DontNeed);
    }

    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    fn refresh_size(&self) -> u64 {
        let size = if self.facts.whole_disk {
            crate::sys::disk_size_bytes(&self.file).ok()
        } else {
            self.file.metadata().ok().map(|metadata| metadata.len())
        };
        if let Some(size) = size {
            self.size_bytes.store(size, Ordering::Relaxed);
        }
        self.size_bytes()
    }
}
