//! The I/O pipeline: logical block reads, writes and frees turned into device I/O (OpenZFS: `zio.c`).
//!
//! Invariants:
//! 1. nothing in here waits: work is jobs and callbacks; only the convenience methods that say so block, by [`exec::Completion`];
//! 2. a read returns bytes that match the block pointer's checksum, or a typed error; never anything in between;
//! 3. a write reports success only after every copy that had a usable device was written;
//! 4. no pool-wide lock and no shared counter on the data path.
//!
//! Absent on purpose: caching (see `arc`), transaction groups (see `dmu`), persistence of space maps (see `pool`).
#![forbid(unsafe_code)]

mod engine;
mod error;
mod request;

pub use engine::Zio;
pub use error::{ErrorKind, ZioError};
pub use request::{Priority, ReadFlags, ReadRequest, ReadThen, WriteRequest, WriteThen};
