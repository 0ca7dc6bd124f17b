//! Recycling of memory: fresh pages cost a fault each, so buffers are cut from huge-page slabs and slabs are kept.
//!
//! A slab holds blocks of one size class. Each (class, shard) has a depot with its own lock; a thread allocates from its
//! shard and a block returns to the depot of its slab. Invariants (`aligned` relies on the first two):
//! 1. a block is either in its slab's free list or out with exactly one holder;
//! 2. a slab leaves its depot only when all its blocks are in the free list;
//! 3. empty slabs and large mappings kept for later never exceed the cache limit in sum.

use crate::PAGE_BYTES;
use crate::aligned::{HUGE_BYTES, Mapping};
use crate::shards::{shard, shards};
use parking_lot::{Mutex, MutexGuard};
use std::alloc::Layout;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Size of a slab: two huge pages, so that blocks of odd sizes waste little at its end.
const SLAB_BYTES: usize = 2 * HUGE_BYTES;
/// Largest block cut from a slab; longer buffers get mappings of their own.
pub(crate) const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Bytes up to which every multiple of a page is a class; beyond, eight classes per doubling.
const FINE_BYTES_MAX: usize = 8 * PAGE_BYTES;
const CLASSES_PER_DOUBLING: usize = 8;
const CLASSES: usize = CLASSES_PER_DOUBLING * (1 + (BLOCK_BYTES_MAX / FINE_BYTES_MAX).ilog2() as usize);
/// Bytes kept empty for later unless told otherwise.
const CACHE_BYTES_DEFAULT: usize = 64 << 20;

static CACHE_BYTES_MAX: AtomicUsize = AtomicUsize::new(CACHE_BYTES_DEFAULT);
/// Bytes in empty slabs and spare mappings.
static CACHED_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The least that there was of it since the last [`trim_idle`]: so much nobody needed meanwhile.
static CACHED_LOW: AtomicUsize = AtomicUsize::new(0);
/// Empty slabs that depots keep.
static KEPT: AtomicUsize = AtomicUsize::new(0);
static MAPPED_BYTES: AtomicUsize = AtomicUsize::new(0);
static LARGE_LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Mappings of any size that are empty.
static SPARE: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());

/// The layout of a mapping, for the error report.
pub(crate) fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, HUGE_BYTES).expect("the size is far below isize::MAX")
}

/// Place of a block: depot, slab, and index in it.
#[derive(Debug)]
pub(crate) struct Place {
    depot: u32,
    slab: u32,
    index: u16,
}

#[derive(Debug)]
struct Slab {
    mapping: Mapping,
    /// Indices of blocks that are not out.
    free: Vec<u16>,
    /// Index of the slab in the depot's list of slabs with free blocks.
    listed_at: Option<usize>,
}

#[derive(Debug, Default)]
struct Depot {
    slabs: Vec<Option<Slab>>,
    vacant: Vec<u32>,
    /// Slabs that have free blocks.
    listed: Vec<u32>,
    /// The one slab that is kept although none of its blocks is out.
    kept: Option<u32>,
    blocks_out: usize,
}

fn class_of(length: usize) -> usize {
    let pages = length.max(1).div_ceil(PAGE_BYTES);
    if pages * PAGE_BYTES <= FINE_BYTES_MAX {
        return pages - 1;
    }
    // 2^d < length / FINE <= 2^(d+1), cut in eight.
    let base = (length - 1) / FINE_BYTES_MAX;
    let doubling = base.ilog2() as usize;
    let step = (FINE_BYTES_MAX << doubling) / CLASSES_PER_DOUBLING;
    CLASSES_PER_DOUBLING * (1 + doubling) + (length - (FINE_BYTES_MAX << doubling)).div_ceil(step) - 1
}

fn class_bytes(class: usize) -> usize {
    let (group, step) = (class / CLASSES_PER_DOUBLING, class % CLASSES_PER_DOUBLING + 1);
    if group == 0 {
        return step * PAGE_BYTES;
    }
    let start = FINE_BYTES_MAX << (group - 1);
    start + step * start / CLASSES_PER_DOUBLING
}

fn depots() -> &'static [Mutex<Depot>] {
    static DEPOTS: OnceLock<Box<[Mutex<Depot>]>> = OnceLock::new();
    DEPOTS.get_or_init(|| (0..CLASSES * shards()).map(|_| Mutex::default()).collect())
}

impl Depot {
    fn slab(&mut self, id: u32) -> &mut Slab {
        self.slabs[id as usize].as_mut().expect("a slab with a listed or outstanding block exists")
    }

    fn list(&mut self, id: u32) {
        let position = self.listed.len();
        self.listed.push(id);
        self.slab(id).listed_at = Some(position);
    }

    fn unlist(&mut self, id: u32) {
        let Some(position) = self.slab(id).listed_at.take() else { return };
        self.listed.swap_remove(position);
        if let Some(moved) = self.listed.get(position).copied() {
            self.slab(moved).listed_at = Some(position);
        }
    }

    fn add_slab(&mut self, mapping: Mapping, block_bytes: usize) {
        let blocks = (mapping.size() / block_bytes) as u16;
        let slab = Slab { mapping, free: (0..blocks).rev().collect(), listed_at: None };
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() as u32 - 1
        });
        self.slabs[id as usize] = Some(slab);
        self.list(id);
    }

    /// Takes an empty slab out of the depot.
    fn remove_slab(&mut self, id: u32) -> Mapping {
        self.unlist(id);
        let slab = self.slabs[id as usize].take().expect("the caller found the slab");
        self.vacant.push(id);
        slab.mapping
    }
}

/// Takes a block of at least `length` bytes (at most [`BLOCK_BYTES_MAX`]); `make` gets its slab's mapping and its offset.
pub(crate) fn take_block<T>(length: usize, make: impl FnOnce(&Mapping, usize, Place) -> T) -> T {
    let class = class_of(length);
    let block_bytes = class_bytes(class);
    let mut number = class * shards() + shard();
    let mut depot = depots()[number].lock();
    if depot.listed.is_empty() {
        if let Some(mapping) = take_spare(SLAB_BYTES) {
            depot.add_slab(mapping, block_bytes);
        } else if let Some((other, lender)) = lender(class, number) {
            (number, depot) = (other, lender);
        } else {
            depot.add_slab(take_kept().unwrap_or_else(|| map(SLAB_BYTES)), block_bytes);
        }
    }
    let id = depot.listed[depot.listed.len() - 1];
    depot.blocks_out += 1;
    if depot.kept == Some(id) {
        depot.kept = None;
        KEPT.fetch_sub(1, Ordering::Relaxed);
        uncache(SLAB_BYTES);
    }
    let slab = depot.slab(id);
    let index = slab.free.pop().expect("a listed slab has a free block");
    let exhausted = slab.free.is_empty();
    let made = make(&slab.mapping, index as usize * block_bytes, Place { depot: number as u32, slab: id, index });
    if exhausted {
        depot.unlist(id);
    }
    made
}

/// Depot of the class of another shard that has free blocks: memory that is there is better than fresh memory. Never waits.
fn lender(class: usize, own: usize) -> Option<(usize, MutexGuard<'static, Depot>)> {
    let others = (class * shards()..(class + 1) * shards()).filter(|other| *other != own);
    others.filter_map(|other| Some((other, depots()[other].try_lock()?))).find(|(_, depot)| !depot.listed.is_empty())
}

/// Takes a block back; an empty slab is kept, spared for other classes, or unmapped.
pub(crate) fn return_block(place: &Place) {
    let blocks = SLAB_BYTES / class_bytes(place.depot as usize / shards());
    let mut depot = depots()[place.depot as usize].lock();
    depot.blocks_out -= 1;
    let slab = depot.slab(place.slab);
    slab.free.push(place.index);
    let empty = slab.free.len() == blocks;
    if slab.listed_at.is_none() {
        depot.list(place.slab);
    }
    if !empty {
        return;
    }
    if depot.kept.is_none() && reserve_cache(SLAB_BYTES) {
        depot.kept = Some(place.slab);
        KEPT.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let mapping = depot.remove_slab(place.slab);
    drop(depot);
    spare_or_unmap(mapping);
}

/// Counts `bytes` as cached, unless that would exceed the limit.
fn reserve_cache(bytes: usize) -> bool {
    let limit = CACHE_BYTES_MAX.load(Ordering::Relaxed);
    let grown = |cached: usize| Some(cached + bytes).filter(|sum| *sum <= limit);
    CACHED_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
}

fn spare_or_unmap(mapping: Mapping) {
    if reserve_cache(mapping.size()) {
        SPARE.lock().push(mapping);
    } else {
        MAPPED_BYTES.fetch_sub(mapping.size(), Ordering::Relaxed);
    }
}

/// A spare mapping of exactly `size` bytes. Spares are few: the cache limit over the size of a slab.
fn take_spare(size: usize) -> Option<Mapping> {
    let mut spare = SPARE.lock();
    let index = spare.iter().rposition(|mapping| mapping.size() == size)?;
    uncache(size);
    Some(spare.swap_remove(index))
}

/// An empty slab that another depot keeps, of whatever class: memory that is there is better than fresh memory. Never waits.
fn take_kept() -> Option<Mapping> {
    if KEPT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    for depot in depots() {
        let Some(mut depot) = depot.try_lock() else { continue };
        if let Some(id) = depot.kept.take() {
            KEPT.fetch_sub(1, Ordering::Relaxed);
            uncache(SLAB_BYTES);
            return Some(depot.remove_slab(id));
        }
    }
    None
}

/// Makes a fresh mapping.
fn map(size: usize) -> Mapping {
    MAPPED_BYTES.fetch_add(size, Ordering::Relaxed);
    Mapping::new(size)
}

/// A mapping for one long buffer.
pub(crate) fn take_mapping(size: usize) -> Mapping {
    LARGE_LIVE_BYTES.fetch_add(size, Ordering::Relaxed);
    take_spare(size).unwrap_or_else(|| map(size))
}

/// Takes the mapping of a long buffer back.
pub(crate) fn return_mapping(mapping: Mapping) {
    LARGE_LIVE_BYTES.fetch_sub(mapping.size(), Ordering::Relaxed);
    spare_or_unmap(mapping);
}

/// Sets how many bytes may be kept empty for later; what is above is given back at the next [`trim_cache`] or return.
pub fn set_cache_bytes_max(bytes: usize) {
    CACHE_BYTES_MAX.store(bytes, Ordering::Relaxed);
}

/// Notes that so many of the bytes that were kept are used again, or given back.
fn uncache(bytes: usize) {
    let before = CACHED_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    CACHED_LOW.fetch_min(before.saturating_sub(bytes), Ordering::Relaxed);
}

/// Gives back to the system what was empty all the time since the last call: whoever calls it now and then keeps what bursts need, as long as
/// they come, and no more. Returns how many bytes that were.
pub fn trim_idle() -> usize {
    let idle = CACHED_LOW.swap(CACHED_BYTES.load(Ordering::Relaxed), Ordering::Relaxed);
    let mut given = Vec::new();
    let mut bytes = 0;
    let mut spare = SPARE.lock();
    while bytes < idle
        && let Some(mapping) = spare.pop()
    {
        bytes += mapping.size();
        given.push(mapping);
    }
    drop(spare);
    uncache(bytes);
    // These are taken off the count one by one.
    while bytes < idle
        && let Some(mapping) = take_kept()
    {
        bytes += mapping.size();
        given.push(mapping);
    }
    MAPPED_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    bytes
}

/// Gives empty memory back to the system; returns how many bytes that were.
pub fn trim_cache() -> usize {
    let mut idle = std::mem::take(&mut *SPARE.lock());
    for depot in depots() {
        let mut depot = depot.lock();
        if let Some(id) = depot.kept.take() {
            KEPT.fetch_sub(1, Ordering::Relaxed);
            idle.push(depot.remove_slab(id));
        }
    }
    let bytes = idle.iter().map(Mapping::size).sum();
    uncache(bytes);
    MAPPED_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    bytes
}

/// Bytes live, mapped and cached.
pub(crate) fn usage() -> (u64, u64, u64) {
    let blocks: usize = depots().iter().enumerate().map(|(number, depot)| depot.lock().blocks_out * class_bytes(number / shards())).sum();
    let live = blocks + LARGE_LIVE_BYTES.load(Ordering::Relaxed);
    (live as u64, MAPPED_BYTES.load(Ordering::Relaxed) as u64, CACHED_BYTES.load(Ordering::Relaxed) as u64)
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES_MAX, CLASSES, class_bytes, class_of};

    /// A class that is too small would let a buffer run into its neighbour.
    #[test]
    fn classes_hold_what_they_are_for() {
        let step = if cfg!(miri) { 40_961 } else { 97 };
        for length in (0..=BLOCK_BYTES_MAX).step_by(step).chain([1, 4096, 4097, 32768, 32769, 36864, 36865, BLOCK_BYTES_MAX]) {
            let class = class_of(length);
            assert!(class < CLASSES && class_bytes(class) >= length, "{length} in class {class}");
            assert!(class == 0 || class_bytes(class - 1) < length, "{length} fits a smaller class than {class}");
            assert_eq!(class_bytes(class) % 4096, 0);
        }
        assert_eq!(class_bytes(CLASSES - 1), BLOCK_BYTES_MAX);
        (1..CLASSES).for_each(|class| assert!(class_bytes(class) > class_bytes(class - 1)));
    }
}
