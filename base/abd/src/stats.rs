//! How much memory buffers use, and how many bytes were copied: the two figures the data path is judged by.

use crate::shards::{shard, shards};
use crate::slab;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of all buffers of the process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in buffers that somebody holds, rounded up to what they occupy.
    pub live_bytes: u64,
    /// Mapped from the system: live, free parts of slabs, and cached.
    pub mapped_bytes: u64,
    /// Bytes in slabs and mappings kept empty for the next allocation.
    pub cached_bytes: u64,
    /// Copied from buffer to buffer or between buffers and slices since the process started.
    pub copied_bytes: u64,
}

/// Bytes copied so far from buffer to buffer or between buffers and slices: what "copies per byte" is computed from.
pub fn copied() -> u64 {
    lines().iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
}

/// Memory and copies so far.
pub fn memory_stats() -> MemoryStats {
    let (live_bytes, mapped_bytes, cached_bytes) = slab::usage();
    let copied_bytes = copied();
    MemoryStats { live_bytes, mapped_bytes, cached_bytes, copied_bytes }
}

#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

fn lines() -> &'static [Line] {
    static LINES: OnceLock<Box<[Line]>> = OnceLock::new();
    LINES.get_or_init(|| (0..shards()).map(|_| Line::default()).collect())
}

/// Counts bytes that somebody copied from or into the slices of a buffer, where no method of the buffer saw it.
pub fn note_copied(bytes: usize) {
    lines()[shard()].0.fetch_add(bytes as u64, Ordering::Relaxed);
}
