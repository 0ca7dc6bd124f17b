//! One shard of the cache: the replacement policy over its entries, without locks, clocks or I/O.
//!
//! ```text
//!            miss                 second use                 evict                evict
//!  (absent) ──────► MRU ─────────────────────► MFU      MRU ─────► MRU ghost   MFU ─────► MFU ghost
//!      ▲             insert()      lookup()              evict()                evict()
//!      │                                        ghosts: hit ─► adapt(), insert() puts the block into MFU
//!      └──────────────── trim_ghosts(), remove() ◄────────────────────────────────────────────────
//! ```
//! Invariant: `charged` is the sum over entries of [`HEADER_BYTES`] plus the bytes they hold; every change of it is
//! reported to the caller, who keeps the budget of all shards.

use crate::key::{Key, KeyMap};
use crate::lists::{Links, List};
use crate::stats::Counters;
use abd::{Abd, PAGE_BYTES};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an entry costs beside its data, in bytes.
pub(crate) const HEADER_BYTES: u64 = 160;
/// A second use sooner than this does not make a block frequently used (OpenZFS: `ARC_MINTIME`, 62 ms).
const FREQUENT_AFTER_NS: u64 = 62_000_000;
/// A ghost hit on metadata weighs this much more than one on data (OpenZFS: `zfs_arc_meta_balance` 500 %).
const METADATA_WEIGHT: f64 = 5.0;

/// Whether a block is user data or metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data = 0,
    Metadata = 1,
}

/// Which list an entry is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Mru = 0,
    Mfu = 1,
    MruGhost = 2,
    MfuGhost = 3,
}

impl State {
    fn is_ghost(self) -> bool {
        matches!(self, State::MruGhost | State::MfuGhost)
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Demand,
    Prefetch,
    /// Only looks: a hit is a demand, a miss is none, because the read follows.
    Probe,
}

/// What a buffer costs: whole pages.
pub(crate) fn charge(data: &Abd) -> u64 {
    data.len().next_multiple_of(PAGE_BYTES) as u64
}

/// What a block's entry holds: bytes as on disk, bytes as read, or both.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    pub(crate) physical: Option<Abd>,
    pub(crate) logical: Option<Abd>,
}

impl Body {
    fn physical_bytes(&self) -> u64 {
        self.physical.as_ref().map_or(0, charge)
    }
    fn logical_bytes(&self) -> u64 {
        self.logical.as_ref().map_or(0, charge)
    }
    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.physical_bytes() + self.logical_bytes()
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
    stamp_ns: u64,
    links: Links,
    copies: Links,
}

/// Result of a lookup.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// The logical bytes.
    Hit(Abd),
    /// Only the physical bytes: decompress, then `attach`.
    Compressed(Abd),
    /// Not here.
    Miss,
}

/// What a call gave back: the charge to return to the budget, and buffers to drop outside the lock.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    pub(crate) bytes: u64,
    pub(crate) buffers: Vec<Abd>,
}

impl Freed {
    fn take(&mut self, body: Body) {
        self.bytes += body.bytes();
        self.buffers.extend(body.physical);
        self.buffers.extend(body.logical);
    }
}

/// The policy state of one shard.
#[derive(Debug)]
pub(crate) struct Shard {
    map: KeyMap<u32>,
    slab: Vec<Entry>,
    vacant: Vec<u32>,
    lists: [[List; 2]; 4],
    sizes: [[u64; 2]; 4],
    copies: List,
    overhead: u64,
    /// Bytes held in compressed form.
    compressed: u64,
    /// Bytes of decompressed copies in all shards of the cache.
    copies_total: Arc<AtomicU64>,
    /// Target share of metadata, and of recently (not frequently) used bytes within data and metadata.
    metadata_share: f64,
    recent_share: [f64; 2],
    pub(crate) counters: Counters,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard {
            map: KeyMap::default(),
            slab: Vec::new(),
            vacant: Vec::new(),
            lists: Default::default(),
            sizes: [[0; 2]; 4],
            copies: List::default(),
            overhead: 0,
            compressed: 0,
            copies_total: Arc::default(),
            metadata_share: 0.25,
            recent_share: [0.5; 2],
            counters: Counters::default(),
        }
    }
}

impl Shard {
    /// An empty shard of a cache that counts its decompressed copies in `copies_total`.
    pub(crate) fn new(copies_total: Arc<AtomicU64>) -> Shard {
        Shard { copies_total, ..Shard::default() }
    }
    /// Bytes of blocks on a list of live or ghost entries.
    pub(crate) fn size(&self, state: State, kind: Kind) -> u64 {
        self.sizes[state as usize][kind as usize]
    }
    /// Bytes of compressed data, and of everything alive.
    pub(crate) fn compressed_and_all(&self) -> (u64, u64) {
        (self.compressed, self.live_bytes())
    }
    /// Target shares in 2⁻³² (OpenZFS: `arc_meta`, `arc_pd`, `arc_pm`).
    pub(crate) fn targets(&self) -> [u64; 3] {
        [self.metadata_share, self.recent_share[0], self.recent_share[1]].map(|share| (share * 4_294_967_296.0) as u64)
    }
    /// Bytes of decompressed copies.
    pub(crate) fn overhead(&self) -> u64 {
        self.overhead
    }
    /// Entries, ghosts included.
    pub(crate) fn entries(&self) -> u64 {
        self.map.len() as u64
    }
    /// The shard's share of the budget in use.
    #[cfg(test)]
    pub(crate) fn charged(&self) -> u64 {
        self.map.values().map(|&index| HEADER_BYTES + self.slab[index as usize].body.bytes()).sum()
    }
    fn live_bytes(&self) -> u64 {
        self.sizes[0].iter().chain(&self.sizes[1]).sum()
    }

    fn link(&mut self, index: u32) {
        let Entry { state, kind, size, .. } = self.slab[index as usize];
        self.lists[state as usize][kind as usize].push_front(&mut self.slab, index, |entry| &mut entry.links);
        self.sizes[state as usize][kind as usize] += size;
    }
    fn unlink(&mut self, index: u32) {
        let Entry { state, kind, size, .. } = self.slab[index as usize];
        self.lists[state as usize][kind as usize].remove(&mut self.slab, index, |entry| &mut entry.links);
        self.sizes[state as usize][kind as usize] -= size;
    }
    /// Accounts for what the entry holds; undone by `unlink_copy` before the body changes.
    fn link_copy(&mut self, index: u32) {
        self.compressed += self.slab[index as usize].body.physical_bytes();
        let overhead = self.slab[index as usize].body.overhead_bytes();
        if overhead > 0 {
            self.overhead += overhead;
            self.copies_total.fetch_add(overhead, Ordering::Relaxed);
            self.copies.push_front(&mut self.slab, index, |entry| &mut entry.copies);
        }
    }
    fn unlink_copy(&mut self, index: u32) {
        self.compressed -= self.slab[index as usize].body.physical_bytes();
        let overhead = self.slab[index as usize].body.overhead_bytes();
        if overhead > 0 {
            self.overhead -= overhead;
            self.copies_total.fetch_sub(overhead, Ordering::Relaxed);
            self.copies.remove(&mut self.slab, index, |entry| &mut entry.copies);
        }
    }

    /// Finds a block and counts the use.
    pub(crate) fn lookup(&mut self, key: &Key, tag: u64, access: Access, kind: Kind, now_ns: u64) -> Lookup {
        let found = self.map.get(key).copied().filter(|&index| self.slab[index as usize].tag == tag);
        let Some(index) = found else {
            self.counters.miss(access, kind);
            return Lookup::Miss;
        };
        let Entry { state, size, .. } = self.slab[index as usize];
        if state.is_ghost() {
            self.counters.miss(access, kind);
            if access != Access::Probe {
                self.counters.ghost_hits[state as usize - 2] += 1;
                self.adapt(state, kind, size);
            }
            return Lookup::Miss;
        }
        self.counters.hit(access, kind, state == State::Mfu);
        if access != Access::Prefetch {
            self.touch(index, now_ns);
        }
        let body = &self.slab[index as usize].body;
        match (&body.logical, &body.physical) {
            (Some(logical), _) => Lookup::Hit(logical.clone()),
            (None, Some(physical)) => Lookup::Compressed(physical.clone()),
            (None, None) => Lookup::Miss,
        }
    }

    /// A demand use of a live entry: recently used becomes frequently used, unless the uses are one burst.
    fn touch(&mut self, index: u32, now_ns: u64) {
        let entry = &mut self.slab[index as usize];
        let burst = now_ns.saturating_sub(entry.stamp_ns) < FREQUENT_AFTER_NS;
        if std::mem::take(&mut entry.prefetched) {
            entry.stamp_ns = now_ns;
            return;
        }
        if burst {
            return;
        }
        entry.stamp_ns = now_ns;
        let copied = entry.body.overhead_bytes() > 0;
        self.unlink(index);
        self.slab[index as usize].state = State::Mfu;
        self.link(index);
        if copied {
            self.copies.remove(&mut self.slab, index, |entry| &mut entry.copies);
            self.copies.push_front(&mut self.slab, index, |entry| &mut entry.copies);
        }
    }

    /// A ghost hit of `size` bytes says that its list should have been larger.
    fn adapt(&mut self, state: State, kind: Kind, size: u64) {
        let total = self.live_bytes().max(1) as f64;
        let step = (size as f64 / total).min(0.25);
        let recent = self.size(State::MruGhost, kind).max(1) as f64;
        let frequent = self.size(State::MfuGhost, kind).max(1) as f64;
        let share = &mut self.recent_share[kind as usize];
        match state {
            State::MruGhost => *share = (*share + step * (frequent / recent).clamp(1.0, 10.0)).min(0.95),
            _ => *share = (*share - step * (recent / frequent).clamp(1.0, 10.0)).max(0.05),
        }
        match kind {
            Kind::Metadata => self.metadata_share = (self.metadata_share + step * METADATA_WEIGHT).min(0.95),
            Kind::Data => self.metadata_share = (self.metadata_share - step).max(0.05),
        }
    }

    /// Puts a block in; the caller has reserved [`HEADER_BYTES`] plus the body's bytes. Replaces an older version.
    pub(crate) fn insert(&mut self, key: Key, tag: u64, kind: Kind, body: Body, access: Access, now_ns: u64) -> Freed {
        let mut freed = Freed::default();
        let mut state = State::Mru;
        if let Some(&index) = self.map.get(&key) {
            let old = &self.slab[index as usize];
            if old.state != State::Mru && old.tag == tag && access == Access::Demand {
                state = State::Mfu;
            }
            self.discard(index, &mut freed);
        }
        let prefetched = access == Access::Prefetch;
        let size = body.bytes();
        let links = Links::default();
        let entry = Entry { key, tag, body, size, state, kind, prefetched, stamp_ns: now_ns, links, copies: links };
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

    /// Gives back at least `need` bytes unless the shard runs empty.
    pub(crate) fn evict(&mut self, need: u64) -> Freed {
        let mut freed = Freed::default();
        while freed.bytes < need {
            let Some(index) = self.victim() else {
                if !self.drop_ghost(&mut freed) {
                    break;
                }
                continue;
            };
            self.retire(index, &mut freed);
            self.trim_ghosts(&mut freed);
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
        let entry = &mut self.slab[index as usize];
        freed.take(Body { physical: None, logical: entry.body.logical.take() });
        entry.size = entry.body.bytes();
        self.link(index);
        self.link_copy(index);
        true
    }

    /// The live entry to evict next: from the kind, then the list, that is over its share.
    fn victim(&self) -> Option<u32> {
        let total = self.live_bytes() as f64;
        let metadata = (self.size(State::Mru, Kind::Metadata) + self.size(State::Mfu, Kind::Metadata)) as f64;
        let kinds = if metadata > total * self.metadata_share { [Kind::Metadata, Kind::Data] } else { [Kind::Data, Kind::Metadata] };
        kinds.into_iter().find_map(|kind| {
            let recent = self.size(State::Mru, kind) as f64;
            let all = recent + self.size(State::Mfu, kind) as f64;
            let states = if recent > all * self.recent_share[kind as usize] { [State::Mru, State::Mfu] } else { [State::Mfu, State::Mru] };
            states.into_iter().find_map(|state| self.lists[state as usize][kind as usize].back())
        })
    }

    /// Turns a live entry into a ghost.
    fn retire(&mut self, index: u32, freed: &mut Freed) {
        self.unlink(index);
        self.unlink_copy(index);
        let entry = &mut self.slab[index as usize];
        freed.take(std::mem::take(&mut entry.body));
        entry.state = if entry.state == State::Mfu { State::MfuGhost } else { State::MruGhost };
        self.counters.evicted += 1;
        self.link(index);
    }

    fn drop_ghost(&mut self, freed: &mut Freed) -> bool {
        let ghosts = &self.lists[State::MruGhost as usize..];
        let Some(index) = ghosts.iter().flatten().max_by_key(|list| list.count()).and_then(List::back) else { return false };
        self.discard(index, freed);
        true
    }

    /// Ghosts remember at most as many bytes as are alive, and their headers stay a small part of the shard.
    fn trim_ghosts(&mut self, freed: &mut Freed) {
        loop {
            let live = self.live_bytes();
            let remembered: u64 = self.sizes[2].iter().chain(&self.sizes[3]).sum();
            let count: u64 = self.lists[2].iter().chain(&self.lists[3]).map(List::count).sum();
            if (remembered <= live && count * HEADER_BYTES <= live / 16) || !self.drop_ghost(freed) {
                return;
            }
        }
    }
}
