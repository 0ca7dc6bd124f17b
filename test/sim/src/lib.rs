//! Simulated devices: seeded latency, faults at a chosen operation, and what a power cut at any moment would leave.
//!
//! A [`Sim`] is one machine: its devices share an operation counter, a fault plan, a trace hash and one recording of every
//! write and flush. A [`Recording`] is walked by [`Recording::walk`]: the image after the k-th event is built from the
//! one before, so that a test can visit every write boundary of a whole program.
//!
//! Invariants: under the inline executor, the same seed gives the same trace; a byte is durable only when a flush that
//! was submitted after the write completed has completed; recorded data is shared with the engine's buffers, not copied.
#![forbid(unsafe_code)]

mod crash;
mod device;
mod fault;
mod pages;
mod record;
#[cfg(test)]
mod tests;

pub use crash::{CrashChoice, CrashWalker};
pub use device::{Latency, Sim, SimDevice};
pub use fault::{Fault, FaultKind, OpKind};
pub use pages::Image;
pub use record::{Cut, DeviceIndex, Event, Recording, WriteId, cuts_every};

/// Unit in bytes in which a write may be torn.
pub const SECTOR_BYTES: usize = 512;
