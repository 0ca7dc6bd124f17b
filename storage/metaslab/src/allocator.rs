//! The allocator of a pool: shards over the metaslabs of all top-level vdevs.

use crate::metaslab::Metaslab;
use crate::shard::{Dirtied, Shard, Space};
use crate::{AllocRequest, ClassSpace, Copies, Delta, LoadError, NoSpace, TXG_DEFER, TXG_SLOTS, VdevSpace};
use exec::Mutex;
use ondisk::{Dva, Txg, VdevId};
use range_tree::RangeTree;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::VdevTree;

/// Keeps what is freed in a metaslab from being used again, until it is dropped.
#[derive(Debug)]
pub struct Hold {
    allocator: Arc<Allocator>,
    vdev: VdevId,
    metaslab: u32,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some((space, metaslab)) = self.allocator.metaslab(self.vdev, self.metaslab) {
            let released = metaslab.release();
            space.allocated.fetch_sub(released, Ordering::Relaxed);
            space.deferred.fetch_sub(released, Ordering::Relaxed);
        }
    }
}

/// Free segments that nobody else gets, until it is dropped.
#[derive(Debug)]
pub struct Loan {
    allocator: Arc<Allocator>,
    vdev: VdevId,
    metaslab: u32,
    segments: Vec<Range<u64>>,
}

impl Loan {
    /// The segments: vdev offsets, sorted, disjoint.
    pub fn segments(&self) -> &[Range<u64>] {
        &self.segments
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some((_, metaslab)) = self.allocator.metaslab(self.vdev, self.metaslab) {
            metaslab.give_back(&self.segments);
        }
    }
}

/// The allocator.
#[derive(Debug)]
pub struct Allocator {
    spaces: Arc<Vec<Space>>,
    shards: Vec<Mutex<Shard>>,
    /// Metaslabs with something to take, by txg.
    dirty: [Mutex<Vec<Dirtied>>; TXG_SLOTS],
    /// Metaslabs with frees at rest, by the place where they rest.
    resting: [Mutex<Vec<Dirtied>>; TXG_DEFER],
    /// Metaslabs taken in the txg that is being synced.
    taken: Mutex<Vec<Dirtied>>,
}

impl Allocator {
    /// An allocator over the vdevs of `tree` with `shards` parallel allocators; no metaslab is loaded yet.
    pub fn new(tree: &VdevTree, shards: usize) -> Allocator {
        let spaces: Arc<Vec<Space>> = Arc::new(tree.tops.iter().map(Space::new).collect());
        let shards = (0..shards.max(1)).map(|number| Mutex::new(Shard::new(spaces.clone(), number))).collect();
        Allocator { spaces, shards, dirty: Default::default(), resting: Default::default(), taken: Mutex::default() }
    }

    fn space(&self, vdev: VdevId) -> Option<&Space> {
        self.spaces.get(vdev.0 as usize)
    }

    /// Number of metaslabs of `vdev`.
    pub fn metaslab_count(&self, vdev: VdevId) -> u32 {
        self.space(vdev).map_or(0, |space| space.metaslabs.len() as u32)
    }

    /// Makes a metaslab usable: `allocated` are its allocated segments as replayed from its space map, in any order.
    pub fn load(&self, vdev: VdevId, metaslab: u32, allocated: &[Range<u64>]) -> Result<(), LoadError> {
        let error = LoadError { vdev, metaslab };
        let space = self.space(vdev).ok_or(error)?;
        let bytes = space.metaslabs.get(metaslab as usize).ok_or(error)?.load(allocated).ok_or(error)?;
        space.allocated.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Allocates [`AllocRequest::copies`] addresses; slots that are not asked for stay empty.
    pub fn alloc(&self, request: &AllocRequest) -> Result<Copies, NoSpace> {
        let mut dirtied = Vec::new();
        let shard = &self.shards[(request.hint % self.shards.len() as u64) as usize];
        let copies = shard.lock().alloc(request, &mut dirtied);
        if !dirtied.is_empty() {
            self.dirty[request.txg.0 as usize % TXG_SLOTS].lock().append(&mut dirtied);
        }
        copies.ok_or(NoSpace)
    }

    /// Takes back an allocation whose block was never written (OpenZFS: `metaslab_unalloc_dva`).
    pub fn unalloc(&self, txg: Txg, dva: &Dva) {
        let Some(space) = self.space(dva.vdev) else { return };
        let Some((_, metaslab)) = space.metaslab_at(dva.offset) else { return };
        if metaslab.unalloc(dva.offset, dva.asize, txg) {
            space.allocated.fetch_sub(dva.asize, Ordering::Relaxed);
        } else {
            self.free(txg, dva);
        }
    }

    /// Takes the given address, for blocks that were written before a crash (OpenZFS: `metaslab_claim`).
    pub fn claim(&self, txg: Txg, dva: &Dva) -> Result<(), NoSpace> {
        let space = self.space(dva.vdev).ok_or(NoSpace)?;
        let (index, metaslab) = space.metaslab_at(dva.offset).ok_or(NoSpace)?;
        if metaslab.claim(dva.offset, dva.asize, txg).ok_or(NoSpace)? {
            self.mark(txg, (dva.vdev, index));
        }
        space.allocated.fetch_add(dva.asize, Ordering::Relaxed);
        Ok(())
    }

    fn mark(&self, txg: Txg, dirtied: Dirtied) {
        self.dirty[txg.0 as usize % TXG_SLOTS].lock().push(dirtied);
    }

    /// Frees `dva` in `txg`; its space is reusable after two more txgs. False when it is not allocated: the caller's block
    /// pointer is wrong, and nothing was changed.
    pub fn free(&self, txg: Txg, dva: &Dva) -> bool {
        let Some(space) = self.space(dva.vdev) else { return false };
        let Some((index, metaslab)) = space.metaslab_at(dva.offset) else { return false };
        match metaslab.free(dva.offset, dva.asize, txg) {
            None => false,
            Some(clean) => {
                if clean {
                    self.mark(txg, (dva.vdev, index));
                }
                true
            }
        }
    }

    /// What happened in `txg` and was not taken yet, by metaslab.
    pub fn take_deltas(&self, txg: Txg) -> Vec<Delta> {
        let mut dirty = std::mem::take(&mut *self.dirty[txg.0 as usize % TXG_SLOTS].lock());
        dirty.sort_unstable();
        dirty.dedup();
        let mut deltas = Vec::with_capacity(dirty.len());
        for &(vdev, metaslab) in &dirty {
            let (allocs, frees) = self.spaces[vdev.0 as usize].metaslabs[metaslab as usize].take(txg);
            if !allocs.is_empty() || !frees.is_empty() {
                deltas.push(Delta { vdev, metaslab, allocs, frees });
            }
        }
        self.taken.lock().append(&mut dirty);
        deltas
    }

    /// `txg` is on disk: its frees begin their rest, those of `txg − 2` become reusable (OpenZFS: `metaslab_sync_done`).
    /// Everything of `txg` must have been taken.
    pub fn sync_done(&self, txg: Txg) {
        let place = txg.0 as usize % TXG_DEFER;
        let mut visit = std::mem::take(&mut *self.resting[place].lock());
        visit.append(&mut self.taken.lock());
        visit.sort_unstable();
        visit.dedup();
        let mut resting = Vec::new();
        for (vdev, metaslab) in visit {
            let space = &self.spaces[vdev.0 as usize];
            let rest = space.metaslabs[metaslab as usize].sync_done(txg);
            space.allocated.fetch_sub(rest.released, Ordering::Relaxed);
            space.deferred.fetch_sub(rest.released, Ordering::Relaxed);
            space.deferred.fetch_add(rest.deferred, Ordering::Relaxed);
            if rest.deferred > 0 {
                resting.push((vdev, metaslab));
            }
        }
        *self.resting[place].lock() = resting;
    }

    /// True while frees rest that a further txg would make reusable.
    pub fn has_deferred(&self) -> bool {
        self.resting.iter().any(|place| !place.lock().is_empty())
    }

    /// The allocated segments that a space map rewritten from scratch must hold, once everything taken so far is in it
    /// (OpenZFS: `metaslab_condense`).
    pub fn synced_allocated(&self, vdev: VdevId, metaslab: u32) -> Vec<Range<u64>> {
        let found = self.space(vdev).and_then(|space| space.metaslabs.get(metaslab as usize));
        found.map_or_else(Vec::new, |metaslab| metaslab.synced_allocated())
    }

    /// Number of segments of a metaslab that are free on disk, by log2 of their length in bytes: what the histogram of its
    /// space map holds, once everything taken so far is in it.
    pub fn synced_histogram(&self, vdev: VdevId, metaslab: u32) -> [u64; 64] {
        let found = self.space(vdev).and_then(|space| space.metaslabs.get(metaslab as usize));
        found.map_or([0; 64], |metaslab| metaslab.synced_histogram())
    }

    fn metaslab(&self, vdev: VdevId, metaslab: u32) -> Option<(&Space, &Metaslab)> {
        let space = self.space(vdev)?;
        Some((space, space.metaslabs.get(metaslab as usize)?))
    }

    /// Tells what is allocated on disk in a metaslab, and keeps it from being written to until the hold ends: what is freed
    /// meanwhile is not handed out again. What is allocated in txgs that are not synced is not in it (OpenZFS:
    /// `metaslab_disable`, which keeps the whole metaslab from being used).
    pub fn hold(self: &Arc<Self>, vdev: VdevId, metaslab: u32) -> (Hold, Vec<Range<u64>>) {
        let allocated = self.metaslab(vdev, metaslab).map_or_else(Vec::new, |(_, metaslab)| metaslab.hold());
        (Hold { allocator: self.clone(), vdev, metaslab }, allocated)
    }

    /// Lends what is free in a part of a metaslab: nobody gets it until the loan ends. Its bytes are free on disk too, and were
    /// so two txgs ago. With `only` just what is in that set as well.
    pub fn lend(self: &Arc<Self>, vdev: VdevId, metaslab: u32, window: &Range<u64>, only: Option<&RangeTree>) -> Loan {
        let segments = self.metaslab(vdev, metaslab).map_or_else(Vec::new, |(_, metaslab)| metaslab.lend(window, only));
        Loan { allocator: self.clone(), vdev, metaslab, segments }
    }

    /// Has every metaslab of `vdev` note what becomes free, or forget it.
    pub fn note_released(&self, vdev: VdevId, wanted: bool) {
        self.space(vdev).map_or(&[][..], |space| &space.metaslabs).iter().for_each(|metaslab| metaslab.note_released(wanted));
    }

    /// What became free in a metaslab since the last call, as far as it was noted.
    pub fn take_released(&self, vdev: VdevId, metaslab: u32) -> RangeTree {
        self.metaslab(vdev, metaslab).map_or_else(RangeTree::new, |(_, metaslab)| metaslab.take_released())
    }

    /// Free bytes of a metaslab.
    pub fn free_bytes(&self, vdev: VdevId, metaslab: u32) -> u64 {
        self.metaslab(vdev, metaslab).map_or(0, |(_, metaslab)| metaslab.free_bytes.load(Ordering::Relaxed))
    }

    /// Space of one top-level vdev.
    pub fn vdev_space(&self, vdev: VdevId) -> VdevSpace {
        self.space(vdev).map_or_else(VdevSpace::default, |space| VdevSpace {
            allocated: space.allocated.load(Ordering::Relaxed),
            capacity: space.capacity,
            deferred: space.deferred.load(Ordering::Relaxed),
        })
    }

    /// Free segments of a vdev by log2 of their length.
    pub fn free_histogram(&self, vdev: VdevId) -> [u64; 64] {
        let mut sum = [0; 64];
        for metaslab in self.space(vdev).map_or(&[][..], |space| &space.metaslabs) {
            for (total, count) in sum.iter_mut().zip(metaslab.histogram()) {
                *total += count;
            }
        }
        sum
    }

    /// Deflated bytes that a block of so many bytes takes at most, whichever vdev it goes to: parity of small blocks is more than
    /// the ratio of large ones tells.
    pub fn worst_dsize(&self, psize: u64) -> u64 {
        let tops = self.spaces.iter().map(|space| &space.top).filter(|top| top.is_concrete() && !top.is_log);
        tops.map(|top| top.dsize(top.asize_for_psize(psize))).max().unwrap_or(psize)
    }

    /// Bytes of memory that the segments of all loaded metaslabs take, about.
    pub fn memory_bytes(&self) -> u64 {
        self.spaces.iter().flat_map(|space| &space.metaslabs).map(|metaslab| metaslab.memory_bytes()).sum()
    }

    /// Space of the class of data vdevs.
    pub fn class_space(&self) -> ClassSpace {
        let mut class = ClassSpace::default();
        for space in self.spaces.iter().filter(|space| space.top.is_concrete() && !space.top.is_log) {
            let vdev = self.vdev_space(space.top.id);
            class.allocated += vdev.allocated;
            class.capacity += vdev.capacity;
            class.deferred += vdev.deferred;
            class.deflated_allocated += space.top.dsize(vdev.allocated);
            class.deflated_capacity += space.top.dsize(vdev.capacity);
        }
        class
    }
}
