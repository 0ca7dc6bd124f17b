//! What the cache counts: plain numbers per shard, summed when somebody looks (OpenZFS: `arcstats`).

use crate::shard::{Access, Kind};

/// Counters of one shard, kept under its lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// By access, then kind.
    pub(crate) hits: [[u64; 2]; 2],
    /// By access, then kind.
    pub(crate) misses: [[u64; 2]; 2],
    /// On entries recently used, frequently used.
    pub(crate) list_hits: [u64; 2],
    /// On ghosts of entries recently used, frequently used.
    pub(crate) ghost_hits: [u64; 2],
    /// Misses that joined a read in flight.
    pub(crate) joined: u64,
    /// Entries evicted.
    pub(crate) evicted: u64,
    /// Blocks not cached because the budget had no room.
    pub(crate) bypassed: u64,
}

impl Counters {
    pub(crate) fn hit(&mut self, access: Access, kind: Kind, frequent: bool) {
        self.hits[usize::from(access == Access::Prefetch)][kind as usize] += 1;
        self.list_hits[usize::from(frequent)] += 1;
    }
    pub(crate) fn miss(&mut self, access: Access, kind: Kind) {
        match access {
            Access::Demand | Access::Prefetch => self.misses[access as usize][kind as usize] += 1,
            Access::Probe => {}
        }
    }
    pub(crate) fn add(&mut self, other: &Counters) {
        for (mine, theirs) in [(&mut self.hits, &other.hits), (&mut self.misses, &other.misses)] {
            for (a, b) in mine.iter_mut().flatten().zip(theirs.iter().flatten()) {
                *a += b;
            }
        }
        for (mine, theirs) in [(&mut self.list_hits, &other.list_hits), (&mut self.ghost_hits, &other.ghost_hits)] {
            for (a, b) in mine.iter_mut().zip(theirs) {
                *a += b;
            }
        }
        self.joined += other.joined;
        self.evicted += other.evicted;
        self.bypassed += other.bypassed;
    }
}
