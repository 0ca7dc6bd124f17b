//! Contents of volumes: the bytes of an object set of kind ZVOL, read, written, freed and made durable (OpenZFS: `zvol.c`).
//!
//! A [`Volume`] is opened from a hold on its dataset; whoever serves it to programs (a door: a file, a disk of a network) has one of these and no
//! state of its own that matters. Logs that a crash left are replayed when the pool is imported, before any volume can be opened.
//!
//! Invariants: a request has its byte range for itself from the check of its bounds to its end; locks are taken in this order: range, transaction;
//! what the log is told of is told in the transaction that changes it, under the range; nothing here knows errno, names or devices of an operating
//! system. A volume's size changes with the whole volume locked, so that no write ends behind it.
#![forbid(unsafe_code)]

mod error;
mod free;
mod journal;
mod read;
mod volume;
mod write;

pub use direct_io::Access;
pub use error::VolumeError;
pub use read::ReadThen;
pub use volume::{Settings, Volume};
pub use write::WriteThen;
