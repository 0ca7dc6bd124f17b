//! The allocator: free space by metaslab, who gets which offset, and the deltas that the pool writes to space maps
//! (OpenZFS: `metaslab.c`).
//!
//! Invariants:
//! 1. an offset is handed out at most once until it was freed *and* two more txgs were synced ([`TXG_DEFER`]);
//! 2. every allocation and free of a txg is reported exactly once by [`Allocator::take_deltas`];
//! 3. it knows no DMU: the pool persists the deltas and loads metaslabs from replayed space maps;
//! 4. what a [`Hold`] covers is not written to, and what a [`Loan`] has is handed to nobody, until they are dropped;
//! 5. what blocks of a checkpoint occupy stays allocated when they are freed, and is reported by [`Allocator::take_kept`] instead;
//! 6. locks: a shard's before a metaslab's before the dirty list's; none is held across a call out of this crate.
#![forbid(unsafe_code)]

mod allocator;
mod fragmentation;
mod kept;
mod metaslab;
mod shard;
mod types;

pub use allocator::{Allocator, Aside, Hold, Loan};
pub use kept::KeptSpace;
pub use types::{AllocRequest, BROKEN_ACTION, BrokenMetaslab, ClassSpace, Copies, Delta, LoadError, NoSpace, Preference, VdevSpace};

/// Txgs that freed space rests before it is reused (OpenZFS: `TXG_DEFER_SIZE`).
pub const TXG_DEFER: usize = 2;
/// Txgs that can be in memory at once (OpenZFS: `TXG_SIZE`).
pub(crate) const TXG_SLOTS: usize = 4;
