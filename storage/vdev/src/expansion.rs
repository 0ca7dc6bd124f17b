//! RAID-Z vdevs that get devices: a block keeps the width that the vdev had when it was born, and lies on all the devices there are (OpenZFS:
//! `vdev_raidz.c`; docs/adr/0034).
//!
//! Sector number `n` of the vdev's space lies on child `n % width`, in its row `n / width`. An expansion ("reflow") by one child moves every sector from
//! its place by the old number of children to the one by the new number, in order; the contents of no sector change, and neither does an address in
//! a block pointer.
//! So a column of a block that was born before no longer lies in sequence on one child: its sectors go diagonally over all of them, and each row of the
//! block is a map with a parity of its own ([`crate::RaidzMap`]).
//!
//! While sectors are moved, how far that is decides where a row is read ([`Reflow`]):
//! ```text
//!  0 ............. synced ............. next ............
//!  at the new place  at the old place,    at the old place
//!                    written to both
//! ```
//! A row that has a sector behind `synced` counts as being behind it. The first sectors have no room between their old and their new places: they are moved
//! by way of the boot area ([`Scratch`]).

use nvlist::NvList;
use ondisk::Txg;
use ondisk::names::config;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Use of the boot area by the first part of an expansion (OpenZFS: `raidz_reflow_scratch_state_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scratch {
    /// Nothing is read or written there.
    #[default]
    Unused,
    /// The first part is copied there: what is written of it goes there too.
    Filling,
    /// The first part is read and written there alone: somebody may still read what its new place has now.
    Valid,
    /// The first part is read there, while its new place is overwritten; what is written goes to both.
    Leaving,
}

/// State of an expansion: bytes of the vdev's space. The one thing in a tree that changes, since every row that is written depends on it, whichever
/// snapshot it is planned with.
#[derive(Debug, Default)]
pub struct Reflow {
    synced: AtomicU64,
    next: AtomicU64,
    scratch: AtomicU8,
}

impl PartialEq for Reflow {
    fn eq(&self, other: &Reflow) -> bool {
        (self.synced(), self.next(), self.scratch()) == (other.synced(), other.next(), other.scratch())
    }
}

impl Eq for Reflow {}

impl Reflow {
    /// Bytes whose rows are read at their new places.
    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::SeqCst)
    }
    /// Bytes of which what is written goes to the new place too; never less than [`Reflow::synced`].
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }
    /// Use of the boot area.
    pub fn scratch(&self) -> Scratch {
        match self.scratch.load(Ordering::SeqCst) {
            0 => Scratch::Unused,
            1 => Scratch::Filling,
            2 => Scratch::Valid,
            _ => Scratch::Leaving,
        }
    }
    /// The state now, in sectors of `1 << ashift` bytes.
    pub(crate) fn moved(&self, ashift: u32) -> Moved {
        // What is synced is looked at first: it never is more than what follows.
        let (synced, next) = (self.synced() >> ashift, self.next() >> ashift);
        Moved { synced, next, scratch: self.scratch() }
    }
    /// Rows of the first `bytes` are at their new places, and those places are on disk.
    pub fn set_synced(&self, bytes: u64) {
        self.next.fetch_max(bytes, Ordering::SeqCst);
        self.synced.store(bytes, Ordering::SeqCst);
    }
    /// From now on, what is written of the first `bytes` goes to both places.
    pub fn set_next(&self, bytes: u64) {
        self.next.fetch_max(bytes, Ordering::SeqCst);
    }
    /// Uses the boot area so from now on.
    pub fn set_scratch(&self, scratch: Scratch) {
        let number = match scratch {
            Scratch::Unused => 0,
            Scratch::Filling => 1,
            Scratch::Valid => 2,
            Scratch::Leaving => 3,
        };
        self.scratch.store(number, Ordering::SeqCst);
    }
}

/// State of an expansion as one map sees it, in sectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub synced: u64,
    pub next: u64,
    pub scratch: Scratch,
}

/// Expansions of a RAID-Z vdev, by one child each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Widths {
    /// Txgs from which on blocks have one column more, in their order.
    pub txgs: Vec<Txg>,
    /// Expansion that is not finished.
    pub reflow: Option<Arc<Reflow>>,
}

impl Widths {
    /// The expansions that a vdev's list tells of.
    pub(crate) fn of(list: &NvList) -> Widths {
        let txgs = list.get_u64_array(config::RAIDZ_EXPAND_TXGS).unwrap_or_default();
        let reflow = list.contains(config::RAIDZ_EXPANDING).then(Arc::default);
        Widths { txgs: txgs.iter().copied().map(Txg).collect(), reflow }
    }

    /// Adds what a vdev's list tells of them (OpenZFS: `vdev_raidz_config_generate`).
    pub(crate) fn add_to(&self, list: &mut NvList) {
        if self.reflow.is_some() {
            list.add_boolean(config::RAIDZ_EXPANDING);
        }
        if !self.txgs.is_empty() {
            list.add(config::RAIDZ_EXPAND_TXGS, self.txgs.iter().map(|txg| txg.0).collect::<Vec<u64>>());
        }
    }

    /// Number of them, with the one that is not finished.
    pub(crate) fn count(&self) -> usize {
        self.txgs.len() + usize::from(self.reflow.is_some())
    }

    /// True when a vdev with so many children can have had them.
    pub(crate) fn fit(&self, parity: usize, columns: usize) -> bool {
        self.txgs.windows(2).all(|pair| pair[0] < pair[1]) && columns > parity + self.count()
    }
}
