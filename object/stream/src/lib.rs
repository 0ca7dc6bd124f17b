//! Send streams: their records in both byte orders, the running checksum, lists in front, and resume tokens (OpenZFS: `zfs_ioctl.h`).
//!
//! A stream is a sequence of records of [`RECORD_BYTES`] bytes, some with a payload. [`Writer`] makes one, [`Reader`] reads one and trusts
//! nothing of it; neither knows what a record means to a dataset.
#![forbid(unsafe_code)]

mod error;
mod features;
mod reader;
mod record;
#[cfg(test)]
mod tests;
pub mod token;
mod writer;

pub use error::StreamError;
pub use features::{Features, HeaderType, begin_flags, object_flags, spill_flags, write_flags};
pub use reader::{Reader, begin_list};
pub use record::{
    Begin, DecodeError, End, Free, FreeObjects, NAME_BYTES, Object, ObjectRange, Record, Redact, Spill, StreamName, Write, WriteByRef,
    WriteEmbedded,
};
pub use writer::Writer;

/// Size of a record without its payload, in bytes (OpenZFS: `dmu_replay_record_t`).
pub const RECORD_BYTES: usize = 312;
/// Number in front of every stream and substream (OpenZFS: `DMU_BACKUP_MAGIC`).
pub const MAGIC: u64 = 0x2_F5BA_CBAC;
/// Offset of the running checksum in a record, in bytes. [`Begin`] has none: its name lies there.
pub const SUM_AT: usize = 280;
/// Size of the longest list in front of a stream, in bytes (OpenZFS: `ZFS_SENDRECV_MAX_NVLIST`).
pub const LIST_BYTES_MAX: u64 = 64 << 20;
/// Length that a [`Free`] has when it goes to the end of its object.
pub const TO_END: u64 = u64::MAX;
