//! Devices: where bytes live. One trait, [`BlockDevice`], and its engines.
//!
//! * [`FileDevice`]: `preadv`/`pwritev` on the submitting thread; the cheapest way to tmpfs and buffered files.
//! * [`UringDevice`]: O_DIRECT through io_uring, for everything with latency.
//! * [`MemDevice`]: bytes in memory, for tests and tools.
//!
//! Invariants: a device knows nothing of pools, labels or redundancy; every submitted I/O calls its `then` exactly once,
//! perhaps before `submit` returns; a read hands its destination back whatever the outcome.
#![deny(unsafe_code)]

mod buffers;
mod calls;
mod claim;
mod error;
mod file;
mod foreign;
mod io;
mod mem;
mod open;
mod priority;
mod ring;
mod sectors;
mod sys;
#[cfg(test)]
mod tests;
mod uring;
mod window;

pub use error::DeviceError;
pub use file::FileDevice;
pub use foreign::{Partition, Signature, partitions, signatures};
pub use io::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp, DeviceReply, DeviceThen};
pub use mem::MemDevice;
pub use open::{Engine, OpenOptions, forget_partitions, is_held, open};
pub use priority::{IoPriority, set_io_priorities};
pub use ring::{RingStats, ring_buffers_registered, ring_stats, set_ring_buffers_registered};
pub use sectors::{AshiftTunables, set_ashift_tunables};
pub use uring::UringDevice;
pub use window::WindowDevice;
