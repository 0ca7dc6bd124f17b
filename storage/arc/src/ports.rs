//! The port to a second level of the cache (OpenZFS: L2ARC): a larger, slower place for what the first one is about to let go of.
//!
//! ```text
//!   miss ─► SecondLevel::read ─found, checksum right─► finish(), as after a read from the pool
//!                 └─ not found, or wrong ────────────► the pool
//!   Cache::about_to_leave ◄── the second level looks from time to time, and takes copies
//!   free, rewrite, wrong bytes ────────────────────────► SecondLevel::forget
//! ```
//! Invariants, which the cache keeps and a second level may rely on, or need not keep:
//! 1. it is never trusted: bytes that it gives are those of the block only when the block pointer's checksum says so; everything
//!    else is read from the pool, so it may lose, forget, cut or mix up whatever it likes;
//! 2. it gets bytes as they are on disk, compressed or not, encrypted where the pool has them so, and gives them back as such; blocks without a
//!    checksum and gang blocks are not shown to it, and those of which the bytes on disk are not here and cannot be made again not given;
//! 3. no lock of the cache is held while it is called, and a read of it is a flight like any other: those who want the block
//!    meanwhile wait for the same answer, and a block freed meanwhile is delivered but not kept;
//! 4. what it holds is outside the cache's budget, but for what it charges with [`crate::Cache::charge_headers`];
//! 5. without one, a miss costs one look at whether there is one.

use abd::Abd;
use ondisk::{BlockPtr, Compression, Dva, ObjsetId, Txg};

/// Place and birth of a block's first copy: never the same for two blocks, but for versions of one that was rewritten in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockPlace {
    pub(crate) vdev: u64,
    pub(crate) offset: u64,
    pub(crate) birth: u64,
}

impl BlockPlace {
    /// Place of a block whose first address and physical birth these are.
    pub fn new(dva: Dva, birth: Txg) -> BlockPlace {
        BlockPlace { vdev: u64::from(dva.vdev.0), offset: dva.offset, birth: birth.0 }
    }
}

/// The identity of a block's bytes: never the same for different bytes, except with the probability that checksums collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockName {
    pub(crate) place: BlockPlace,
    /// Version by its checksum: tells versions apart that were rewritten in place.
    pub(crate) version: u64,
}

impl BlockName {
    /// The name of a block that has an address; None for holes and embedded data.
    pub fn of(bp: &BlockPtr) -> Option<BlockName> {
        crate::key::Key::of(bp).map(|key| key.name(crate::key::Key::tag(bp)))
    }

    /// Place of the block.
    pub fn place(&self) -> BlockPlace {
        self.place
    }

    /// Number that tells versions of the block apart.
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// A block that is about to leave the cache.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// Name of the block.
    pub name: BlockName,
    /// Object set that the block was read or written for.
    pub objset: ObjsetId,
    /// Length in bytes on disk.
    pub physical_bytes: usize,
    /// Length in bytes as it is read.
    pub logical_bytes: u32,
    /// First address, and physical birth.
    pub address: (Dva, Txg),
    /// Compression of the bytes on disk.
    pub compression: Compression,
    /// True for a block that has a MAC.
    pub is_protected: bool,
    /// True for metadata.
    pub is_metadata: bool,
    /// True when it was used more than once.
    pub is_frequent: bool,
    /// True when it was read ahead, and nobody has used it yet.
    pub is_prefetched: bool,
}

/// A copy of a block that is about to leave the cache.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Description of the block.
    pub block: Leaving,
    /// Bytes of the block as they are on disk.
    pub physical: Abd,
}

/// Answer of a second level that is shown a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Take a copy.
    Take,
    /// Show the next one.
    Pass,
    /// Show no more.
    Enough,
}

/// The callback of [`SecondLevel::read`]: the bytes as on disk, or None. Runs exactly once, on any thread, and never waits.
pub type FoundThen = Box<dyn FnOnce(Option<Abd>) + Send>;

/// Counters of the log blocks by which what is on devices is found again (OpenZFS: `l2_log_blk_…`, `l2_data_to_meta_ratio`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Log blocks written.
    pub writes: u64,
    /// Bytes that those take which are on devices now.
    pub allocated_bytes: u64,
    /// Number of those.
    pub count: u64,
    /// Bytes of a log block, on average of the last few.
    pub mean_bytes: u64,
    /// Times as many bytes that one lists as it has, on average of the last few.
    pub worth: u64,
}

/// Part of an average that a new value is (OpenZFS: `ARCSTAT_F_AVG_FACTOR`).
const AVERAGED: u64 = 3;

impl LogCounts {
    /// Has a log block of so many bytes, which lists blocks of so many, count in the averages.
    pub fn note(&mut self, bytes: u64, listed_bytes: u64) {
        let worth = listed_bytes.checked_div(bytes).unwrap_or(0);
        for (mean, value) in [(&mut self.mean_bytes, bytes), (&mut self.worth, worth)] {
            *mean = *mean - *mean / AVERAGED + value / AVERAGED;
        }
    }
}

/// Counters of what was found again on devices (OpenZFS: `l2_rebuild_…`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RebuildCounts {
    /// Devices of which everything was found.
    pub success: u64,
    /// Devices whose header is of something else: another pool, another form.
    pub unsupported: u64,
    /// Log blocks that could not be read.
    pub io_errors: u64,
    /// Headers that could not be read, or are none.
    pub header_errors: u64,
    /// Log blocks that are not what was written.
    pub checksum_errors: u64,
    /// Devices of which not all was taken, as memory was short.
    pub short_of_memory: u64,
    /// Bytes of the blocks found, as they are read.
    pub logical_bytes: u64,
    /// Bytes that they take of the devices.
    pub allocated_bytes: u64,
    /// Blocks found.
    pub blocks: u64,
    /// Blocks found that were known already.
    pub known_blocks: u64,
    /// Log blocks that list them.
    pub log_blocks: u64,
}

impl RebuildCounts {
    /// Adds what was found in a log block.
    pub fn add(&mut self, found: &RebuildCounts) {
        self.logical_bytes += found.logical_bytes;
        self.allocated_bytes += found.allocated_bytes;
        self.blocks += found.blocks;
        self.known_blocks += found.known_blocks;
        self.log_blocks += found.log_blocks;
    }
}

/// Counters of a second level (OpenZFS: `arcstats`, the names that begin with `l2_`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondCounts {
    /// Bytes of the blocks that it has, as they are read.
    pub logical_bytes: u64,
    /// Bytes that they take of its devices.
    pub allocated_bytes: u64,
    /// Bytes of memory that it knows them by.
    pub header_bytes: u64,
    /// Parts of `allocated_bytes`: of blocks read ahead, recently used, and frequently used.
    pub by_use: [u64; 3],
    /// Parts of `allocated_bytes`: of data, and of metadata.
    pub by_kind: [u64; 2],
    /// Times that it looked for blocks to take.
    pub feeds: u64,
    /// Bytes written to its devices.
    pub written_bytes: u64,
    /// Rounds of writes begun, and ended.
    pub writes: [u64; 2],
    /// Rounds of writes in which something failed, and headers of devices that could not be written.
    pub write_errors: u64,
    /// Reads that were not served because a device was being written.
    pub clashes: u64,
    /// Reads whose block was written over meanwhile.
    pub evicted_reading: u64,
    /// Times that it took nothing, as memory was short.
    pub short_of_memory: u64,
    /// Reads that its devices failed.
    pub read_errors: u64,
    /// Counters of log blocks.
    pub log: LogCounts,
    /// Counters of what was found again.
    pub rebuild: RebuildCounts,
}

/// A second level. No call may wait.
pub trait SecondLevel: Send + Sync {
    /// A block is wanted that is not in the cache: its `psize_bytes` bytes, if they are here.
    fn read(&self, name: BlockName, psize_bytes: usize, then: FoundThen);
    /// Forgets a block that nobody is to ask for again: it was freed or rewritten, or what came was not it.
    fn forget(&self, name: BlockName);
    /// Counters as they are now.
    fn counts(&self) -> SecondCounts;
}
