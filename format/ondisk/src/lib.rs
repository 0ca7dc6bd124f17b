//! OpenZFS's on-disk records: layouts, both byte orders, validation, and the newtypes that keep address spaces apart.
//!
//! Nothing here performs I/O, takes a lock or trusts a byte: every decoder returns an error on any input that it cannot
//! represent, and unknown values stay representable (rejecting them is the caller's decision).
#![forbid(unsafe_code)]

mod blkptr;
mod enums;
mod ids;

pub use blkptr::{BlockPtr, Dva, EMBEDDED_PAYLOAD_BYTES, EmbeddedKind};
pub use enums::{Checksum, Compression, ObjectType, ObjsetType};
pub use ids::*;
