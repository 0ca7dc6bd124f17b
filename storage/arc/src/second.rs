//! What a second level is shown, and what it may have of the budget.

use crate::cache::Cache;
use crate::key::Key;
use crate::ports::{Candidate, Leaving, SecondCounts, SecondLevel, Wish};
use crate::shard::{Freed, Kind, Shown, State};
use crate::sparse::whole;
use ondisk::BlockPtr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Order in which lists are shown (OpenZFS: `l2arc_sublist_lock`).
const ORDER: [(State, Kind); 4] =
    [(State::Mfu, Kind::Metadata), (State::Mru, Kind::Metadata), (State::Mfu, Kind::Data), (State::Mru, Kind::Data)];
/// Least bytes of a list that are looked at in each shard: one block of the usual size.
const REACH_BYTES_MIN: u64 = 128 << 10;

impl Cache {
    /// Puts a second level behind the cache, for good; false when there is one already.
    pub fn set_second_level(&self, second: Arc<dyn SecondLevel>) -> bool {
        self.0.second.set(second).is_ok()
    }

    /// Copies of blocks that are about to leave, as many as `wants` takes: it is shown those of each list that give way next, as far as about
    /// `reach_bytes` of it, under a lock of the cache, and must not call it. Blocks that a second level cannot have are not shown. Compressed ones that
    /// are here as read only are compressed once more on this thread; where that gives other bytes than those on disk they are left out.
    pub fn about_to_leave(&self, reach_bytes: u64, wants: &mut dyn FnMut(&Leaving) -> Wish) -> Vec<Candidate> {
        let taken = self.shown(reach_bytes, wants);
        taken.into_iter().filter_map(|(candidate, pointer)| self.packed(candidate, pointer)).collect()
    }

    fn shown(&self, reach_bytes: u64, wants: &mut dyn FnMut(&Leaving) -> Wish) -> Vec<(Candidate, Option<BlockPtr>)> {
        let (mut taken, shards) = (Vec::new(), self.0.cells.len());
        let reach = (reach_bytes / shards as u64).max(REACH_BYTES_MIN);
        let first = self.0.cursor.fetch_add(1, Ordering::Relaxed);
        for list in ORDER {
            for at in (0..shards).map(|step| first.wrapping_add(step) & (shards - 1)) {
                let state = self.0.cells[at].0.lock();
                for Shown { block, data, pointer } in state.shard.leaving(list, reach) {
                    match wants(&block) {
                        Wish::Take => taken.push((Candidate { block, physical: data.clone() }, pointer.copied())),
                        Wish::Pass => {}
                        Wish::Enough => return taken,
                    }
                }
            }
        }
        taken
    }

    /// A candidate with its bytes as they are on disk; those of one with a pointer are as they are read.
    fn packed(&self, candidate: Candidate, pointer: Option<BlockPtr>) -> Option<Candidate> {
        let Some(bp) = pointer else { return Some(candidate) };
        if let Some(physical) = self.zio().pack_again(&bp, &whole(&bp, candidate.physical)) {
            return Some(Candidate { physical, ..candidate });
        }
        self.withhold(&bp);
        None
    }

    /// A second level cannot have the block after all.
    pub(crate) fn withhold(&self, bp: &BlockPtr) {
        let Some(key) = Key::of(bp) else { return };
        let mut freed = Freed::default();
        self.state(&key).shard.withhold(&key, Key::tag(bp), &mut freed);
        self.release(freed);
    }

    /// Charges what a second level keeps in memory about its blocks to the budget; false when it does not fit. Not to be called from within the
    /// second level's calls.
    pub fn charge_headers(&self, bytes: u64) -> bool {
        self.reserve(bytes)
    }

    /// Gives back what [`Cache::charge_headers`] charged.
    pub fn release_headers(&self, bytes: u64) {
        self.0.budget.release(bytes);
    }

    /// Counters of the second level; zeros without one.
    pub(crate) fn second_counts(&self) -> SecondCounts {
        self.0.second.get().map(|second| second.counts()).unwrap_or_default()
    }
}
