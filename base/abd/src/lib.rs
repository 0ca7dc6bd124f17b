//! Buffers of the engine: page-aligned, reference-counted, sliceable, copied only when shared *and* written.
//!
//! [`Abd`] is one run or a gang of runs over page-aligned allocations (OpenZFS: `abd.c`). Cloning and slicing are O(runs)
//! and copy no data; [`Abd::make_mut`] copies when somebody else still looks at the bytes. [`AbdPart`] is the writable
//! counterpart: disjoint parts of one allocation, filled independently and joined without a copy.
//!
//! Three kinds of memory: *owned* (recycled slabs), *lent* ([`with_lent`], [`with_lent_mut`]: the caller's own bytes, borrowed
//! until the call returns, so stable), and *unstable* ([`SharedPages`]: others may write to it at any time). Slices of
//! unstable bytes cannot be had; every accessor that copies or computes works on all three.

mod abd;
mod aligned;
mod heap;
mod parts;
mod shards;
mod shared;
mod slab;
mod stats;
#[cfg(test)]
mod tests;
mod watch;

pub use abd::{Abd, fingerprint, slice_is_zero, with_lent};
pub use heap::trim_heap;
pub use parts::{AbdPart, fill_parts, io_slices_mut, with_lent_mut};
pub use shared::SharedPages;
pub use slab::{set_cache_bytes_max, trim_cache, trim_idle};
pub use stats::{MemoryStats, copied, memory_stats, note_copied};
pub use watch::{MappingWatcher, watch_mappings};

/// Alignment of every allocation, in bytes: one page, as O_DIRECT and DMA need.
pub const PAGE_BYTES: usize = 4096;
