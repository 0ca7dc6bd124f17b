//! The adaptive replacement cache over the I/O pipeline (OpenZFS: `arc.c`).
//!
//! Entries hold a block's bytes as read, or its compressed bytes as on disk, or both: a compressed block that is read keeps
//! its compressed bytes, and its decompressed copy for as long as memory lasts. Copies that can be made again go first when
//! memory is short; then the adaptive policy of [`shard`] decides.
//! Of indirect blocks with few pointers only these are held ([`sparse`]).
//!
//! Invariants:
//! 1. the bytes charged never exceed the budget, at any instant;
//! 2. concurrent misses of one block share one device read;
//! 3. an entry is found by address and birth of its first copy, so a block rewritten elsewhere can never be served stale; one
//!    rewritten in place is told apart by its checksum;
//! 4. no lock is held while a device works, while bytes are decompressed, or while buffers are dropped.
#![forbid(unsafe_code)]

mod balance;
mod blocks;
mod budget;
mod cache;
mod key;
mod kstats;
mod lists;
mod origin;
mod ports;
mod second;
mod shard;
mod sparse;
mod stats;
#[cfg(test)]
mod tests;

pub use blocks::BlockCounts;
pub use cache::Cache;
pub use origin::CachedBlock;
pub use ports::{BlockName, BlockPlace, Candidate, FoundThen, Leaving, LogCounts, RebuildCounts, SecondCounts, SecondLevel, Wish};
pub use shard::Keep;
