//! ZIL: intent logs, written, read, claimed and understood, and the operations that go into them (OpenZFS: `zil.c`).
//!
//! A log is a chain of blocks, each with the pointer of the next. Its end is always a block that was allocated and never written,
//! so a checksum that does not match is its ordinary end. A block that was born after the last synced txg is in no space map until an
//! import claims it: that has to happen before anything else is allocated, and the header says so in the txg that the claim is written with.
//!
//! Invariants: nothing here knows files or datasets, writes to a device but through [`LogWriter`], or believes a record before [`Record::decode`] did; the same header and the
//! same blocks always give the same walk, so that a replay that a crash cut short goes on where it was.
#![forbid(unsafe_code)]

mod arena;
mod chain;
mod claim;
mod itx;
mod log;
mod record;
mod stats;
mod write;
mod written;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use arena::{ARENA_BYTES, Arena, ArenaError, Done, Entry, EntryKind, Heritage, Noted, Request, RequestScope, request_of_thread};
pub use chain::{End, Visit, Walked, walk};
pub use claim::{Claim, LOST_TXGS_MAX, claim};
pub use itx::{Filled, Itx, Log, Payload, Range, Source as LogSource};
pub use log::{IntentLog, Obstacle};
pub use record::{
    CloneRecord, Create, Link, Made, NewAttributes, Record, RecordError, Remove, Rename, RenameKind, SetAttributes, Source, Time,
    WriteRecord, kind_name, write_header,
};
pub use stats::zil_counts;
pub use write::{LogName, LogWriter};
pub use written::{Wrote, blocks_around, fill_block, fill_bytes};
