//! A part of a device that looks like a device of its own: what a partition table says is there can be looked at without the
//! kernel's partitions.

use crate::{BlockDevice, DeviceFacts, DeviceIo};
use std::sync::Arc;

/// See the file's header.
#[derive(Debug)]
pub struct WindowDevice {
    inner: Arc<dyn BlockDevice>,
    offset: u64,
    size_bytes: u64,
}

impl WindowDevice {
    /// The part of `inner` that begins at `offset`; None when it is not wholly on it.
    pub fn new(inner: Arc<dyn BlockDevice>, offset: u64, size_bytes: u64) -> Option<WindowDevice> {
        let end = offset.checked_add(size_bytes)?;
        (end <= inner.size_bytes()).then_some(WindowDevice { inner, offset, size_bytes })
    }
}

impl BlockDevice for WindowDevice {
    fn submit(&self, io: DeviceIo) {
        match io.check(self.facts(), self.size_bytes) {
            Ok(()) => self.inner.submit(DeviceIo { offset: io.offset + self.offset, ..io }),
            Err(error) => io.fail(error),
        }
    }

    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}
