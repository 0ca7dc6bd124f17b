//! The allocator of a pool: shards over the metaslabs of all top-level vdevs. Vdevs are added and grow while it is in use;
//! each shard goes over to the new ones by itself, so that allocating shares no lock with others.

use crate::kept::Kept;
use crate::metaslab::Metaslab;
use crate::shard::{Class, Dirtied, Shard, Space, Spaces};
use crate::{
    AllocRequest, BrokenMetaslab, ClassSpace, Copies, Delta, KeptSpace, LoadError, NoSpace, Preference, TXG_DEFER, TXG_SLOTS, VdevSpace,
};
use exec::{Mutex, RwLock};
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
    /// Segments of the loan: vdev offsets, sorted, disjoint.
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

/// Space to which somebody may still write, though it is no block's: nobody gets it until this is dropped.
#[derive(Debug)]
pub enum Aside {
    /// Space that was given back at once.
    Lent(Loan),
    /// Space that was freed, in a metaslab that gives nothing back which is freed.
    Held(Hold),
}

/// Allocator of a pool's space.
#[derive(Debug)]
pub struct Allocator {
    spaces: RwLock<Spaces>,
    shards: Vec<Mutex<Shard>>,
    /// Metaslabs with something to take, by txg.
    dirty: [Mutex<Vec<Dirtied>>; TXG_SLOTS],
    /// Metaslabs with frees at rest, by the place where they rest.
    resting: [Mutex<Vec<Dirtied>>; TXG_DEFER],
    /// Metaslabs taken in the txg that is being synced.
    taken: Mutex<Vec<Dirtied>>,
    /// Freed segments that a checkpoint keeps.
    kept: Kept,
}

impl Allocator {
    /// An allocator over the vdevs of `tree` with `shards` parallel allocators; no metaslab is loaded yet.
    pub fn new(tree: &VdevTree, shards: usize) -> Allocator {
        let spaces: Spaces = Arc::new(tree.tops.iter().map(|top| Arc::new(Space::new(top))).collect());
        let shards = (0..shards.max(1)).map(|number| Mutex::new(Shard::new(spaces.clone(), number))).collect();
        Allocator {
            spaces: RwLock::new(spaces),
            shards,
            dirty: Default::default(),
            resting: Default::default(),
            taken: Mutex::default(),
            kept: Kept::default(),
        }
    }

    /// Follows a change of the tree: vdevs that were added or grew get metaslabs, all free; one that left loses its own. Whoever
    /// writes must know the tree by then.
    pub fn follow(&self, tree: &VdevTree) {
        let mut current = self.spaces.write();
        let mut next: Vec<Arc<Space>> = Vec::with_capacity(tree.tops.len());
        for (index, top) in tree.tops.iter().enumerate() {
            let known = current.get(index);
            next.push(match known {
                Some(space) if !space.differs(top) => space.clone(),
                _ => {
                    let space = known.map_or_else(|| Space::new(top), |space| space.changed(top));
                    let had = known.map_or(0, |space| space.metaslabs.len());
                    // A metaslab that is new has nothing that could contradict itself; one that was loaded before keeps what it knows.
                    for metaslab in space.metaslabs.iter().skip(had).filter(|metaslab| metaslab.load(&[]).is_none()) {
                        tracing::debug!("vdev {}, metaslab {}: new, and loaded already", metaslab.place.0, metaslab.place.1);
                    }
                    space.set_aside(had);
                    Arc::new(space)
                }
            });
        }
        *current = Arc::new(next);
        let spaces = current.clone();
        drop(current);
        self.shards.iter().for_each(|shard| shard.lock().take_spaces(&spaces));
    }

    fn spaces(&self) -> Spaces {
        self.spaces.read().clone()
    }

    fn space(&self, vdev: VdevId) -> Option<Arc<Space>> {
        self.spaces.read().get(vdev.0 as usize).cloned()
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

    /// Makes known how many bytes of a metaslab are allocated, and not which ones, for a pool that is only read: nothing can be allocated there, and what
    /// is freed stays allocated (OpenZFS: `metaslab_allocated_space` of a metaslab that is not loaded).
    ///
    /// # Errors
    /// [`LoadError`] where it does not have so many bytes, or is known already.
    pub fn tell(&self, vdev: VdevId, metaslab: u32, allocated_bytes: u64) -> Result<(), LoadError> {
        let error = LoadError { vdev, metaslab };
        let (space, place) = self.metaslab(vdev, metaslab).ok_or(error)?;
        space.allocated.fetch_add(place.tell(allocated_bytes).ok_or(error)?, Ordering::Relaxed);
        Ok(())
    }

    /// Has a metaslab go on behind what was allocated there last, once it is loaded: `trail` are its allocations, oldest first, those that were
    /// freed since among them. What was freed comes again when the rest of the metaslab had its turn, as without an import: until then older
    /// states of the pool can be gone back to (OpenZFS begins anew, `ms_lbas`, in metaslabs with long free segments first).
    pub fn go_on_behind(&self, vdev: VdevId, metaslab: u32, trail: impl IntoIterator<Item = Range<u64>>) {
        if let Some((_, metaslab)) = self.metaslab(vdev, metaslab) {
            metaslab.go_on_behind(trail);
        }
    }

    /// Sets aside for intent logs the emptiest metaslab of each data vdev that has enough of them ([`vdev::has_log_metaslab`]): once all are loaded, and
    /// before anything is allocated. What lies there already stays (OpenZFS: `vdev_metaslab_init`).
    pub fn set_aside_for_logs(&self) {
        self.spaces().iter().for_each(|space| space.set_aside(0));
    }

    /// Makes a metaslab known of which nobody knows what is free, because of `why`: nothing is allocated there, and what is freed stays
    /// allocated.
    pub fn distrust(&self, vdev: VdevId, metaslab: u32, why: String) -> Result<(), LoadError> {
        let error = LoadError { vdev, metaslab };
        let (space, place) = self.metaslab(vdev, metaslab).ok_or(error)?;
        space.allocated.fetch_add(place.distrust(why).ok_or(error)?, Ordering::Relaxed);
        Ok(())
    }

    /// The metaslabs that nothing is allocated from any more.
    pub fn broken(&self) -> Vec<BrokenMetaslab> {
        let spaces = self.spaces();
        let all = spaces.iter().flat_map(|space| &space.metaslabs);
        all.filter_map(|metaslab| Some(BrokenMetaslab { vdev: metaslab.place.0, metaslab: metaslab.place.1, why: metaslab.broken()? }))
            .collect()
    }

    /// True when nobody knows what is free in a metaslab, or how much only.
    pub fn is_unknown(&self, vdev: VdevId, metaslab: u32) -> bool {
        self.metaslab(vdev, metaslab).is_some_and(|(_, metaslab)| metaslab.is_unknown())
    }

    /// Allocates [`AllocRequest::copies`] addresses; slots that are not asked for stay empty.
    pub fn alloc(&self, request: &AllocRequest) -> Result<Copies, NoSpace> {
        self.alloc_preferring(Preference::default(), request)
    }

    /// Allocates likewise, first where the block is better than among all others: on vdevs that are for its kind. Where there are none of these, or no
    /// room, it lies among all others (OpenZFS: `zio_dva_allocate`).
    pub fn alloc_preferring(&self, preference: Preference, request: &AllocRequest) -> Result<Copies, NoSpace> {
        self.alloc_by(request, |shard, dirtied| shard.alloc_preferring(preference, request, dirtied))
    }

    /// Allocates likewise on the vdevs that are for intent logs, each in its turn (OpenZFS: `spa_log_class`).
    ///
    /// # Errors
    /// [`NoSpace`], also where there is no such vdev.
    pub fn alloc_log(&self, request: &AllocRequest) -> Result<Copies, NoSpace> {
        self.alloc_by(request, |shard, dirtied| shard.alloc(request, Class::Log, dirtied))
    }

    /// Allocates one copy in the metaslabs that data vdevs set aside for intent logs, of each vdev in its turn (OpenZFS: `spa_embedded_log_class`).
    ///
    /// # Errors
    /// [`NoSpace`], also where none is set aside.
    pub fn alloc_embedded_log(&self, request: &AllocRequest) -> Result<Copies, NoSpace> {
        self.alloc_by(request, |shard, dirtied| shard.alloc_aside(request, dirtied))
    }

    /// Has the shard of a request allocate.
    fn alloc_by(
        &self,
        request: &AllocRequest,
        alloc: impl FnOnce(&mut Shard, &mut Vec<Dirtied>) -> Option<Copies>,
    ) -> Result<Copies, NoSpace> {
        let mut dirtied = Vec::new();
        let copies = alloc(&mut self.shards[(request.hint % self.shards.len() as u64) as usize].lock(), &mut dirtied);
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

    /// Takes back an allocation to which somebody may still write: nobody gets its space before that is dropped. It is free on disk. None for an
    /// impossible address.
    pub fn unalloc_aside(self: &Arc<Self>, txg: Txg, dva: &Dva) -> Option<Aside> {
        let space = self.space(dva.vdev)?;
        let (index, metaslab) = space.metaslab_at(dva.offset)?;
        if metaslab.unalloc_lent(dva.offset, dva.asize, txg) {
            space.allocated.fetch_sub(dva.asize, Ordering::Relaxed);
            let segments = std::iter::once(dva.offset..dva.offset + dva.asize).collect();
            return Some(Aside::Lent(Loan { allocator: self.clone(), vdev: dva.vdev, metaslab: index, segments }));
        }
        let hold = self.hold_at(dva)?;
        self.free(txg, dva);
        Some(Aside::Held(hold))
    }

    /// Keeps what is freed in the metaslab of an address from being used again; None for an impossible one.
    pub fn hold_at(self: &Arc<Self>, dva: &Dva) -> Option<Hold> {
        let (metaslab, _) = self.space(dva.vdev)?.metaslab_at(dva.offset)?;
        Some(self.hold(dva.vdev, metaslab).0)
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

    /// Keeps from now on what blocks occupy that were born in `txg` or before it and are freed after it; of no blocks any more with txg 0. Frees of
    /// later txgs that it is to count for must come after this (OpenZFS: `spa_checkpoint_txg`).
    pub fn set_checkpoint(&self, txg: Txg) {
        self.kept.set_checkpoint(txg);
    }

    /// Frees `dva`, of a block born in `born`, as [`Allocator::free`]; one that the checkpoint has stays allocated, and is told by
    /// [`Allocator::take_kept`].
    pub fn free_born(&self, txg: Txg, born: Txg, dva: &Dva) -> bool {
        if !self.kept.has(born, txg) {
            return self.free(txg, dva);
        }
        let Some(space) = self.space(dva.vdev) else { return false };
        let Some((index, metaslab)) = space.metaslab_at(dva.offset) else { return false };
        match metaslab.is_allocated(dva.offset, dva.asize) {
            None => false,
            Some(is_known) => !is_known || self.kept.add((dva.vdev, index), dva.offset, dva.asize),
        }
    }

    /// Segments that the checkpoint keeps of what was freed since the last call, by metaslab.
    pub fn take_kept(&self) -> Vec<KeptSpace> {
        self.kept.take()
    }

    /// Changes of `txg` that were not taken yet, by metaslab.
    pub fn take_deltas(&self, txg: Txg) -> Vec<Delta> {
        let mut dirty = std::mem::take(&mut *self.dirty[txg.0 as usize % TXG_SLOTS].lock());
        dirty.sort_unstable();
        dirty.dedup();
        let (spaces, mut deltas) = (self.spaces(), Vec::with_capacity(dirty.len()));
        for &(vdev, metaslab) in &dirty {
            let Some(place) = spaces.get(vdev.0 as usize).and_then(|space| space.metaslabs.get(metaslab as usize)) else { continue };
            let (allocs, frees) = place.take(txg);
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
        let (spaces, mut resting) = (self.spaces(), Vec::new());
        for (vdev, metaslab) in visit {
            let Some(space) = spaces.get(vdev.0 as usize) else { continue };
            let Some(place) = space.metaslabs.get(metaslab as usize) else { continue };
            let rest = place.sync_done(txg);
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
        let found = self.space(vdev).and_then(|space| space.metaslabs.get(metaslab as usize).cloned());
        found.map_or_else(Vec::new, |metaslab| metaslab.synced_allocated())
    }

    /// Segments of a metaslab that nobody could be given now: all that was written, is being written, or may be needed after a crash.
    pub fn occupied(&self, vdev: VdevId, metaslab: u32) -> Vec<Range<u64>> {
        self.metaslab(vdev, metaslab).map_or_else(Vec::new, |(_, metaslab)| metaslab.occupied())
    }

    /// The allocated segments of a metaslab as they are on disk once `txg` is, when nothing more is done in it.
    pub fn allocated_after(&self, vdev: VdevId, metaslab: u32, txg: Txg) -> Vec<Range<u64>> {
        self.metaslab(vdev, metaslab).map_or_else(Vec::new, |(_, metaslab)| metaslab.allocated_after(txg))
    }

    /// Number of segments of a metaslab that are free on disk, by log2 of their length in bytes: what the histogram of its
    /// space map holds, once everything taken so far is in it.
    pub fn synced_histogram(&self, vdev: VdevId, metaslab: u32) -> [u64; 64] {
        let found = self.space(vdev).and_then(|space| space.metaslabs.get(metaslab as usize).cloned());
        found.map_or([0; 64], |metaslab| metaslab.synced_histogram())
    }

    /// Notes what the histogram of a metaslab's space map says, as [`Allocator::synced_histogram`] does: by it the fragmentation is measured.
    pub fn note_histogram(&self, vdev: VdevId, metaslab: u32, free: &[u64; 64]) {
        if let Some((_, metaslab)) = self.metaslab(vdev, metaslab) {
            metaslab.note_histogram(free);
        }
    }

    /// Fragmentation of a vdev's free space in percent, as of the last sync; None where it is not known, or nothing is free.
    pub fn fragmentation(&self, vdev: VdevId) -> Option<u64> {
        self.space(vdev)?.fragmentation()
    }

    /// Fragmentation of one metaslab in percent likewise; 0 before it has a space map.
    pub fn metaslab_fragmentation(&self, vdev: VdevId, metaslab: u32) -> Option<u64> {
        self.metaslab(vdev, metaslab)?.1.fragmentation().map(|(percent, _)| percent)
    }

    /// Fragmentation of the vdevs that are for all blocks, in percent, weighted by their sizes; None where that of one is not known (OpenZFS:
    /// `metaslab_class_fragmentation` of `spa_normal_class`).
    pub fn class_fragmentation(&self) -> Option<u64> {
        let (mut weighted, mut total) = (0_u128, 0_u128);
        let spaces = self.spaces();
        for space in spaces.iter().filter(|space| space.top.is_normal()) {
            let bytes = u128::from(space.own_capacity());
            weighted += u128::from(space.fragmentation()?) * bytes;
            total += bytes;
        }
        weighted.checked_div(total).map(|percent| percent as u64)
    }

    pub(crate) fn metaslab(&self, vdev: VdevId, metaslab: u32) -> Option<(Arc<Space>, Arc<Metaslab>)> {
        let space = self.space(vdev)?;
        let metaslab = space.metaslabs.get(metaslab as usize)?.clone();
        Some((space, metaslab))
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
        self.space(vdev).iter().flat_map(|space| &space.metaslabs).for_each(|metaslab| metaslab.note_released(wanted));
    }

    /// Segments that became free in a metaslab since the last call, as far as it was noted.
    pub fn take_released(&self, vdev: VdevId, metaslab: u32) -> RangeTree {
        self.metaslab(vdev, metaslab).map_or_else(RangeTree::new, |(_, metaslab)| metaslab.take_released())
    }

    /// Free bytes of a metaslab.
    pub fn free_bytes(&self, vdev: VdevId, metaslab: u32) -> u64 {
        self.metaslab(vdev, metaslab).map_or(0, |(_, metaslab)| metaslab.free_bytes.load(Ordering::Relaxed))
    }

    /// Space of one top-level vdev.
    pub fn vdev_space(&self, vdev: VdevId) -> VdevSpace {
        self.space(vdev).map_or_else(VdevSpace::default, |space| space.usage())
    }

    /// Free segments of a vdev by log2 of their length.
    pub fn free_histogram(&self, vdev: VdevId) -> [u64; 64] {
        let mut sum = [0; 64];
        for metaslab in self.space(vdev).iter().flat_map(|space| &space.metaslabs) {
            for (total, count) in sum.iter_mut().zip(metaslab.histogram()) {
                *total += count;
            }
        }
        sum
    }

    /// Deflated bytes that a block of so many bytes takes at most, whichever vdev it goes to: parity of small blocks is more than
    /// the ratio of large ones tells.
    pub fn worst_dsize(&self, psize: u64) -> u64 {
        let spaces = self.spaces();
        let tops = spaces.iter().map(|space| &space.top).filter(|top| top.is_concrete() && !top.is_log);
        tops.map(|top| top.dsize(top.asize_for_psize(psize))).max().unwrap_or(psize)
    }

    /// Bytes of memory that the segments of all loaded metaslabs take, about.
    pub fn memory_bytes(&self) -> u64 {
        self.spaces().iter().flat_map(|space| &space.metaslabs).map(|metaslab| metaslab.memory_bytes()).sum()
    }

    /// Space of the data vdevs.
    pub fn class_space(&self) -> ClassSpace {
        let mut class = ClassSpace::default();
        for space in self.spaces().iter().filter(|space| space.top.is_concrete() && !space.top.is_log) {
            let (vdev, aside) = (space.usage(), space.usage_aside());
            class.allocated += vdev.allocated;
            class.capacity += vdev.capacity;
            if !space.top.is_normal() {
                class.deflated_elsewhere += space.top.dsize(vdev.allocated.saturating_sub(vdev.deferred));
                continue;
            }
            class.deferred += vdev.deferred;
            class.deflated_allocated += space.top.dsize(vdev.allocated.saturating_sub(aside.allocated));
            // What is overwritten there needs room elsewhere: all of it counts as room that is not there (OpenZFS: `spa_nonallocating_dspace`).
            if !space.top.nonallocating {
                class.deflated_capacity += space.top.dsize(vdev.capacity - aside.capacity);
                class.deflated_logs += space.top.dsize(aside.capacity);
            }
        }
        class
    }
}
