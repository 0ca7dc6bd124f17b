//! The trait of devices, and the requests and replies that cross it.

use crate::{DeviceError, IoPriority};
use abd::{Abd, AbdPart};
use exec::Exec;
use std::fmt;
use std::path::{Path, PathBuf};

/// Operation at an offset of a device.
#[derive(Debug)]
pub enum DeviceOp {
    /// Read into the destinations, in order, as one extent of the sum of their lengths.
    ///
    /// Destinations may be parts of one logical buffer ([`Abd::scratch_parts`]): a RAID-Z column lands where it belongs.
    Read(Vec<AbdPart>),
    /// Write the bytes (a gang is written as one extent).
    Write(Abd),
    /// Make every write that completed before this was submitted durable. The offset is ignored.
    Flush,
    /// Tell the device that these bytes are not needed; what a read of them returns is unspecified.
    Trim {
        /// Number of bytes.
        length_bytes: u64,
    },
}

impl DeviceOp {
    /// A read of `length` bytes into a fresh buffer.
    pub fn read(length: usize) -> DeviceOp {
        DeviceOp::Read(vec![AbdPart::scratch(length)])
    }

    /// Number of bytes of the device that the operation covers.
    pub fn length_bytes(&self) -> u64 {
        match self {
            DeviceOp::Read(parts) => parts.iter().map(|part| part.len() as u64).sum(),
            DeviceOp::Write(data) => data.len() as u64,
            DeviceOp::Flush => 0,
            DeviceOp::Trim { length_bytes } => *length_bytes,
        }
    }
}

/// Outcome of an I/O.
#[derive(Debug)]
pub struct DeviceReply {
    /// Success, or why not. Nothing may be concluded about the bytes of a failed I/O.
    pub outcome: Result<(), DeviceError>,
    /// The destinations of a read, handed back also after a failure; empty for other operations.
    pub parts: Vec<AbdPart>,
}

impl DeviceReply {
    /// A reply without data.
    pub fn of(outcome: Result<(), DeviceError>) -> DeviceReply {
        DeviceReply { outcome, parts: Vec::new() }
    }

    /// The bytes read, as one buffer, or the error.
    pub fn into_abd(self) -> Result<Abd, DeviceError> {
        self.outcome.map(|()| Abd::join(self.parts))
    }
}

/// Called exactly once with the reply: on the submitting thread (perhaps before `submit` returns), on a thread of the
/// device, or as a job. It must not wait, and should `spawn` what takes long.
pub type DeviceThen = Box<dyn FnOnce(DeviceReply) + Send>;

/// One I/O to a device.
pub struct DeviceIo {
    /// Operation to do.
    pub op: DeviceOp,
    /// First byte on the device.
    pub offset: u64,
    /// Callback for when it is done.
    pub then: DeviceThen,
    /// Urgency of the I/O, for the kernel's scheduler.
    pub priority: IoPriority,
}

impl DeviceIo {
    /// An I/O with its continuation.
    pub fn new(op: DeviceOp, offset: u64, then: impl FnOnce(DeviceReply) + Send + 'static) -> DeviceIo {
        DeviceIo { op, offset, then: Box::new(then), priority: IoPriority::default() }
    }

    /// Makes the I/O as urgent as that.
    pub fn with_priority(self, priority: IoPriority) -> DeviceIo {
        DeviceIo { priority, ..self }
    }

    /// Ends the I/O without having done it.
    pub fn fail(self, error: DeviceError) {
        let parts = if let DeviceOp::Read(parts) = self.op { parts } else { Vec::new() };
        (self.then)(DeviceReply { outcome: Err(error), parts });
    }

    /// Checks the range against a device of `size_bytes` and its mode.
    pub fn check(&self, facts: &DeviceFacts, size_bytes: u64) -> Result<(), DeviceError> {
        let changes = matches!(self.op, DeviceOp::Write(_) | DeviceOp::Trim { .. });
        facts.check((self.offset, self.op.length_bytes()), changes, size_bytes)
    }
}

impl fmt::Debug for DeviceIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceIo").field("op", &self.op).field("offset", &self.offset).finish_non_exhaustive()
    }
}

/// Facts about a device that are known from opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Path at which it was opened.
    pub path: PathBuf,
    /// Smallest addressable unit in bytes.
    pub logical_sector_bytes: u32,
    /// Unit in bytes the device writes without reading; at least the logical sector.
    pub physical_sector_bytes: u32,
    /// True for spinning disks.
    pub rotational: bool,
    /// True for a block device, false for a file or memory.
    pub whole_disk: bool,
    /// True when [`DeviceOp::Trim`] does something.
    pub can_trim: bool,
    /// True when writes are refused.
    pub read_only: bool,
    /// Name of the engine behind it (`psync`, `uring`, `mem`, `sim`).
    pub engine: &'static str,
}

impl DeviceFacts {
    /// Checks an offset and a number of bytes against a device of `size_bytes`, and its mode for what `changes` it.
    pub fn check(&self, (offset, length): (u64, u64), changes: bool, size_bytes: u64) -> Result<(), DeviceError> {
        if changes && self.read_only {
            return Err(DeviceError::ReadOnly);
        }
        if length > 0 && offset.checked_add(length).is_none_or(|end| end > size_bytes) {
            return Err(DeviceError::OutOfRange);
        }
        Ok(())
    }

    /// Facts of a solid-state device with 512-byte sectors that can be written.
    pub fn solid(path: impl Into<PathBuf>, engine: &'static str) -> DeviceFacts {
        DeviceFacts {
            path: path.into(),
            logical_sector_bytes: 512,
            physical_sector_bytes: 512,
            rotational: false,
            whole_disk: false,
            can_trim: true,
            read_only: false,
            engine,
        }
    }
}

/// A device: asynchronous reads, writes, flushes and trims of byte extents.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Starts the I/O. Requests in flight at the same time may happen in any order.
    fn submit(&self, io: DeviceIo);

    /// Starts several I/Os; engines that can, hand them over in one go.
    fn submit_batch(&self, ios: Vec<DeviceIo>) {
        ios.into_iter().for_each(|io| self.submit(io));
    }

    /// True when [`BlockDevice::write_durably`] is to be had.
    fn can_write_durably(&self) -> bool {
        false
    }

    /// Writes bytes that are durable when it returns, others perhaps not, on this thread, which waits for the device: no thread is woken, and no
    /// queue gone through.
    ///
    /// # Errors
    /// As those of a write and of a flush after it: after an error a flush may succeed although what others wrote is lost.
    fn write_durably(&self, offset: u64, data: &Abd) -> Result<(), DeviceError> {
        let _ = (offset, data);
        Err(DeviceError::Unsupported)
    }

    /// Facts that opening the device told.
    fn facts(&self) -> &DeviceFacts;

    /// Size in bytes when it was opened or last refreshed.
    fn size_bytes(&self) -> u64;

    /// Looks whether the device grew, and returns its size.
    fn refresh_size(&self) -> u64 {
        self.size_bytes()
    }

    /// Lets go of what this host remembers of these bytes, so that the next read asks the device: another host may have written there.
    fn forget_cached(&self, offset: u64, length_bytes: u64) {
        let _ = (offset, length_bytes);
    }

    /// Path at which it was opened.
    fn path(&self) -> &Path {
        &self.facts().path
    }

    /// True for spinning disks.
    fn is_rotational(&self) -> bool {
        self.facts().rotational
    }

    /// Smallest power-of-two shift that an allocation on this device should be aligned to, at least 9 (see [`crate::AshiftTunables`]).
    fn ashift(&self) -> u32 {
        crate::sectors::ashift_tunables().of(self.facts())
    }

    /// Reads `length` bytes at `offset`. Waits: for operations, never for jobs.
    fn read_at(&self, exec: &Exec, offset: u64, length: usize) -> Result<Abd, DeviceError> {
        wait_for(self, exec, DeviceOp::read(length), offset).into_abd()
    }

    /// Writes `data` at `offset`. Waits.
    fn write_at(&self, exec: &Exec, offset: u64, data: &Abd) -> Result<(), DeviceError> {
        wait_for(self, exec, DeviceOp::Write(data.clone()), offset).outcome
    }

    /// Makes completed writes durable. Waits.
    fn flush(&self, exec: &Exec) -> Result<(), DeviceError> {
        wait_for(self, exec, DeviceOp::Flush, 0).outcome
    }

    /// Gives bytes back to the device. Waits.
    fn trim(&self, exec: &Exec, offset: u64, length_bytes: u64) -> Result<(), DeviceError> {
        wait_for(self, exec, DeviceOp::Trim { length_bytes }, offset).outcome
    }
}

fn wait_for<D: BlockDevice + ?Sized>(device: &D, exec: &Exec, op: DeviceOp, offset: u64) -> DeviceReply {
    let (completer, completion) = exec::completion();
    device.submit(DeviceIo::new(op, offset, move |reply| completer.complete(reply)));
    completion.wait(exec)
}
