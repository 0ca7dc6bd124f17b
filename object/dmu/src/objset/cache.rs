//! The dnodes in memory, by number: all that are in use, and a bounded number of others.
//!
//! A dnode that somebody holds, or that is dirty (the dirty lists hold it), stays. The others are dropped when there are
//! many, the recently used ones last.

use crate::{Dnode, DnodeEvent};
use exec::Mutex;
use ondisk::ObjectId;
use std::collections::HashMap;
use std::sync::Arc;

const SHARDS: usize = 16;
/// Dnodes per shard above which unused ones are dropped.
const SHARD_DNODES: usize = 4096;

#[derive(Default)]
struct Shard {
    dnodes: HashMap<u64, Arc<Dnode>>,
    /// Counts removals: a dnode that was decoded before one may be out of date.
    removals: u64,
    sweep_at: usize,
}

/// Map of the dnodes in memory, in shards.
#[derive(Default)]
pub(super) struct DnodeCache {
    shards: [Mutex<Shard>; SHARDS],
}

impl DnodeCache {
    fn shard(&self, object: ObjectId) -> &Mutex<Shard> {
        // Neighbours are created together by one thread: keep 32 of them in one shard.
        &self.shards[(object.0 / 32) as usize % SHARDS]
    }

    /// The dnode, or the state to pass to [`DnodeCache::insert`].
    pub(super) fn get(&self, object: ObjectId) -> Result<Arc<Dnode>, u64> {
        let shard = self.shard(object).lock();
        let Some(dnode) = shard.dnodes.get(&object.0) else { return Err(shard.removals) };
        dnode.note_use();
        Ok(dnode.clone())
    }

    /// The dnode, if it is here; it does not count as used.
    pub(super) fn peek(&self, object: ObjectId) -> Option<Arc<Dnode>> {
        self.shard(object).lock().dnodes.get(&object.0).cloned()
    }

    /// Adds a dnode that was decoded after `get` gave `seen`, unless another thread was faster (then gives that one);
    /// `None` when it may be out of date.
    pub(super) fn insert(&self, dnode: Arc<Dnode>, seen: u64) -> Option<Arc<Dnode>> {
        let mut shard = self.shard(dnode.object()).lock();
        if let Some(known) = shard.dnodes.get(&dnode.object().0) {
            return Some(known.clone());
        }
        if shard.removals != seen {
            return None;
        }
        shard.add(dnode.clone());
        Some(dnode)
    }

    /// Adds the dnode of a new object.
    pub(super) fn add(&self, dnode: Arc<Dnode>) {
        DnodeEvent::Allocated.count();
        self.shard(dnode.object()).lock().add(dnode);
    }

    /// Forgets a freed object.
    pub(super) fn remove(&self, object: ObjectId) {
        let mut shard = self.shard(object).lock();
        shard.removals += 1;
        shard.dnodes.remove(&object.0);
    }
}

impl Shard {
    fn add(&mut self, dnode: Arc<Dnode>) {
        if self.dnodes.len() >= self.sweep_at.max(SHARD_DNODES) {
            let keep = |dnode: &Arc<Dnode>| Arc::strong_count(dnode) > 1 || dnode.take_use();
            let before = self.dnodes.len();
            self.dnodes.retain(|_, dnode| keep(dnode));
            DnodeEvent::Evicted.add((before - self.dnodes.len()) as u64);
            self.removals += 1;
            // When nearly all are held, the next sweep waits until as many again came in.
            self.sweep_at = self.dnodes.len() + SHARD_DNODES / 2;
        }
        self.dnodes.insert(dnode.object().0, dnode);
    }
}
