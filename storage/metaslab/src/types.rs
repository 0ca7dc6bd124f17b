//! What goes into the allocator and comes out of it.

use ondisk::{Dva, Txg, VdevId};
use std::fmt;
use std::ops::Range;

/// Request for space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocRequest {
    /// Bytes to store, before parity and padding.
    pub psize: u64,
    /// Number of copies wanted, 1–3.
    pub copies: u8,
    /// The txg that the block is born in.
    pub txg: Txg,
    /// Chooses the allocator (shard): requests with different hints don't contend. Use a hash of the bookmark in which
    /// neighbouring blocks of a file are equal, so that they lie together.
    pub hint: u64,
}

/// Vdevs that a block goes to rather than to those that are for all blocks, as long as there is room (OpenZFS: `spa_preferred_class`). None of
/// them by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preference {
    /// True for those that are for tables of deduplication, first of all.
    pub dedup: bool,
    /// Percent of the room of those for metadata that may be taken already when the block goes there: 100 while there is any, 0 never.
    pub special_percent: u8,
}

/// Addresses of up to three copies.
pub type Copies = [Dva; 3];

/// Lack of room for this many bytes in one piece; a smaller request may succeed (gang).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSpace;

impl fmt::Display for NoSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no free segment is large enough")
    }
}
impl std::error::Error for NoSpace {}

/// Advice about a metaslab that nothing is allocated from any more.
pub const BROKEN_ACTION: &str = "Scrub the pool with 'zpool scrub', and copy what is in it to a new pool; 'zdb -m' shows its metaslabs.";

/// A metaslab that nothing is allocated from any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenMetaslab {
    /// The vdev.
    pub vdev: VdevId,
    /// The metaslab.
    pub metaslab: u32,
    /// Contradiction that was found.
    pub why: String,
}

impl fmt::Display for BrokenMetaslab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vdev {}, metaslab {}: {}", self.vdev, self.metaslab, self.why)
    }
}

/// Space maps that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// Vdev that the metaslab is of.
    pub vdev: VdevId,
    /// Index of the metaslab.
    pub metaslab: u32,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the free space of metaslab {} of vdev {} contradicts itself", self.metaslab, self.vdev)
    }
}
impl std::error::Error for LoadError {}

/// Changes of a txg to one metaslab since the last call of [`crate::Allocator::take_deltas`]. A space map gets the allocations
/// first: a segment that was allocated and freed in one txg is in both lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Vdev that the metaslab is of.
    pub vdev: VdevId,
    /// Index of the metaslab.
    pub metaslab: u32,
    /// Allocated segments: vdev offsets, sorted, disjoint.
    pub allocs: Vec<Range<u64>>,
    /// Freed segments: vdev offsets, sorted, disjoint.
    pub frees: Vec<Range<u64>>,
}

/// Bytes of one top-level vdev.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VdevSpace {
    /// Allocated, counting deferred frees.
    pub allocated: u64,
    /// Capacity of the metaslabs.
    pub capacity: u64,
    /// Freed, but not yet reusable.
    pub deferred: u64,
}

/// Bytes of the data vdevs. Those that are for some blocks only count as a part of the pool, but not as room for user data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSpace {
    /// Allocated, counting deferred frees.
    pub allocated: u64,
    /// Capacity of the metaslabs.
    pub capacity: u64,
    /// Allocated bytes where user data lies: deflated, without what is set aside for intent logs.
    pub deflated_allocated: u64,
    /// Capacity for user data, without vdevs that are for other blocks, or from which nothing new is allocated (OpenZFS:
    /// `metaslab_class_get_dspace` of `spa_normal_class`).
    pub deflated_capacity: u64,
    /// Allocated bytes on vdevs that are for some blocks only: deflated, without what was freed.
    pub deflated_elsewhere: u64,
    /// Capacity that is set aside for intent logs, deflated alike.
    pub deflated_logs: u64,
    /// Freed where user data lies, but not yet reusable.
    pub deferred: u64,
}
