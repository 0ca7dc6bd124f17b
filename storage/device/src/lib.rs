//! Devices: where bytes live. One trait, [`BlockDevice`], and its engines.
//!
//! * [`FileDevice`]: `preadv`/`pwritev` on the submitting thread; the cheapest way to tmpfs and buffered files.
//! * [`MemDevice`]: bytes in memory, for tests and tools.
//!
//! Invariants: a device knows nothing of pools, labels or redundancy; every submitted I/O calls its `then` exactly once,
//! perhaps before `submit` returns; a read hands its destination back whatever the outcome.
#![deny(unsafe_code)]

mod error;
mod file;
mod io;
mod mem;
mod open;

pub use error::DeviceError;
pub use file::FileDevice;
pub use io::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp, DeviceReply, DeviceThen};
pub use mem::MemDevice;
pub use open::{Engine, OpenOptions, open};
