//! One shard of the cache: its entries and their lists, without locks, clocks or I/O. Which list gives way is decided for all
//! shards together ([`crate::balance`]).
//!
//! ```text
//!            miss                 second use                 evict                evict
//!  (absent) ──────► MRU ─────────────────────► MFU      MRU ─────► MRU ghost   MFU ─────► MFU ghost
//!      ▲             insert()      lookup()              evict_from()           evict_from()
//!      │                                        ghosts: hit ─► Balance::ghost_hit(), insert() puts the block into MFU
//!      ├──────────────── evict_from(), trim_headers(), remove() ◄─────────────────────────────────
//!      └─ lookup() of a block that is not to be kept ◄─ uncached ◄─ insert() of one read ahead
//! ```
//! Invariant: `charged` is the sum over entries of [`HEADER_BYTES`] plus the bytes they hold; every change of it is
//! reported to the caller, who keeps the budget of all shards.

use crate::balance::Balance;
use crate::key::{Key, KeyMap};
use crate::lists::{Links, List};
use crate::origin::{CachedBlock, Origin};
use crate::ports::Leaving;
use crate::stats::Counters;
use abd::{Abd, PAGE_BYTES};
use ondisk::{BlockPtr, ObjsetId, SECTOR_SHIFT};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that an entry costs beside its data.
pub(crate) const HEADER_BYTES: u64 = 200;
/// A second use sooner than this does not make a block frequently used (OpenZFS: `ARC_MINTIME`, 62 ms).
const FREQUENT_AFTER_NS: u64 = 62_000_000;
/// Number of ghosts that a shard may always remember.
const GHOSTS_MIN: u64 = 16;
/// One visit takes at most this part of a list, so that no shard gives up what others keep.
const VISIT_SHIFT: u32 = 3;

/// Kind of a block: user data or metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data = 0,
    Metadata = 1,
}

/// List that an entry is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Mru = 0,
    Mfu = 1,
    MruGhost = 2,
    MfuGhost = 3,
    /// List of what is here for a moment only ([`Keep`]; OpenZFS: `arc_uncached`).
    Uncached = 4,
}

impl State {
    /// Every list, in the order in which a cache is emptied.
    const ALL: [State; 5] = [State::Uncached, State::Mru, State::Mfu, State::MruGhost, State::MfuGhost];

    fn is_ghost(self) -> bool {
        matches!(self, State::MruGhost | State::MfuGhost)
    }
}

/// Way in which a block is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Demand,
    Prefetch,
    /// A look only: a hit is a demand, a miss is none, because the read follows.
    Probe,
}

/// A block that is asked for or put in, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) key: Key,
    pub(crate) tag: u64,
    pub(crate) kind: Kind,
    pub(crate) access: Access,
    pub(crate) keep: Keep,
    /// True when the bytes that are put in are those on disk, or can be told from them by the checksum: a second level may have them.
    pub(crate) is_verifiable: bool,
    /// Block of an object that it is.
    pub(crate) origin: Origin,
}

/// Time for which the cache may hold a block (`primarycache`, OpenZFS: `ARC_FLAG_UNCACHED`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keep {
    /// Not at all; one that was read ahead, until it is used.
    Once,
    /// A moment, for a reader who takes it in parts and calls [`crate::Cache::forget`] when he is through: it gives way before
    /// everything else, and all of its like take a small part of the budget.
    Lingers,
    /// As its use deserves.
    #[default]
    Kept,
}

/// Bytes that a buffer costs: whole pages.
pub(crate) fn charge(data: &Abd) -> u64 {
    data.len().next_multiple_of(PAGE_BYTES) as u64
}

/// Bytes that a block's entry holds: as on disk, as read, or both.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    pub(crate) physical: Option<Abd>,
    pub(crate) logical: Option<Abd>,
    /// Pointer of a compressed block that is here as read only, where a second level may want it.
    pub(crate) pointer: Option<Box<BlockPtr>>,
}

/// Bytes that a pointer costs.
const POINTER_BYTES: u64 = BlockPtr::BYTES as u64 + 16;

impl Body {
    /// The bytes as on disk: the compressed ones, or else the only ones.
    fn as_on_disk(&self) -> Option<&Abd> {
        self.physical.as_ref().or(self.logical.as_ref())
    }
    fn physical_bytes(&self) -> u64 {
        self.physical.as_ref().map_or(0, charge)
    }
    fn logical_bytes(&self) -> u64 {
        self.logical.as_ref().map_or(0, charge)
    }
    fn pointer_bytes(&self) -> u64 {
        if self.pointer.is_some() { POINTER_BYTES } else { 0 }
    }
    /// Number of bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.physical_bytes() + self.logical_bytes() + self.pointer_bytes()
    }
    /// Bytes of decompressed copies: those that could be made again from the physical bytes.
    pub(crate) fn overhead_bytes(&self) -> u64 {
        if self.physical.is_some() { self.logical_bytes() } else { 0 }
    }
}

#[derive(Debug)]
struct Entry {
    key: Key,
    tag: u64,
    body: Body,
    /// Bytes that the entry held when it was last alive; what a ghost counts as.
    size: u64,
    state: State,
    kind: Kind,
    prefetched: bool,
    is_verifiable: bool,
    /// True for a ghost that was wanted: counted once, until its block is here again.
    recalled: bool,
    stamp_ns: u64,
    origin: Origin,
    /// Numbers of uses while recently used, and while frequently used.
    uses: [u32; 2],
    links: Links,
    copies: Links,
}

/// A block as a second level is shown it, with its bytes: as they are on disk or, with a pointer, as they are read.
pub(crate) struct Shown<'a> {
    pub(crate) block: Leaving,
    pub(crate) data: &'a Abd,
    pub(crate) pointer: Option<&'a BlockPtr>,
}

impl Entry {
    /// True for a block that a second level could have.
    fn is_eligible(&self) -> bool {
        self.is_verifiable || self.body.pointer.is_some()
    }

    /// The block as a second level is shown it; None where it cannot have it.
    fn leaving(&self) -> Option<Shown<'_>> {
        let pointer = self.body.pointer.as_deref();
        let data = match pointer {
            Some(_) => self.body.logical.as_ref()?,
            None => self.body.as_on_disk().filter(|_| self.is_verifiable)?,
        };
        let block = Leaving {
            name: self.key.name(self.tag),
            objset: ObjsetId(self.origin.objset),
            physical_bytes: pointer.map_or(data.len(), BlockPtr::psize),
            logical_bytes: self.origin.logical_bytes,
            address: self.key.address(u64::from(self.origin.sectors) << SECTOR_SHIFT),
            compression: self.origin.compression,
            is_protected: self.origin.is_protected,
            is_metadata: self.kind == Kind::Metadata,
            is_frequent: self.state == State::Mfu,
            is_prefetched: self.prefetched,
        };
        Some(Shown { block, data, pointer })
    }
}

/// Bytes of decompressed copies in all shards of a cache, and the most that they ever were.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    bytes: AtomicU64,
    most: AtomicU64,
}

impl Copies {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
    fn add(&self, bytes: u64) {
        let sum = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most.fetch_max(sum, Ordering::Relaxed);
    }
    fn sub(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Result of a lookup.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// The logical bytes.
    Hit(Abd),
    /// Only the physical bytes: decompress, then `attach`.
    Compressed(Abd),
    /// No bytes at all.
    Miss,
}

/// Things that a call gave back: the charge to return to the budget, and buffers to drop outside the lock.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    pub(crate) bytes: u64,
    pub(crate) buffers: Vec<Abd>,
}

impl Freed {
    /// Takes over what another call gave back; its bytes.
    pub(crate) fn merge(&mut self, other: Freed) -> u64 {
        let bytes = other.bytes;
        self.bytes += bytes;
        self.buffers.extend(other.buffers);
        bytes
    }
    fn take(&mut self, body: Body) {
        self.bytes += body.bytes();
        self.buffers.extend(body.physical);
        self.buffers.extend(body.logical);
    }
}

/// The policy state of one shard.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    map: KeyMap<u32>,
    slab: Vec<Entry>,
    vacant: Vec<u32>,
    lists: [[List; 2]; 5],
    sizes: [[u64; 2]; 5],
    copies: List,
    overhead: u64,
    /// Bytes held in compressed form.
    compressed: u64,
    /// Bytes of decompressed copies in all shards of the cache.
    copies_total: Arc<Copies>,
    /// Sizes of the lists of all shards.
    balance: Arc<Balance>,
    pub(crate) counters: Counters,
}

impl Shard {
    /// An empty shard of a cache that counts its decompressed copies in `copies_total`, and its lists in `balance`.
    pub(crate) fn new(copies_total: Arc<Copies>, balance: Arc<Balance>) -> Shard {
        Shard { copies_total, balance, ..Shard::default() }
    }
    /// Bytes of blocks on a list of live or ghost entries.
    pub(crate) fn size(&self, state: State, kind: Kind) -> u64 {
        self.sizes[state as usize][kind as usize]
    }
    /// Bytes of compressed data, and of everything alive.
    pub(crate) fn compressed_and_all(&self) -> (u64, u64) {
        (self.compressed, self.live_bytes())
    }
    /// Bytes of decompressed copies.
    pub(crate) fn overhead(&self) -> u64 {
        self.overhead
    }
    /// Entries, ghosts included.
    pub(crate) fn entries(&self) -> u64 {
        self.map.len() as u64
    }
    /// The blocks that are here, and on which list: what their origin and the list say is for the caller to fill in.
    pub(crate) fn live(&self) -> impl Iterator<Item = (Origin, State, CachedBlock)> {
        let entries = self.map.values().map(|&index| &self.slab[index as usize]).filter(|entry| !entry.state.is_ghost());
        entries.map(|entry| {
            let block = CachedBlock {
                held_bytes: entry.body.bytes(),
                is_metadata: entry.kind == Kind::Metadata,
                is_decompressed: entry.body.logical.is_some(),
                is_compressed: entry.body.physical.is_some(),
                is_prefetched: entry.prefetched,
                used_ns: entry.stamp_ns,
                uses: entry.uses,
                ..CachedBlock::default()
            };
            (entry.origin, entry.state, block)
        })
    }
    /// The shard's share of the budget in use.
    #[cfg(test)]
    pub(crate) fn charged(&self) -> u64 {
        self.map.values().map(|&index| HEADER_BYTES + self.slab[index as usize].body.bytes()).sum()
    }
    fn live_bytes(&self) -> u64 {
        [State::Mru, State::Mfu, State::Uncached].iter().flat_map(|&state| self.sizes[state as usize]).sum()
    }

    fn link(&mut self, index: u32) {
        let Entry { state, kind, size, .. } = self.slab[index as usize];
        self.lists[state as usize][kind as usize].push_front(&mut self.slab, index, |entry| &mut entry.links);
        self.sizes[state as usize][kind as usize] += size;
        self.balance.add(state, kind, size);
    }
    fn unlink(&mut self, index: u32) {
        let Entry { state, kind, size, .. } = self.slab[index as usize];
        self.lists[state as usize][kind as usize].remove(&mut self.slab, index, |entry| &mut entry.links);
        self.sizes[state as usize][kind as usize] -= size;
        self.balance.sub(state, kind, size);
    }
    /// Accounts for what the entry holds; undone by `unlink_copy` before the body changes.
    fn link_copy(&mut self, index: u32) {
        self.compressed += self.slab[index as usize].body.physical_bytes();
        let overhead = self.slab[index as usize].body.overhead_bytes();
        if overhead > 0 {
            self.overhead += overhead;
            self.copies_total.add(overhead);
            self.copies.push_front(&mut self.slab, index, |entry| &mut entry.copies);
        }
    }
    fn unlink_copy(&mut self, index: u32) {
        self.compressed -= self.slab[index as usize].body.physical_bytes();
        let overhead = self.slab[index as usize].body.overhead_bytes();
        if overhead > 0 {
            self.overhead -= overhead;
            self.copies_total.sub(overhead);
            self.copies.remove(&mut self.slab, index, |entry| &mut entry.copies);
        }
    }

    /// Finds a block and counts the use; `freed` takes what is let go of.
    pub(crate) fn lookup(&mut self, ask: &Ask, now_ns: u64, freed: &mut Freed) -> Lookup {
        let Ask { key, tag, kind, access, keep, .. } = *ask;
        let found = self.map.get(&key).copied().filter(|&index| self.slab[index as usize].tag == tag);
        let Some(index) = found else {
            self.counters.miss(access, kind);
            return Lookup::Miss;
        };
        let Entry { state, size, recalled, .. } = self.slab[index as usize];
        if state.is_ghost() {
            self.counters.miss(access, kind);
            if access != Access::Probe && !recalled {
                self.slab[index as usize].recalled = true;
                self.counters.ghost_hits[state as usize - 2][kind as usize] += 1;
                self.balance.ghost_hit(state, kind, size);
            }
            return Lookup::Miss;
        }
        self.counters.hit(access, kind, state);
        if state != State::Uncached {
            let uses = &mut self.slab[index as usize].uses[state as usize];
            *uses = uses.saturating_add(1);
        }
        if access != Access::Prefetch && self.slab[index as usize].prefetched {
            self.counters.prefetched_hits += 1;
        }
        let body = &self.slab[index as usize].body;
        let lookup = match (&body.logical, &body.physical) {
            (Some(logical), _) => Lookup::Hit(logical.clone()),
            (None, Some(physical)) => Lookup::Compressed(physical.clone()),
            (None, None) => Lookup::Miss,
        };
        match (access, state) {
            (Access::Prefetch, _) => {}
            (Access::Demand, State::Uncached) if keep == Keep::Once => self.discard(index, freed),
            (_, State::Uncached) if keep < Keep::Kept => {}
            _ => self.touch(index, now_ns),
        }
        lookup
    }

    /// True when the block's logical bytes are there.
    pub(crate) fn is_unpacked(&self, key: &Key, tag: u64) -> bool {
        let entry = self.map.get(key).map(|&index| &self.slab[index as usize]);
        entry.is_some_and(|entry| entry.tag == tag && entry.body.logical.is_some())
    }

    /// A demand use of a live entry: recently used becomes frequently used, unless the uses are one burst.
    fn touch(&mut self, index: u32, now_ns: u64) {
        let entry = &mut self.slab[index as usize];
        let burst = now_ns.saturating_sub(entry.stamp_ns) < FREQUENT_AFTER_NS;
        let first = std::mem::take(&mut entry.prefetched);
        let (state, kind) = (entry.state, entry.kind);
        if (first || burst) && state != State::Uncached {
            if first {
                entry.stamp_ns = now_ns;
            }
            return;
        }
        entry.stamp_ns = now_ns;
        let copied = entry.body.overhead_bytes() > 0;
        if state == State::Mfu {
            // Stays what it is: only its place changes.
            let list = &mut self.lists[state as usize][kind as usize];
            list.remove(&mut self.slab, index, |entry| &mut entry.links);
            list.push_front(&mut self.slab, index, |entry| &mut entry.links);
        } else {
            self.unlink(index);
            self.slab[index as usize].state = if state == State::Uncached { State::Mru } else { State::Mfu };
            self.link(index);
        }
        if copied {
            self.copies.remove(&mut self.slab, index, |entry| &mut entry.copies);
            self.copies.push_front(&mut self.slab, index, |entry| &mut entry.copies);
        }
    }

    /// Puts a block in; the caller has reserved [`HEADER_BYTES`] plus the body's bytes. Replaces an older version. A block
    /// that a ghost remembers goes where a longer list would have kept it.
    pub(crate) fn insert(&mut self, ask: &Ask, body: Body, now_ns: u64) -> Freed {
        let Ask { key, tag, kind, access, keep, is_verifiable, origin } = *ask;
        let mut freed = Freed::default();
        let mut state = if keep == Keep::Kept { State::Mru } else { State::Uncached };
        if let Some(&index) = self.map.get(&key) {
            let old = &self.slab[index as usize];
            if old.tag == tag && keep == Keep::Kept {
                state = match old.state {
                    State::Mfu | State::MfuGhost => State::Mfu,
                    State::MruGhost if !old.prefetched => State::Mfu,
                    _ => State::Mru,
                };
            }
            self.discard(index, &mut freed);
        }
        let prefetched = access == Access::Prefetch;
        let size = body.bytes();
        let links = Links::default();
        let (recalled, uses, copies, stamp_ns) = (false, [0; 2], links, now_ns);
        let entry = Entry { key, tag, body, size, state, kind, prefetched, is_verifiable, recalled, stamp_ns, origin, uses, links, copies };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.slab[index as usize] = entry;
                index
            }
            None => {
                self.slab.push(entry);
                self.slab.len() as u32 - 1
            }
        };
        self.map.insert(key, index);
        self.link(index);
        self.link_copy(index);
        freed
    }

    /// Adds the decompressed copy to an entry; the caller has reserved its bytes. False when there is no use for it.
    pub(crate) fn attach(&mut self, key: &Key, tag: u64, logical: &Abd) -> bool {
        let Some(&index) = self.map.get(key) else { return false };
        let entry = &self.slab[index as usize];
        if entry.tag != tag || entry.state.is_ghost() || entry.body.logical.is_some() {
            return false;
        }
        self.unlink(index);
        self.unlink_copy(index);
        let entry = &mut self.slab[index as usize];
        entry.body.logical = Some(logical.clone());
        entry.size = entry.body.bytes();
        self.link(index);
        self.link_copy(index);
        true
    }

    /// Forgets a block, its ghost too.
    pub(crate) fn remove(&mut self, key: &Key) -> Freed {
        let mut freed = Freed::default();
        if let Some(&index) = self.map.get(key) {
            self.discard(index, &mut freed);
        }
        freed
    }

    fn discard(&mut self, index: u32, freed: &mut Freed) {
        self.unlink(index);
        self.unlink_copy(index);
        let entry = &mut self.slab[index as usize];
        freed.take(std::mem::take(&mut entry.body));
        freed.bytes += HEADER_BYTES;
        let key = entry.key;
        self.map.remove(&key);
        self.vacant.push(index);
    }

    /// Gives back `need` bytes or more of one list, least recently used first, but only a part of a long one; live entries
    /// leave ghosts behind. The bytes of ghosts are those that they remember.
    pub(crate) fn evict_from(&mut self, (state, kind): (State, Kind), need: u64, freed: &mut Freed) -> u64 {
        let most = self.size(state, kind) >> VISIT_SHIFT;
        let mut taken = 0;
        while taken < need && (taken == 0 || taken < most) {
            let Some(index) = self.lists[state as usize][kind as usize].back() else { break };
            taken += self.slab[index as usize].size;
            match state {
                State::Mru | State::Mfu => self.retire(index, freed),
                State::MruGhost | State::MfuGhost | State::Uncached => self.discard(index, freed),
            }
        }
        self.trim_headers(freed);
        taken
    }

    /// Blocks of a list that a second level can have, the next to give way first, as far as `reach_bytes` of the list.
    pub(crate) fn leaving(&self, (state, kind): (State, Kind), reach_bytes: u64) -> impl Iterator<Item = Shown<'_>> {
        let (mut next, mut left) = (self.lists[state as usize][kind as usize].back(), reach_bytes);
        std::iter::from_fn(move || {
            while let Some(index) = next.filter(|_| left > 0) {
                let entry = &self.slab[index as usize];
                (next, left) = (entry.links.newer(), left.saturating_sub(entry.size.max(1)));
                let shown = entry.leaving();
                if shown.is_some() {
                    return shown;
                }
            }
            None
        })
    }

    /// A second level cannot have the block after all.
    pub(crate) fn withhold(&mut self, key: &Key, tag: u64, freed: &mut Freed) {
        let found = self.map.get(key).copied().filter(|&index| self.slab[index as usize].tag == tag);
        let Some(index) = found.filter(|&index| self.slab[index as usize].body.pointer.is_some()) else { return };
        self.unlink(index);
        self.unlink_copy(index);
        let entry = &mut self.slab[index as usize];
        freed.take(Body { pointer: entry.body.pointer.take(), ..Body::default() });
        entry.size = entry.body.bytes();
        self.link(index);
        self.link_copy(index);
    }

    /// Time in ns at which the entry of a list that was used least recently was used; `None` when there is none.
    pub(crate) fn oldest_ns(&self, (state, kind): (State, Kind)) -> Option<u64> {
        self.lists[state as usize][kind as usize].back().map(|index| self.slab[index as usize].stamp_ns)
    }

    /// Blocks that linger take at most `limit` bytes; the newest stays, because its reader is at it.
    pub(crate) fn trim_lingering(&mut self, kind: Kind, limit: u64, freed: &mut Freed) {
        while self.size(State::Uncached, kind) > limit {
            let list = &self.lists[State::Uncached as usize][kind as usize];
            let Some(index) = list.back().filter(|_| list.count() > 1) else { return };
            self.discard(index, freed);
        }
    }

    /// Gives back at least `need` bytes, of whichever list, unless the shard runs empty.
    pub(crate) fn evict_any(&mut self, need: u64) -> Freed {
        let mut freed = Freed::default();
        let all = || State::ALL.into_iter().flat_map(|state| [(state, Kind::Data), (state, Kind::Metadata)]);
        while freed.bytes < need {
            let Some(list) = all().find(|&(state, kind)| self.lists[state as usize][kind as usize].back().is_some()) else { break };
            self.evict_from(list, need - freed.bytes, &mut freed);
        }
        freed
    }

    /// Gives back at least `need` bytes of decompressed copies unless there are no more.
    pub(crate) fn evict_copies(&mut self, need: u64) -> Freed {
        let mut freed = Freed::default();
        while freed.bytes < need && self.drop_copy(&mut freed) {}
        freed
    }

    /// Drops the decompressed copy used least recently; its physical bytes stay.
    fn drop_copy(&mut self, freed: &mut Freed) -> bool {
        let Some(index) = self.copies.back() else { return false };
        self.unlink(index);
        self.unlink_copy(index);
        self.counters.copies_evicted += 1;
        let entry = &mut self.slab[index as usize];
        freed.take(Body { logical: entry.body.logical.take(), ..Body::default() });
        entry.size = entry.body.bytes();
        self.link(index);
        self.link_copy(index);
        true
    }

    /// Turns a live entry into a ghost, which counts as the bytes that caching it took.
    fn retire(&mut self, index: u32, freed: &mut Freed) {
        self.unlink(index);
        self.unlink_copy(index);
        let entry = &mut self.slab[index as usize];
        entry.size -= entry.body.overhead_bytes();
        let is_frequent = entry.state == State::Mfu;
        let is_eligible = entry.is_eligible();
        self.counters.second_level(is_eligible, is_frequent, entry.size);
        freed.take(std::mem::take(&mut entry.body));
        entry.state = if entry.state == State::Mfu { State::MfuGhost } else { State::MruGhost };
        self.counters.evicted += 1;
        self.link(index);
    }

    /// The headers of ghosts stay a small part of the shard, however small its blocks are.
    fn trim_headers(&mut self, freed: &mut Freed) {
        loop {
            let ghosts = self.lists[State::MruGhost as usize..=State::MfuGhost as usize].iter().flatten();
            let count: u64 = ghosts.clone().map(List::count).sum();
            if count <= GHOSTS_MIN || count * HEADER_BYTES <= self.live_bytes() / 16 {
                return;
            }
            let Some(index) = ghosts.max_by_key(|list| list.count()).and_then(List::back) else { return };
            self.discard(index, freed);
        }
    }
}
