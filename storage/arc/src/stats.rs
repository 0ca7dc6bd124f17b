//! What the cache counts: plain numbers per shard, summed when somebody looks (OpenZFS: `arcstats`).

use crate::shard::{Access, Kind, State};

/// Counters of one shard, kept under its lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Number of hits, by access, then kind.
    pub(crate) hits: [[u64; 2]; 2],
    /// Number of misses, by access, then kind.
    pub(crate) misses: [[u64; 2]; 2],
    /// Number of hits on entries recently used, frequently used, not kept.
    pub(crate) list_hits: [u64; 3],
    /// Number of hits on ghosts of entries recently used, frequently used; by kind.
    pub(crate) ghost_hits: [[u64; 2]; 2],
    /// Demands that joined a read in flight, by kind.
    pub(crate) joined: [u64; 2],
    /// First uses of blocks read ahead that were here.
    pub(crate) prefetched_hits: u64,
    /// First uses of blocks read ahead that were on their way.
    pub(crate) prefetched_joins: u64,
    /// Number of decompressed copies dropped.
    pub(crate) copies_evicted: u64,
    /// Number of entries evicted.
    pub(crate) evicted: u64,
    /// Bytes evicted that a second level could have, of recently and frequently used blocks; and that none could.
    pub(crate) second_eligible: [u64; 2],
    pub(crate) second_ineligible: u64,
    /// Blocks found in the second level, not found, and found with wrong bytes.
    pub(crate) second_hits: u64,
    pub(crate) second_misses: u64,
    pub(crate) second_bad: u64,
    /// Bytes taken from the second level.
    pub(crate) second_bytes: u64,
    /// Blocks not cached because the budget had no room.
    pub(crate) bypassed: u64,
}

impl Counters {
    pub(crate) fn hit(&mut self, access: Access, kind: Kind, state: State) {
        self.hits[usize::from(access == Access::Prefetch)][kind as usize] += 1;
        let list = match state {
            State::Mfu => 1,
            State::Uncached => 2,
            _ => 0,
        };
        self.list_hits[list] += 1;
    }
    /// Counts as joining a read in flight what was counted as a demand's miss.
    pub(crate) fn join(&mut self, kind: Kind, was_prefetch: bool) {
        self.misses[Access::Demand as usize][kind as usize] -= 1;
        self.joined[kind as usize] += 1;
        self.prefetched_joins += u64::from(was_prefetch);
    }
    pub(crate) fn miss(&mut self, access: Access, kind: Kind) {
        match access {
            Access::Demand | Access::Prefetch => self.misses[access as usize][kind as usize] += 1,
            Access::Probe => {}
        }
    }
    /// A block was evicted.
    pub(crate) fn second_level(&mut self, is_eligible: bool, is_frequent: bool, bytes: u64) {
        match is_eligible {
            true => self.second_eligible[usize::from(is_frequent)] += bytes,
            false => self.second_ineligible += bytes,
        }
    }
    pub(crate) fn add(&mut self, other: &Counters) {
        for (mine, theirs) in [(&mut self.hits, &other.hits), (&mut self.misses, &other.misses)] {
            for (a, b) in mine.iter_mut().flatten().zip(theirs.iter().flatten()) {
                *a += b;
            }
        }
        for (a, b) in self.ghost_hits.iter_mut().flatten().zip(other.ghost_hits.iter().flatten()) {
            *a += b;
        }
        let mine = self.list_hits.iter_mut().chain(&mut self.joined).chain(&mut self.second_eligible);
        for (a, b) in mine.zip(other.list_hits.iter().chain(&other.joined).chain(&other.second_eligible)) {
            *a += b;
        }
        self.prefetched_hits += other.prefetched_hits;
        self.prefetched_joins += other.prefetched_joins;
        for (a, b) in [
            (&mut self.second_ineligible, other.second_ineligible),
            (&mut self.second_hits, other.second_hits),
            (&mut self.second_misses, other.second_misses),
            (&mut self.second_bad, other.second_bad),
            (&mut self.second_bytes, other.second_bytes),
        ] {
            *a += b;
        }
        self.evicted += other.evicted;
        self.copies_evicted += other.copies_evicted;
        self.bypassed += other.bypassed;
    }
}
