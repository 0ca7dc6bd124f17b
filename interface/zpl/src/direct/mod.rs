//! Direct I/O of files: which parts of a request go straight between the caller's memory and the disks, why the others
//! don't, and how both are carried out.
//!
//! [`decide`] is the whole policy as a pure function; [`DirectStats`] counts what it decided, so that no request that asked
//! for direct is served otherwise without a trace; `transfer.rs` performs plans. OpenZFS: `zfs_setup_direct`, `zfs_read`,
//! `zfs_write` (`zfs_vnops.c`), `dmu_write_uio_dnode` (`dmu.c`).

mod decide;
mod stats;
#[cfg(test)]
mod tests;

pub use decide::{Facts, How, Memory, Operation, Params, Piece, Plan, Property, Reason, WRITE_CHUNK_BYTES, decide};
pub use stats::{DirectStats, ReasonCount, Snapshot as DirectSnapshot};
