//! Direct I/O of files and volumes: which parts of a request go straight between the caller's memory and the disks, and why the others
//! don't.
//!
//! [`decide`] is the whole policy as a pure function; [`DirectStats`] counts what it decided, so that no request that asked
//! for direct is served otherwise without a trace; `zpl` and `zvol` perform plans. OpenZFS: `zfs_setup_direct`, `zfs_read`,
//! `zfs_write` (`zfs_vnops.c`), `dmu_write_uio_dnode` (`dmu.c`).
#![forbid(unsafe_code)]

mod decide;
mod edges;
mod stats;
#[cfg(test)]
mod tests;

pub use decide::{Facts, How, Memory, Operation, Params, Piece, Plan, Property, Reason, decide};
pub use edges::Edges;
pub use stats::{DirectStats, ReasonCount, Snapshot as DirectSnapshot};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Way in which a request wants its data moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// True when the request says O_DIRECT.
    pub flagged: bool,
    /// Alignment of the caller's memory.
    pub memory: Memory,
    /// True when somebody above has pages of the range mapped or cached.
    pub mapped: bool,
    /// True for a write at the end of the file, wherever that is by then (O_APPEND); its offset does not count.
    pub append: bool,
}

impl Access {
    /// Access by O_DIRECT from (or to) page-aligned memory.
    pub const DIRECT: Access = Access { flagged: true, memory: Memory::Aligned, mapped: false, append: false };
}

/// Module parameters of direct I/O, shared by every file system of a process and changed while they run.
#[derive(Debug)]
pub struct Tunables {
    enabled: AtomicBool,
    strict: AtomicBool,
    coalesces: AtomicBool,
}

impl Default for Tunables {
    fn default() -> Self {
        let Params { enabled, strict } = Params::default();
        Tunables { enabled: AtomicBool::new(enabled), strict: AtomicBool::new(strict), coalesces: AtomicBool::new(true) }
    }
}

impl Tunables {
    /// Values of the parameters now.
    pub fn params(&self) -> Params {
        Params { enabled: self.enabled.load(Ordering::Relaxed), strict: self.strict.load(Ordering::Relaxed) }
    }

    /// Sets `zfs_dio_enabled`.
    pub fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Sets `zfs_dio_strict`.
    pub fn set_strict(&self, strict: bool) {
        self.strict.store(strict, Ordering::Relaxed);
    }

    /// True when a record that short writes filled goes to the devices as one: `zirconia_direct_write_coalesce`.
    pub fn coalesces(&self) -> bool {
        self.coalesces.load(Ordering::Relaxed)
    }

    /// Sets `zirconia_direct_write_coalesce`.
    pub fn set_coalesces(&self, coalesces: bool) {
        self.coalesces.store(coalesces, Ordering::Relaxed);
    }
}

/// Parameters and counts of direct I/O that a file system or volume has besides its properties.
#[derive(Clone, Debug)]
pub struct Direct {
    /// Parameters in effect.
    pub tunables: Arc<Tunables>,
    /// Counts of the dataset.
    pub stats: Arc<DirectStats>,
}

impl Default for Direct {
    fn default() -> Self {
        Direct { tunables: Arc::default(), stats: DirectStats::new(None) }
    }
}

impl Direct {
    /// Values of the parameters now.
    pub fn params(&self) -> Params {
        self.tunables.params()
    }
}

/// Alignment that statx(2) would show of a file's direct I/O (`STATX_DIOALIGN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectAlignment {
    /// Alignment of memory in bytes.
    pub memory: u64,
    /// Alignment of offsets and lengths in bytes that makes writes wholly direct.
    pub offset: u64,
}
