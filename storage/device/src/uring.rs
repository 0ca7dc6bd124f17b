//! The asynchronous engine: O_DIRECT through a shared io_uring.
//!
//! Requests that do not fit the device's alignment still work where they can: memory that is not aligned goes through a
//! bounce buffer, and a read of part of a sector reads the sector. A write of part of a sector is an error of the caller.
//! Completions come on the ring's thread, so this engine does not serve the inline executor.

use crate::calls;
use crate::priority;
use crate::ring::{Request, Ring};
use crate::sys::{self, DirectAlignment};
use crate::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, DeviceReply, IoPriority};
use abd::{Abd, AbdPart, fill_parts};
use std::fmt;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};

/// A file or block device, open with O_DIRECT, behind a ring.
pub struct UringDevice {
    facts: DeviceFacts,
    file: Arc<File>,
    _holder: File,
    ring: Arc<Ring>,
    alignment: DirectAlignment,
    size_bytes: AtomicU64,
    /// Open files that nobody else may have while this is open.
    _held: Arc<Vec<File>>,
}

impl fmt::Debug for UringDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringDevice").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl UringDevice {
    /// A device over a file that was opened with O_DIRECT; `Unsupported` where the kernel refuses io_uring. `holder` is
    /// the open file that has the lock: the device keeps it open.
    pub(crate) fn new(
        file: File,
        holder: &File,
        size_bytes: u64,
        alignment: DirectAlignment,
        facts: DeviceFacts,
    ) -> Result<Self, DeviceError> {
        let ring = Ring::next().ok_or(DeviceError::Unsupported)?;
        let holder = holder.try_clone()?;
        Ok(UringDevice {
            facts,
            file: Arc::new(file),
            _holder: holder,
            ring,
            alignment,
            size_bytes: AtomicU64::new(size_bytes),
            _held: Arc::default(),
        })
    }

    /// Keeps these open for as long as the device.
    pub(crate) fn holding(self, held: &Arc<Vec<File>>) -> UringDevice {
        UringDevice { _held: held.clone(), ..self }
    }

    /// Makes a request fit the device, or ends it; none when the ring has nothing to do for it.
    fn prepare(&self, io: DeviceIo) -> Option<Request> {
        let io = match io.check(&self.facts, self.size_bytes()).and_then(|()| self.fit(&io)) {
            Ok(Fit::AsIs) => io,
            Ok(Fit::CopyWrite) => {
                let DeviceIo { op: DeviceOp::Write(data), offset, then, priority } = io else { return None };
                DeviceIo { op: DeviceOp::Write(aligned_copy(&data)), offset, then, priority }
            }
            Ok(Fit::BounceRead) => self.bounce_read(io),
            Err(error) => {
                io.fail(error);
                return None;
            }
        };
        match io.op {
            DeviceOp::Trim { .. } if self.facts.whole_disk => trim_in_background(self.file.clone(), io),
            ref op if op.length_bytes() == 0 && !matches!(op, DeviceOp::Flush) => finish_empty(io),
            _ => return Some(Request { file: self.file.clone(), io }),
        }
        None
    }

    fn fit(&self, io: &DeviceIo) -> Result<Fit, DeviceError> {
        let DirectAlignment { memory, offset: sector } = self.alignment;
        let in_sectors = |value: u64| value.is_multiple_of(u64::from(sector));
        let whole = in_sectors(io.offset) && in_sectors(io.op.length_bytes());
        let fits = |(address, length): (*const u8, usize)| address.addr().is_multiple_of(memory as usize) && in_sectors(length as u64);
        match &io.op {
            DeviceOp::Read(parts) if whole && parts.iter().all(|part| fits((part.as_ptr(), part.len()))) => Ok(Fit::AsIs),
            DeviceOp::Read(_) => Ok(Fit::BounceRead),
            DeviceOp::Trim { .. } if !whole => Err(DeviceError::Misaligned),
            DeviceOp::Write(data) => self.fit_write(io.offset, data),
            _ => Ok(Fit::AsIs),
        }
    }

    fn fit_write(&self, offset: u64, data: &Abd) -> Result<Fit, DeviceError> {
        let DirectAlignment { memory, offset: sector } = self.alignment;
        let in_sectors = |value: u64| value.is_multiple_of(u64::from(sector));
        let fits = |(address, length): (*const u8, usize)| address.addr().is_multiple_of(memory as usize) && in_sectors(length as u64);
        match in_sectors(offset) && in_sectors(data.len() as u64) {
            false => Err(DeviceError::Misaligned),
            true if data.extents().all(fits) => Ok(Fit::AsIs),
            true => Ok(Fit::CopyWrite),
        }
    }

    /// The read of the sectors around it, into memory that fits, followed by a copy.
    fn bounce_read(&self, io: DeviceIo) -> DeviceIo {
        let sector = u64::from(self.alignment.offset);
        let DeviceIo { op, offset, then, priority } = io;
        let length = op.length_bytes();
        let DeviceOp::Read(mut parts) = op else { return DeviceIo { op, offset, then, priority } };
        let start = offset - offset % sector;
        let end = (offset + length).next_multiple_of(sector);
        let skip = (offset - start) as usize;
        let copy = move |reply: DeviceReply| {
            let outcome = reply.outcome.map(|()| {
                let mut source = reply.parts.iter().map(|part| &part[skip..skip + length as usize]);
                source.by_ref().for_each(|bytes| {
                    fill_parts(&mut parts, bytes);
                });
            });
            then(DeviceReply { outcome, parts });
        };
        DeviceIo::new(DeviceOp::Read(vec![AbdPart::scratch((end - start) as usize)]), start, copy).with_priority(priority)
    }
}

/// Way in which a request can be done.
enum Fit {
    AsIs,
    CopyWrite,
    BounceRead,
}

/// Copy of the bytes in memory that fits every device.
fn aligned_copy(data: &Abd) -> Abd {
    let mut aligned = AbdPart::scratch(data.len());
    aligned.copy_from_abd(data);
    aligned.freeze()
}

fn finish_empty(io: DeviceIo) {
    let parts = if let DeviceOp::Read(parts) = io.op { parts } else { Vec::new() };
    (io.then)(DeviceReply { outcome: Ok(()), parts });
}

/// Discards on a thread of its own: the request waits for the device, and the ring's thread must not.
#[expect(clippy::disallowed_methods, reason = "one thread for all devices of the process, older than any executor")]
fn trim_in_background(file: Arc<File>, io: DeviceIo) {
    type Trim = (Arc<File>, DeviceIo);
    static TRIMS: OnceLock<Option<mpsc::Sender<Trim>>> = OnceLock::new();
    let start = || {
        let (sender, receiver) = mpsc::channel::<Trim>();
        let run = move || {
            receiver.into_iter().for_each(|(file, io)| {
                let outcome = sys::discard(&file, io.offset, io.op.length_bytes());
                (io.then)(DeviceReply::of(outcome));
            });
        };
        std::thread::Builder::new().name("z-trim".to_string()).spawn(run).ok().map(|_| sender)
    };
    match TRIMS.get_or_init(start) {
        Some(sender) => {
            if let Err(mpsc::SendError((_, io))) = sender.send((file, io)) {
                io.fail(DeviceError::Unsupported);
            }
        }
        None => io.fail(DeviceError::Unsupported),
    }
}

impl BlockDevice for UringDevice {
    fn submit(&self, io: DeviceIo) {
        if let Some(request) = self.prepare(io) {
            self.ring.send([request]);
        }
    }

    fn submit_batch(&self, ios: Vec<DeviceIo>) {
        let requests: Vec<Request> = ios.into_iter().filter_map(|io| self.prepare(io)).collect();
        if !requests.is_empty() {
            self.ring.send(requests);
        }
    }

    fn can_write_durably(&self) -> bool {
        true
    }

    fn write_durably(&self, offset: u64, data: &Abd) -> Result<(), DeviceError> {
        self.facts.check((offset, data.len() as u64), true, self.size_bytes())?;
        priority::take_on(IoPriority::Awaited);
        let whole_disk = self.facts.whole_disk;
        match self.fit_write(offset, data)? {
            Fit::CopyWrite => calls::write_durably(&self.file, &aligned_copy(data), offset, whole_disk),
            Fit::AsIs | Fit::BounceRead => calls::write_durably(&self.file, data, offset, whole_disk),
        }
    }

    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    fn refresh_size(&self) -> u64 {
        let size = if self.facts.whole_disk {
            sys::disk_size_bytes(&self.file).ok()
        } else {
            self.file.metadata().ok().map(|metadata| metadata.len())
        };
        if let Some(size) = size {
            self.size_bytes.store(size, Ordering::Relaxed);
        }
        self.size_bytes()
    }
}
