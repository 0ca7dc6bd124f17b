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
mod beside;
mod copies;
mod core;
mod dedup;
mod direct;
mod error;
mod events;
mod faults;
mod feed;
mod feeding;
mod free;
mod gang;
mod gang_write;
mod ganging;
mod heal;
mod host;
mod leaf_ops;
mod log;
mod lost_copies;
mod operate;
mod placing;
mod protect;
mod read;
mod rebuild;
mod request;
mod roam;
mod sitting;
mod snapshot;
mod software;
mod stage;
mod stages;
mod stats;
mod store;
mod sum;
mod suspend;
mod together;
pub mod transform;
mod verify;
mod view;
mod write;
mod zio;

pub use crate::core::{Earlier, ObjsetNames};
pub use crate::zio::Zio;
pub use dedup::{Asked, Dedup, DedupTables, ListedThen, Stored, Verdict, VerdictThen};
pub use direct::{ChangedBuffers, DirectParameters};
pub use error::{ErrorKind, SUSPENDED_ACTION, ZioError, whose};
pub use faults::Fault;
pub use feed::ResilverFeed;
pub use leaf::{
    DeadmanFailMode, Defect, DirtySource, EXTENDED, ExtendedStat, FaultError, LeafCounts, LeafFault, LeafStats, Priority, QueueState,
    Roaming, Sample, Spell, qualify, untold_errors,
};
pub use log::{LogBlocks, LogRoom};
pub use operate::{LeafRequest, LeafThen};
pub use placing::PlacingTunables;
pub use rebuild::{RebuildRequest, RebuildThen, Rebuilt};
pub use request::{Landed, LandedThen, ReadFlags, ReadRequest, ReadThen, UnitThen, WriteRequest, WriteThen};
pub use roam::{MayRoam, Next};
pub use software::Software;
pub use stage::{Answer, AnswerThen, Claims, FirstRound, LeafPort, Made, Mend, Over, Packed, Physical, Ready, SecondRound, Shape, Stage};
pub use stats::ZioStats;
pub use sum::{salted_sum_of, sum_of};
pub use suspend::Resumes;
pub use vdev_queue::{Class, Dirty, IoKind, LatencyTarget, PromiseState, Reason, Scheduler, TunableError, Tunables};
pub use verify::is_sealed;
pub use view::{Facts, FailMode, PoolView};

use abd::Abd;
use ondisk::BlockPtr;

/// The logical bytes of a block from its verified physical bytes (what a raw read delivered).
///
/// Errors: `Corrupt` when the bytes are not what the algorithm wrote, `Unsupported` for an algorithm that this build lacks or
/// an encrypted block; blocks of dnodes are delivered as they are stored, with bonuses that may be encrypted.
pub fn decompress(bp: &BlockPtr, physical: &Abd) -> Result<Abd, ErrorKind> {
    if verify::is_sealed(bp) { Err(ErrorKind::Unsupported) } else { verify::decompress(bp, physical) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::{Compression, ObjectType};

    /// If this fails, encrypted datasets can be neither scrubbed nor destroyed without their keys; or ciphertext is taken for files.
    #[test]
    fn only_what_others_must_follow_is_read_without_a_key() {
        let stored = Abd::from_slice(&[7; 16 << 10]);
        let mut bp = BlockPtr::HOLE;
        bp.set_lsize(16 << 10);
        bp.set_psize(16 << 10);
        bp.set_compression(Compression::OFF);
        bp.set_uses_crypt(true);
        for (kind, is_readable) in
            [(ObjectType::DNODE, true), (ObjectType::MASTER_NODE, true), (ObjectType::PLAIN_FILE_CONTENTS, false), (ObjectType::SA, false)]
        {
            bp.set_object_type(kind);
            assert_eq!(decompress(&bp, &stored).is_ok(), is_readable, "{kind}");
        }
    }
}
