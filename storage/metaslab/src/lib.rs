//! The allocator: free space by metaslab, who gets which offset, and the deltas that the pool writes to space maps
//! (OpenZFS: `metaslab.c`).
//!
//! Invariants:
//! 1. an offset is handed out at most once until it was freed *and* two more txgs were synced ([`TXG_DEFER`]);
//! 2. every allocation and free of a txg is reported exactly once by [`Allocator::take_deltas`];
//! 3. it knows no DMU: the pool persists the deltas and loads metaslabs from replayed space maps.
#![forbid(unsafe_code)]

mod allocator;

pub use allocator::{AllocRequest, Allocator, ClassSpace, Copies, Delta, LoadError, NoSpace, TXG_DEFER};
