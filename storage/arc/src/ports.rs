//! The port to a second level of the cache (OpenZFS: L2ARC): a larger, slower place for what the first one lets go of.
//!
//! ```text
//!   miss ─► SecondLevel::read ─found, checksum right─► finish(), as after a read from the pool
//!                 └─ not found, or wrong ────────────► the pool
//!   eviction of a block whose bytes are those on disk ─► SecondLevel::offer
//!   free, rewrite ─────────────────────────────────────► SecondLevel::forget
//! ```
//! Invariants, which the cache keeps and a second level may rely on, or need not keep:
//! 1. it is never trusted: bytes that it gives are those of the block only when the block pointer's checksum says so; everything
//!    else is read from the pool, so it may lose, forget, cut or mix up whatever it likes;
//! 2. it gets bytes as they are on disk, compressed or not, and gives them back as such; blocks without a checksum, gang blocks
//!    and bytes that are here in another form only are not offered;
//! 3. no lock of the cache is held while it is called, and a read of it is a flight like any other: those who want the block
//!    meanwhile wait for the same answer, and a block freed meanwhile is delivered but not kept;
//! 4. what it holds is outside the cache's budget: it bounds itself, and drops what it cannot take at once;
//! 5. without one, a miss and an eviction cost one look each at whether there is one.

use abd::Abd;
use ondisk::BlockPtr;

/// The identity of a block's bytes: never the same for different bytes, except with the probability that checksums collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockName {
    /// Vdev, offset and physical birth of its first copy.
    pub(crate) place: [u64; 3],
    /// Version by its checksum: tells versions apart that were rewritten in place.
    pub(crate) version: u64,
}

impl BlockName {
    /// The name of a block that has an address; None for holes and embedded data.
    pub fn of(bp: &BlockPtr) -> Option<BlockName> {
        crate::key::Key::of(bp).map(|key| key.name(crate::key::Key::tag(bp)))
    }
}

/// A block that leaves the cache.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Name of the block.
    pub name: BlockName,
    /// Bytes of the block as they are on disk.
    pub physical: Abd,
    /// True for metadata.
    pub is_metadata: bool,
    /// True when it was used more than once.
    pub is_frequent: bool,
}

/// The callback of [`SecondLevel::read`]: the bytes as on disk, or None. Runs exactly once, on any thread, and never waits.
pub type FoundThen = Box<dyn FnOnce(Option<Abd>) + Send>;

/// A second level. No call may wait.
pub trait SecondLevel: Send + Sync {
    /// A block leaves the cache: take it or not.
    fn offer(&self, candidate: Candidate);
    /// A block is wanted that is not in the cache: its `psize_bytes` bytes, if they are here.
    fn read(&self, name: BlockName, psize_bytes: usize, then: FoundThen);
    /// Forgets a block that nobody will ask for again: it was freed or rewritten.
    fn forget(&self, name: BlockName);
}
