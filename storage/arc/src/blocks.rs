//! The blocks in the cache one by one, for those who look at what is cached (OpenZFS: kstats `dbufs` and `dbufstats`).
//!
//! What OpenZFS calls the cache of dbufs are here the decompressed copies beside compressed bytes: they have a budget of their own and
//! go first when memory is short.

use crate::cache::Cache;
use crate::origin::{CachedBlock, Origin};
use crate::shard::{Lookup, State};
use ondisk::{BlockId, BlockPtr, Bookmark, Level, ObjectId, ObjectType, ObjsetId};

/// Counts of what the cache holds and did, as `dbufstats` tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Number of blocks.
    pub blocks: u64,
    /// Looks that found their block.
    pub hits: u64,
    /// Looks that did not.
    pub misses: u64,
    /// Parts of the cache with a lock of their own.
    pub shards: u64,
    /// Bytes of decompressed copies.
    pub copy_bytes: u64,
    /// Most bytes that decompressed copies ever were.
    pub copy_bytes_most: u64,
    /// Bytes that decompressed copies have when memory is short.
    pub copy_bytes_target: u64,
    /// Copies that were dropped.
    pub copies_evicted: u64,
    /// Copies and their bytes, by level of the block.
    pub copies: Vec<(u64, u64)>,
}

/// Levels that blocks can have (OpenZFS: `DN_MAX_LEVELS`).
const LEVELS: usize = 12;

impl Cache {
    /// True when the block's bytes are in memory, compressed or not. Changes nothing of how long they stay unless they are kept anyway.
    pub fn holds(&self, bp: &BlockPtr) -> bool {
        Cache::to_probe(bp).is_some_and(|wanted| !matches!(self.probe(&wanted, false), Lookup::Miss))
    }

    /// The blocks in the cache, ghosts not among them, nor the roots of object sets, which are no blocks of an object. Shard by shard: what comes
    /// and goes meanwhile may be missed.
    pub fn blocks(&self) -> Vec<CachedBlock> {
        self.fold_states(Vec::new(), |mut all, state| {
            let live = |(origin, list, block): (Origin, State, CachedBlock)| {
                let bookmark = Bookmark {
                    objset: ObjsetId(origin.objset),
                    object: ObjectId(origin.object),
                    level: Level(origin.level),
                    block: BlockId(origin.block),
                };
                let object_type = ObjectType(origin.object_type);
                let (is_frequent, is_uncached) = (list == State::Mfu, list == State::Uncached);
                let logical_bytes = u64::from(origin.logical_bytes);
                CachedBlock { bookmark, object_type, logical_bytes, is_frequent, is_uncached, ..block }
            };
            all.extend(state.shard.live().map(live).filter(|block| block.object_type != ObjectType::OBJSET));
            all
        })
    }

    /// Counts of the blocks.
    pub fn block_counts(&self) -> BlockCounts {
        let (counters, blocks) = (self.counters(), self.blocks());
        let (copy_bytes, copy_bytes_most) = self.copy_bytes();
        let mut counts = BlockCounts {
            blocks: blocks.len() as u64,
            hits: counters.hits.iter().flatten().sum(),
            misses: counters.misses.iter().flatten().sum(),
            shards: self.fold_states(0, |count, _| count + 1),
            copy_bytes,
            copy_bytes_most,
            copy_bytes_target: self.copies_min(),
            copies_evicted: counters.copies_evicted,
            copies: vec![(0, 0); LEVELS],
        };
        for block in blocks.iter().filter(|block| block.has_copy()) {
            let (count, bytes) = &mut counts.copies[usize::from(block.bookmark.level.0).min(LEVELS - 1)];
            (*count, *bytes) = (*count + 1, *bytes + block.logical_bytes);
        }
        counts
    }
}
