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

mod batch;
mod direct;
mod engine;
mod error;
mod events;
mod extended;
mod feed;
mod flights;
mod free;
mod gang;
mod idle;
mod inject;
mod leaf;
mod lost_copies;
mod merged;
mod plug;
mod queue;
mod read;
mod rebuild;
mod reports;
mod request;
mod roam;
mod stats;
mod store;
mod suspend;
mod together;
mod transform;
mod tuning;
mod verify;
mod view;
mod write;
mod zia;

pub use direct::{ChangedBuffers, DirectParameters};
pub use engine::{UnitThen, Zio};
pub use error::{ErrorKind, ZioError};
pub use extended::{EXTENDED, ExtendedStat};
pub use feed::ResilverFeed;
pub use flights::DeadmanFailMode;
pub use inject::{Fault, FaultError};
pub use leaf::{LeafRequest, LeafThen};
pub use queue::QueueState;
pub use rebuild::{RebuildRequest, RebuildThen, Rebuilt};
pub use reports::untold_errors;
pub use request::{Landed, LandedThen, Priority, ReadFlags, ReadRequest, ReadThen, WriteRequest, WriteThen};
pub use roam::{MayRoam, Next, Roaming};
pub use stats::{LeafCounts, LeafStats, ZioStats};
pub use tuning::DirtySource;
pub use vdev_queue::{Class, Dirty, IoKind, LatencyTarget, PromiseState, Reason, Scheduler, TunableError, Tunables};
pub use view::{Facts, FailMode, PoolView};
pub use zia::{Accelerator, ZiaMode, ZiaPolicy};

use abd::Abd;
use ondisk::BlockPtr;

/// True when `physical` are the bytes that `bp` points to, by its checksum; false also for a block without one.
pub fn is_intact(bp: &BlockPtr, physical: &Abd) -> bool {
    let is_checked = bp.checksum_kind() != ondisk::Checksum::OFF && !bp.is_embedded() && !bp.is_hole();
    is_checked && physical.len() == bp.psize() && verify::block_is_right(bp, physical)
}

/// The logical bytes of a block from its verified physical bytes (what a raw read delivered).
///
/// Errors: `Corrupt` when the bytes are not what the algorithm wrote, `Unsupported` for an algorithm that this build lacks or
/// an encrypted block.
pub fn decompress(bp: &BlockPtr, physical: &Abd) -> Result<Abd, ErrorKind> {
    if bp.is_encrypted() { Err(ErrorKind::Unsupported) } else { verify::decompress(bp, physical) }
}
