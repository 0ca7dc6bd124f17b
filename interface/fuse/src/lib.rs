//! FUSE without libfuse: the kernel's protocol, mounting, and the [`Handler`] port behind which a file system lives.
//!
//! Invariants: this crate knows nothing of pools; WRITE payloads are handed over page-aligned and without a copy; READ data goes
//! from the handler's buffer to the kernel without a copy; errno leaves the engine here and nowhere else.
#![forbid(unsafe_code)]

pub mod abi;
mod dispatch;
mod encode;
mod errno;
mod handler;
mod mount;
mod session;

pub use errno::Errno;
pub use handler::*;
pub use mount::{MountError, MountOptions, clear_dead_mount};
pub use session::{Negotiated, Session};
