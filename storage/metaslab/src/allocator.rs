//! The allocator of one class of top-level vdevs.

use ondisk::{Dva, Txg, VdevId};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use vdev::VdevTree;

/// Txgs that freed space rests before it is reused (OpenZFS: `TXG_DEFER_SIZE`).
pub const TXG_DEFER: usize = 2;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocRequest {
    /// Bytes to store, before parity and padding.
    pub psize: u64,
    /// Copies wanted, 1–3.
    pub copies: u8,
    /// The txg that the block is born in.
    pub txg: Txg,
    /// Chooses the allocator (shard): requests with different hints don't contend. Use a hash of the bookmark, so that
    /// neighbouring blocks of a file lie together.
    pub hint: u64,
}

/// Up to three addresses.
pub type Copies = [Dva; 3];

/// No room for this many bytes in one piece; a smaller request may succeed (gang).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSpace;

impl fmt::Display for NoSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no free segment is large enough")
    }
}
impl std::error::Error for NoSpace {}

/// Space maps that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The vdev.
    pub vdev: VdevId,
    /// The metaslab.
    pub metaslab: u32,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the free space of metaslab {} of vdev {} contradicts itself", self.metaslab, self.vdev)
    }
}
impl std::error::Error for LoadError {}

/// What a txg did to one metaslab since the last call of [`Allocator::take_deltas`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The vdev.
    pub vdev: VdevId,
    /// The metaslab.
    pub metaslab: u32,
    /// Allocated segments: vdev offsets, sorted, disjoint.
    pub allocs: Vec<Range<u64>>,
    /// Freed segments: vdev offsets, sorted, disjoint.
    pub frees: Vec<Range<u64>>,
}

/// Bytes of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSpace {
    /// Allocated, counting deferred frees.
    pub allocated: u64,
    /// Capacity of the metaslabs.
    pub capacity: u64,
    /// Allocated bytes of user data: deflated (OpenZFS: `dalloc`, `dspace`).
    pub deflated_allocated: u64,
    /// Capacity for user data.
    pub deflated_capacity: u64,
    /// Freed, but not yet reusable.
    pub deferred: u64,
}

/// The allocator.
#[derive(Debug)]
pub struct Allocator {
    tree: Arc<VdevTree>,
}

impl Allocator {
    /// An allocator over the data vdevs of `tree` with `shards` parallel allocators; every metaslab counts as unloaded.
    pub fn new(tree: Arc<VdevTree>, shards: usize) -> Allocator {
        let _ = shards;
        Allocator { tree }
    }
    /// Number of metaslabs of `vdev`.
    pub fn metaslab_count(&self, vdev: VdevId) -> u32 {
        self.tree.top(vdev).map_or(0, |top| top.metaslab_count() as u32)
    }
    /// Makes a metaslab usable: `allocated` are its allocated segments as replayed from its space map.
    pub fn load(&self, vdev: VdevId, metaslab: u32, allocated: &[Range<u64>]) -> Result<(), LoadError> {
        let _ = allocated;
        Err(LoadError { vdev, metaslab })
    }
    /// Allocates [`AllocRequest::copies`] addresses; slots that are not asked for stay empty.
    pub fn alloc(&self, request: &AllocRequest) -> Result<Copies, NoSpace> {
        let _ = request;
        Err(NoSpace)
    }
    /// Takes back an allocation of the open txg whose block was never written (OpenZFS: `metaslab_unalloc_dva`).
    pub fn unalloc(&self, txg: Txg, dva: &Dva) {
        let _ = (txg, dva);
    }
    /// Frees `dva` in `txg`; its space is reusable after two more txgs.
    pub fn free(&self, txg: Txg, dva: &Dva) {
        let _ = (txg, dva);
    }
    /// What happened in `txg` and was not taken yet, by metaslab.
    pub fn take_deltas(&self, txg: Txg) -> Vec<Delta> {
        let _ = txg;
        Vec::new()
    }
    /// `txg` is on disk: its frees begin their rest, those of `txg − 2` become reusable (OpenZFS: `metaslab_sync_done`).
    pub fn sync_done(&self, txg: Txg) {
        let _ = txg;
    }
    /// Space of the class.
    pub fn space(&self) -> ClassSpace {
        ClassSpace::default()
    }
}
