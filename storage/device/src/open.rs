//! Opening a device by path: picks the engine that fits what is found there.

use crate::{BlockDevice, DeviceError, FileDevice};
use std::path::Path;
use std::sync::Arc;

/// Which engine to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Whatever fits the device.
    #[default]
    Auto,
    /// System calls on the submitting thread.
    Psync,
    /// io_uring with O_DIRECT.
    Uring,
}

/// How to open a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Refuse writes.
    pub read_only: bool,
    /// Refuse a device that another process holds exclusively, and hold it exclusively.
    pub exclusive: bool,
    /// Which engine to use.
    pub engine: Engine,
}

/// Opens the file or block device at `path`.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Arc<dyn BlockDevice>, DeviceError> {
    if options.engine == Engine::Uring {
        return Err(DeviceError::Unsupported);
    }
    Ok(Arc::new(FileDevice::open(path, options.read_only)?))
}
