//! Send: what changed in a snapshot since an earlier one, as a stream of records (OpenZFS: `dmu_send.c`).
//!
//! # How it works
//! * A walk (`walk`) goes over the object set in order of object and offset, and leaves out what was born no later than the base: block
//!   pointers tell, nothing unchanged is read. Holes count by their birth too.
//! * Blocks that a redaction list has are left out of it (`redactor`); such a list is made by walks over clones of the snapshot (`redact`).
//! * What it finds goes through a queue (`ahead`) in which blocks are being read, as many as fit into a few megabytes, and becomes records
//!   (`records`) in the order in which it was found.
//! * Records go straight into the sink: its pace is the walk's. Nothing is held meanwhile but the snapshot itself, so no txg waits.
//!
//! # Invariants
//! 1. (object, offset) only grows, and there is one record for a place.
//! 2. An OBJECT comes before everything of the object, and a FREE of what is behind its end follows it.
//! 3. Nothing is changed, in memory or on disk, but by `redact`: the bookmark that it makes.
#![forbid(unsafe_code)]

mod ahead;
mod error;
mod item;
mod raw;
mod records;
mod redact;
mod redactor;
mod source;
#[cfg(test)]
mod tests;
mod walk;

pub use error::SendError;
pub use redact::redact;
pub use source::{Base, Identity, SendOptions, Sending, set_estimate_block_bytes, set_skips_unborn, skips_unborn};
