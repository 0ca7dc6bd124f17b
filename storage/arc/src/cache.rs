//! The cache itself: lookups, misses that share a read, insertion under the budget.
//!
//! ```text
//! read ─hit───────────────────────────► bytes
//!   ├─compressed only─► decompress ───► bytes, attached to the entry
//!   ├─miss, in flight─► wait for it
//!   └─miss────────────► zio ─► finish(): reserve, insert, wake everybody who waits
//! ```

use crate::balance::{Balance, Cut, Fractions};
use crate::budget::Budget;
use crate::key::{Key, KeyMap};
use crate::origin::Origin;
use crate::ports::{BlockName, SecondLevel};
use crate::shard::{Access, Ask, Body, Copies, Freed, HEADER_BYTES, Keep, Kind, Lookup, Shard, State as List, charge};
use crate::sparse::{shortened, whole};
use crate::stats::Counters;
use abd::{Abd, AbdPart};
use exec::{Exec, Mutex, MutexGuard, TaskClass, completion};
use ondisk::{BlockPtr, Bookmark, Checksum, Compression, ObjectType, Txg, byteswap_block};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use zio::{ErrorKind, Landed, LandedThen, Priority, ReadFlags, ReadRequest, ReadThen, WriteRequest, WriteThen, Zio, ZioError};

/// Most shards of a cache.
const SHARDS_MAX: usize = 64;

/// Share of the budget that decompressed copies keep when memory is short (OpenZFS: `dbuf_cache_shift` 5).
const COPIES_SHIFT: u32 = 5;
/// Share of the budget that blocks may take that linger.
const LINGERING_SHIFT: u32 = 5;
/// Part of the budget that is made free at once when memory is short …
const BATCH_SHIFT: u32 = 9;
/// … but not more bytes than these beyond what is needed.
const BATCH_BYTES_MAX: u64 = 2 << 20;

/// A read that is under way, and who waits for it.
struct Flight {
    tag: u64,
    waiters: Vec<ReadThen>,
    access: Access,
    /// The longest that somebody who waits lets the cache keep the block.
    keep: Keep,
    /// True when the block was freed or rewritten meanwhile: deliver, but do not keep.
    doomed: bool,
}

impl Flight {
    fn new(wanted: &Wanted, access: Access) -> Flight {
        Flight { tag: wanted.tag, waiters: Vec::new(), access, keep: wanted.keep, doomed: false }
    }
}

/// Result of one look under the lock.
enum Found {
    Hit(Abd),
    /// The compressed bytes only.
    Compressed(Abd),
    /// A read is under way; the caller was added to it.
    Joined,
    /// A read has to be started.
    Start,
    /// Another version of the block is being read: this read goes past the cache.
    Other(ReadThen),
}

/// Entries and reads under way of one shard.
pub(crate) struct State {
    pub(crate) shard: Shard,
    flights: KeyMap<Flight>,
}

#[repr(align(128))]
pub(crate) struct Cell(pub(crate) Mutex<State>);

/// Everything of a cache.
pub(crate) struct Inner {
    zio: Zio,
    pub(crate) budget: Budget,
    /// Bytes of decompressed copies in all shards.
    copies: Arc<Copies>,
    /// Sizes of the lists of all shards, and who gives way.
    balance: Arc<Balance>,
    /// Index of the shard at which the next search for memory begins.
    pub(crate) cursor: AtomicUsize,
    pub(crate) cells: Box<[Cell]>,
    /// True when compressed blocks are kept compressed, too.
    compressed: AtomicBool,
    /// The second level, once there is one.
    pub(crate) second: OnceLock<Arc<dyn SecondLevel>>,
}

/// The cache of one pool; a cheap handle.
#[derive(Clone)]
pub struct Cache(pub(crate) Arc<Inner>);

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cache {{ used: {}, max: {} }}", self.size(), self.max())
    }
}

/// A block wanted: everything derived from its pointer once.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    bp: BlockPtr,
    bookmark: Bookmark,
    key: Key,
    tag: u64,
    kind: Kind,
    keep: Keep,
}

impl Wanted {
    fn new(bp: &BlockPtr, bookmark: &Bookmark, keep: Keep) -> Option<Wanted> {
        let key = Key::of(bp)?;
        let metadata = bp.level() > 0 || bp.object_type().is_metadata();
        let kind = if metadata { Kind::Metadata } else { Kind::Data };
        Some(Wanted { bp: *bp, bookmark: *bookmark, key, tag: Key::tag(bp), kind, keep })
    }
    fn ask(&self, access: Access) -> Ask {
        let (origin, is_verifiable) = (Origin::new(&self.bp, &self.bookmark), self.is_verifiable());
        Ask { key: self.key, tag: self.tag, kind: self.kind, access, keep: self.keep, is_verifiable, origin }
    }
    /// True when what is read is, or keeps, the bytes on disk, and the pointer's checksum can tell.
    fn is_verifiable(&self) -> bool {
        let bp = &self.bp;
        bp.checksum_kind() != Checksum::OFF && bp.is_little_endian() && !bp.dva(0).gang
    }
    fn is_compressed(&self) -> bool {
        self.bp.compression() != Compression::OFF
    }
}

impl Cache {
    /// A cache over `zio` that holds at most `max_bytes`.
    pub fn new(zio: Zio, max_bytes: u64) -> Cache {
        let shards = (zio.exec().parallelism() * 4).next_power_of_two().min(SHARDS_MAX);
        let copies: Arc<Copies> = Arc::default();
        let balance: Arc<Balance> = Arc::default();
        let state = || State { shard: Shard::new(copies.clone(), balance.clone()), flights: KeyMap::default() };
        let cells = (0..shards).map(|_| Cell(Mutex::new(state()))).collect();
        let budget = Budget::new(max_bytes);
        Cache(Arc::new(Inner {
            zio,
            budget,
            copies,
            cursor: AtomicUsize::new(0),
            cells,
            balance,
            compressed: AtomicBool::new(true),
            second: OnceLock::new(),
        }))
    }

    /// Pipeline below the cache.
    pub fn zio(&self) -> &Zio {
        &self.0.zio
    }
    /// Executor of the cache's jobs.
    pub fn exec(&self) -> &Exec {
        self.0.zio.exec()
    }
    /// Bytes charged now, headers included.
    pub fn size(&self) -> u64 {
        self.0.budget.used()
    }
    /// The budget in bytes (OpenZFS: `arc_c`).
    pub fn max(&self) -> u64 {
        self.0.budget.max()
    }
    /// The least and the largest budget (OpenZFS: `arc_c_min`, `arc_c_max`).
    pub fn limits(&self) -> (u64, u64) {
        (self.0.budget.floor(), self.0.budget.ceiling())
    }
    /// True while the budget may not grow (OpenZFS: `arc_no_grow`).
    pub fn is_held(&self) -> bool {
        self.0.budget.holds()
    }

    /// Changes the largest budget (OpenZFS: `zfs_arc_max`), which the cache has at once, and evicts down to it.
    pub fn set_max(&self, max_bytes: u64) {
        self.0.budget.set_ceiling(max_bytes);
        self.reserve(0);
    }
    /// Changes the budget that the cache keeps however short memory is (OpenZFS: `zfs_arc_min`).
    pub fn set_min(&self, min_bytes: u64) {
        self.0.budget.set_floor(min_bytes);
    }
    /// Lowers the budget, as memory is short, by `bytes`, not below the least one, and evicts down to it (OpenZFS:
    /// `arc_reduce_target_size`). It grows again with use, unless `hold` says not to yet.
    pub fn shrink(&self, bytes: u64, hold: bool) {
        self.0.budget.set_holds(hold);
        if bytes > 0 {
            self.0.budget.shrink(bytes);
            self.reserve(0);
        }
    }
    /// Sets how much more a miss of metadata weighs than one of data, in percent (OpenZFS: `zfs_arc_meta_balance`).
    pub fn set_meta_balance(&self, percent: u64) {
        self.0.balance.set_meta_balance(percent);
    }

    /// Sets whether blocks that are read from now on are kept compressed as on disk, or decompressed only (OpenZFS:
    /// `zfs_compressed_arc_enabled`).
    pub fn set_compressed(&self, compressed: bool) {
        self.0.compressed.store(compressed, Ordering::Relaxed);
    }

    /// The block's logical bytes in native order, from memory or the pool; waits. Errors are those of [`Zio::read`].
    pub fn read(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, ZioError> {
        self.read_kept(bp, bookmark, Keep::Kept)
    }

    /// As [`Cache::read`], but `keep` says how long the bytes may stay. Those who want a block at the same time still share one
    /// read; what somebody else keeps is used and stays.
    pub fn read_kept(&self, bp: &BlockPtr, bookmark: &Bookmark, keep: Keep) -> Result<Abd, ZioError> {
        if zio::is_sealed(bp) {
            return Err(ZioError::new(ErrorKind::Unsupported, *bookmark));
        }
        let Some(wanted) = Wanted::new(bp, bookmark, keep) else { return self.read_plain(bp, bookmark) };
        let mut wait = None;
        let found = self.find(&wanted, || {
            let (done, waiter) = completion();
            wait = Some(waiter);
            Box::new(move |result| done.complete(result))
        });
        let ready = self.proceed(&wanted, found);
        match (ready, wait) {
            (Some(result), _) => result,
            (None, Some(wait)) => wait.wait(self.exec()),
            (None, None) => self.read_plain(bp, bookmark),
        }
    }

    /// As [`Cache::read`], without waiting: `then` runs at once on a hit, and on any thread after a miss.
    pub fn read_then(&self, bp: &BlockPtr, bookmark: &Bookmark, then: ReadThen) {
        if zio::is_sealed(bp) { then(Err(ZioError::new(ErrorKind::Unsupported, *bookmark))) } else { self.read_any(bp, bookmark, then) }
    }

    /// As [`Cache::read_then`], of a block of which nothing can be read without a key ([`zio::is_sealed`]): the bytes are those that are stored. The
    /// cache has no others of it.
    pub fn read_sealed(&self, bp: &BlockPtr, bookmark: &Bookmark, then: ReadThen) {
        self.read_any(bp, bookmark, then);
    }

    fn read_any(&self, bp: &BlockPtr, bookmark: &Bookmark, then: ReadThen) {
        let Some(wanted) = Wanted::new(bp, bookmark, Keep::Kept) else { return then(self.read_plain(bp, bookmark)) };
        let mut kept = Some(then);
        let found = self.find(&wanted, || kept.take().unwrap_or_else(|| Box::new(drop)));
        if let Some(result) = self.proceed(&wanted, found)
            && let Some(then) = kept
        {
            then(result);
        }
    }

    /// Holes and embedded blocks: no device, no wait.
    fn read_plain(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, ZioError> {
        self.0.zio.read_wait(ReadRequest::new(*bp, *bookmark)).map(|data| native(bp, data))
    }

    /// Starts reading the block into the cache unless it is there or on its way. [`Keep::Once`] holds it until its
    /// first use.
    pub fn prefetch(&self, bp: &BlockPtr, bookmark: &Bookmark, keep: Keep) {
        self.prefetch_as(bp, bookmark, keep, Priority::AsyncRead);
    }

    /// As [`Cache::prefetch`], with the priority that its I/O is to have.
    pub fn prefetch_as(&self, bp: &BlockPtr, bookmark: &Bookmark, keep: Keep, priority: Priority) {
        let Some(wanted) = Wanted::new(bp, bookmark, keep) else { return };
        let now_ns = self.exec().now_ns();
        {
            let mut state = self.state(&wanted.key);
            let state = &mut *state;
            // Reading ahead lets go of nothing.
            let found = state.shard.lookup(&wanted.ask(Access::Prefetch), now_ns, &mut Freed::default());
            if !matches!(found, Lookup::Miss) || state.flights.contains_key(&wanted.key) {
                return;
            }
            state.flights.insert(wanted.key, Flight::new(&wanted, Access::Prefetch));
        }
        let cache = self.clone();
        self.exec().spawn(TaskClass::Read, Box::new(move || cache.start(wanted, priority)));
    }

    /// The block's bytes when they are in memory. Changes nothing of how long they stay unless they are kept anyway.
    pub fn cached(&self, bp: &BlockPtr) -> Option<Abd> {
        let wanted = Cache::to_probe(bp)?;
        match self.probe(&wanted, false) {
            Lookup::Hit(data) => Some(data),
            Lookup::Compressed(physical) => self.unpack(&wanted, &physical).ok(),
            Lookup::Miss => None,
        }
    }

    /// As [`Cache::cached`], but None as well for a block that would have to be decompressed: it costs no more than a look.
    pub fn at_hand(&self, bp: &BlockPtr) -> Option<Abd> {
        let wanted = Cache::to_probe(bp)?;
        match self.probe(&wanted, true) {
            Lookup::Hit(data) => Some(data),
            Lookup::Compressed(_) | Lookup::Miss => None,
        }
    }

    /// A block to look for; None for one of which there are no logical bytes.
    pub(crate) fn to_probe(bp: &BlockPtr) -> Option<Wanted> {
        Wanted::new(bp, &Bookmark::default(), Keep::Lingers).filter(|_| !zio::is_sealed(bp))
    }

    /// A look under the lock: at a block that is decompressed only, where `is_plain` says so.
    pub(crate) fn probe(&self, wanted: &Wanted, is_plain: bool) -> Lookup {
        let now_ns = self.exec().now_ns();
        let mut freed = Freed::default();
        let found = {
            let mut state = self.state(&wanted.key);
            match is_plain && !state.shard.is_unpacked(&wanted.key, wanted.tag) {
                true => Lookup::Miss,
                false => state.shard.lookup(&wanted.ask(Access::Probe), now_ns, &mut freed),
            }
        };
        self.release(freed);
        found.whole(&wanted.bp)
    }

    /// Makes the logical bytes just written under `bp` warm, without a copy.
    pub fn insert_written(&self, bp: &BlockPtr, bookmark: &Bookmark, data: Abd) {
        let Some(wanted) = Wanted::new(bp, bookmark, Keep::Kept) else { return };
        self.insert(&wanted, Body { logical: Some(data), ..Body::default() }, false);
    }

    /// Writes a block through the pipeline and, where `keep` says so, keeps its bytes warm: not those that are stored otherwise than they are read, as
    /// the pipeline encrypts or signs them.
    pub fn write(&self, request: WriteRequest, keep: bool, then: WriteThen) {
        let then = self.replacing(&request, keep, then);
        self.0.zio.write(request, then);
    }

    /// Writes blocks as [`Cache::write`] does, in one job ([`Zio::write_together`]): small ones.
    pub fn write_together(&self, writes: Vec<(WriteRequest, bool, WriteThen)>) {
        let begun = writes.into_iter().map(|(request, keep, then)| {
            let then = self.replacing(&request, keep, then);
            (request, then)
        });
        self.0.zio.write_together(begun.collect());
    }

    /// Forgets what a block is to replace that was written in its own txg, and returns what is to follow: where `keep` says so, its bytes are kept.
    fn replacing(&self, request: &WriteRequest, keep: bool, then: WriteThen) -> WriteThen {
        if request.previous.birth() == request.txg {
            self.forget(&request.previous);
        }
        if !keep || is_changed(request) {
            return then;
        }
        let (cache, data, bookmark) = (self.clone(), request.data.clone(), request.bookmark);
        Box::new(move |result| {
            if let Ok(bp) = &result {
                cache.insert_written(bp, &bookmark, data);
            }
            then(result);
        })
    }

    /// Reads a block past the cache, into `target` where that is possible ([`Zio::read_into`]): its logical bytes in native
    /// order. The cache is neither asked nor filled: ask [`Cache::cached`] first.
    pub fn read_direct(&self, bp: &BlockPtr, bookmark: &Bookmark, target: Vec<AbdPart>, then: LandedThen) {
        let request = ReadRequest::new(*bp, *bookmark);
        if bp.is_little_endian() || bp.is_hole() {
            return self.0.zio.read_into(request, target, then);
        }
        // Written on a machine of the other byte order: the bytes may have to be swapped.
        let bp = *bp;
        let swapped: ReadThen = Box::new(move |result| then(result.map(|data| Landed::Elsewhere(native(&bp, data)))));
        self.0.zio.read(request, swapped);
    }

    /// Frees the block's space and forgets its bytes.
    pub fn free(&self, txg: Txg, bp: &BlockPtr) {
        self.forget(bp);
        self.0.zio.free(txg, bp);
    }

    /// Forgets the block's bytes; a read of it under way delivers but does not keep them.
    pub fn forget(&self, bp: &BlockPtr) {
        let Some(key) = Key::of(bp) else { return };
        let freed = {
            let mut state = self.state(&key);
            if let Some(flight) = state.flights.get_mut(&key) {
                flight.doomed = true;
            }
            state.shard.remove(&key)
        };
        self.release(freed);
        if let Some((second, name)) = self.0.second.get().zip(BlockName::of(bp)) {
            second.forget(name);
        }
    }

    /// Forgets everything that nobody waits for.
    pub fn clear(&self) {
        for cell in &self.0.cells {
            let freed = cell.0.lock().shard.evict_any(u64::MAX);
            self.release(freed);
        }
    }

    pub(crate) fn state(&self, key: &Key) -> MutexGuard<'_, State> {
        let home = (key.hash64() >> 40) as usize & (self.0.cells.len() - 1);
        self.0.cells[home].0.lock()
    }
    pub(crate) fn release(&self, freed: Freed) {
        if freed.bytes > 0 {
            self.0.budget.release(freed.bytes);
        }
        drop(freed.buffers);
    }
    /// Looks at every shard's state, one after another.
    pub(crate) fn fold_states<T>(&self, start: T, mut fold: impl FnMut(T, &State) -> T) -> T {
        self.0.cells.iter().fold(start, |value, cell| fold(value, &cell.0.lock()))
    }
    /// Counters summed over the shards.
    pub(crate) fn counters(&self) -> Counters {
        self.fold_states(Counters::default(), |mut sum, state| {
            sum.add(&state.shard.counters);
            sum
        })
    }
    /// Bytes on a list of all shards.
    pub(crate) fn list_bytes(&self, list: List, kind: Kind) -> u64 {
        self.0.balance.size(list, kind)
    }
    /// Bytes of decompressed copies, and the most that they ever were.
    pub(crate) fn copy_bytes(&self) -> (u64, u64) {
        (self.0.copies.bytes(), self.0.copies.most())
    }
    /// Target shares of the lists.
    pub(crate) fn fractions(&self) -> Fractions {
        self.0.balance.fractions()
    }

    /// One look under the lock: the bytes, or the read under way, or the duty to start one.
    fn find(&self, wanted: &Wanted, make_then: impl FnOnce() -> ReadThen) -> Found {
        let now_ns = self.exec().now_ns();
        let mut freed = Freed::default();
        let found = {
            let mut state = self.state(&wanted.key);
            let state = &mut *state;
            match state.shard.lookup(&wanted.ask(Access::Demand), now_ns, &mut freed) {
                Lookup::Hit(data) => Found::Hit(data),
                Lookup::Compressed(physical) => Found::Compressed(physical),
                Lookup::Miss => state.join_or_start(wanted, make_then),
            }
        };
        self.release(freed);
        found
    }

    /// Does what was found, without the lock; the bytes when they are there already.
    fn proceed(&self, wanted: &Wanted, found: Found) -> Option<Result<Abd, ZioError>> {
        match found {
            Found::Hit(data) => return Some(Ok(whole(&wanted.bp, data))),
            Found::Compressed(physical) => return Some(self.unpack(wanted, &physical)),
            Found::Joined => {}
            Found::Start => self.start(*wanted, Priority::SyncRead),
            Found::Other(then) => {
                let bp = wanted.bp;
                self.0.zio.iostats().arc_read.add(1, bp.psize() as u64);
                let flags = ReadFlags { raw: zio::is_sealed(&bp), ..ReadFlags::default() };
                let request = ReadRequest { flags, ..ReadRequest::new(bp, wanted.bookmark) };
                self.0.zio.read(request, Box::new(move |result| then(result.map(|data| native(&bp, data)))));
            }
        }
        None
    }

    /// Decompresses what the cache holds and keeps the copy while memory lasts.
    fn unpack(&self, wanted: &Wanted, physical: &Abd) -> Result<Abd, ZioError> {
        let logical = zio::decompress(&wanted.bp, physical).map_err(|kind| ZioError::new(kind, wanted.bookmark))?;
        let logical = native(&wanted.bp, logical);
        let copy = shortened(&wanted.bp, logical.clone());
        let bytes = charge(&copy);
        if wanted.keep > Keep::Once && self.reserve_copy(bytes) && !self.state(&wanted.key).shard.attach(&wanted.key, wanted.tag, &copy) {
            self.0.budget.release(bytes);
        }
        Ok(logical)
    }

    /// Reads a block for the flight that was started for it: from the second level, else from the pool.
    fn start(&self, wanted: Wanted, priority: Priority) {
        let second = self.0.second.get().filter(|_| wanted.is_verifiable());
        let Some((second, name)) = second.zip(BlockName::of(&wanted.bp)) else { return self.start_pool(wanted, priority) };
        let cache = self.clone();
        let then = move |found: Option<Abd>| {
            let (given, intact) = (found.is_some(), found.filter(|physical| cache.0.zio.is_intact(&wanted.bp, physical)));
            {
                let counters = &mut cache.state(&wanted.key).shard.counters;
                match &intact {
                    Some(physical) => {
                        counters.second_hits += 1;
                        counters.second_bytes += physical.len() as u64;
                    }
                    None => {
                        counters.second_misses += 1;
                        counters.second_bad += u64::from(given);
                    }
                }
            }
            match intact {
                Some(physical) => cache.finish(&wanted, Ok(physical)),
                None => {
                    if given && let Some(second) = cache.0.second.get() {
                        second.forget(name);
                    }
                    cache.start_pool(wanted, priority);
                }
            }
        };
        second.read(name, wanted.bp.psize(), Box::new(then));
    }

    fn start_pool(&self, wanted: Wanted, priority: Priority) {
        self.0.zio.iostats().arc_read.add(1, wanted.bp.psize() as u64);
        // What is not to be kept compressed is decompressed below. What is sealed is kept as it is stored.
        let is_sealed = zio::is_sealed(&wanted.bp);
        let raw = !is_sealed && wanted.is_compressed() && self.0.compressed.load(Ordering::Relaxed);
        let flags = ReadFlags { raw: raw || is_sealed, ..ReadFlags::default() };
        let request = ReadRequest { bp: wanted.bp, bookmark: wanted.bookmark, priority, flags };
        let cache = self.clone();
        let then: ReadThen = match raw {
            true => Box::new(move |result| cache.finish(&wanted, result)),
            false => Box::new(move |result| cache.land(&wanted, result.map(|data| (native(&wanted.bp, data), None)))),
        };
        self.0.zio.read(request, then);
    }

    /// A read of the bytes on disk ended: decompresses what came, on the pool's accelerator where there is one.
    fn finish(&self, wanted: &Wanted, result: Result<Abd, ZioError>) {
        let wanted = *wanted;
        match result {
            Ok(physical) if wanted.is_compressed() && !zio::is_sealed(&wanted.bp) => {
                let (cache, kept) = (self.clone(), physical.clone());
                self.0.zio.unpack(&wanted.bp, wanted.bookmark, physical, move |result| {
                    cache.land(&wanted, result.map(|data| (native(&wanted.bp, data), Some(kept))));
                });
            }
            result => self.land(&wanted, result.map(|data| (native(&wanted.bp, data), None))),
        }
    }

    /// Keeps a block's bytes, logical and perhaps physical, and hands the logical ones to everybody who waits.
    fn land(&self, wanted: &Wanted, result: Result<(Abd, Option<Abd>), ZioError>) {
        let waiters = match &result {
            Ok((data, physical)) => {
                let physical = physical.clone().filter(|_| wanted.bp.is_little_endian());
                let body = Body { physical, logical: Some(data.clone()), ..Body::default() };
                self.insert(wanted, body, true)
            }
            Err(_) => self.state(&wanted.key).flights.remove(&wanted.key).map(|flight| flight.waiters).unwrap_or_default(),
        };
        let result = result.map(|(data, _)| data);
        for then in waiters {
            then(result.clone());
        }
    }

    /// Puts a block in if the budget allows. With `ends_flight` it ends the read under way, whose fate then decides how the
    /// block is kept, and gives back those who wait for it; else it makes such a read useless.
    fn insert(&self, wanted: &Wanted, mut body: Body, ends_flight: bool) -> Vec<ReadThen> {
        body.logical = body.logical.map(|data| shortened(&wanted.bp, data));
        // Compressed blocks that were just written are here as they were before compression. Of sealed ones there is only what was read from disk.
        let is_unpacked = body.physical.is_none() && wanted.is_compressed() && !zio::is_sealed(&wanted.bp);
        let is_stored = ends_flight || !wanted.bp.is_encrypted();
        let second = self.0.second.get().filter(|_| is_unpacked && is_stored && wanted.is_verifiable());
        body.pointer = second.map(|_| Box::new(wanted.bp));
        let copy = body.overhead_bytes();
        let mut reserved = HEADER_BYTES + body.bytes() - copy;
        let fits = self.reserve(reserved);
        if fits && copy > 0 {
            if self.reserve_copy(copy) {
                reserved += copy;
            } else {
                body.logical = None;
            }
        }
        let now_ns = self.exec().now_ns();
        let mut freed = Freed { bytes: if fits { reserved } else { 0 }, ..Freed::default() };
        let mut waiters = Vec::new();
        let (mut ask, mut stays) = (wanted.ask(Access::Demand), true);
        ask.is_verifiable &= is_stored && !is_unpacked;
        {
            let mut state = self.state(&wanted.key);
            let state = &mut *state;
            if ends_flight {
                if let Some(flight) = state.flights.remove(&wanted.key) {
                    (ask.access, ask.keep, waiters) = (flight.access, flight.keep, flight.waiters);
                    // What nobody keeps stays only until those come for whom it was read ahead.
                    stays = !flight.doomed && (flight.keep > Keep::Once || flight.access == Access::Prefetch);
                }
            } else if let Some(flight) = state.flights.get_mut(&wanted.key) {
                flight.doomed = true;
            }
            if !fits {
                state.shard.counters.bypassed += 1;
                freed = state.shard.remove(&wanted.key);
            } else if stays {
                freed = state.shard.insert(&ask, body, now_ns);
                if ask.keep == Keep::Lingers && ask.access == Access::Demand {
                    let limit = (self.max() >> LINGERING_SHIFT) / self.0.cells.len() as u64;
                    state.shard.trim_lingering(ask.kind, limit, &mut freed);
                }
            }
        }
        self.release(freed);
        waiters
    }

    /// Copies may hold this much even when memory is short.
    pub(crate) fn copies_min(&self) -> u64 {
        self.max() >> COPIES_SHIFT
    }

    /// Charges `bytes` for a decompressed copy: from free memory, then from older copies. False when they do not fit.
    fn reserve_copy(&self, bytes: u64) -> bool {
        let copies = || self.0.copies.bytes();
        if copies() + bytes <= self.copies_min() {
            return self.reserve(bytes);
        }
        loop {
            let Err(missing) = self.0.budget.reserve(bytes) else { return true };
            if copies() < missing || self.evict_copies(missing) == 0 {
                return false;
            }
        }
    }

    /// Charges `bytes` to the budget, and makes room for them when it is used up. False when they do not fit.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        loop {
            let Err(missing) = self.0.budget.reserve(bytes) else { return true };
            if self.0.budget.grow(missing) {
                continue;
            }
            if bytes > self.max() {
                return false;
            }
            if self.make_room(missing) == 0 {
                return self.0.budget.reserve(bytes).is_ok();
            }
        }
    }

    /// Gives back `missing` bytes and some in stock; how many it were, 0 when there is nothing left. Copies that can be made
    /// again go first, then what is not to be kept, then what the balance of the lists says; ghosts last.
    fn make_room(&self, missing: u64) -> u64 {
        let want = missing + (self.max() >> BATCH_SHIFT).min(BATCH_BYTES_MAX);
        let mut freed = 0;
        let copies = self.0.copies.bytes().saturating_sub(self.copies_min());
        if copies > 0 {
            freed += self.evict_copies(want.min(copies));
        }
        for kind in [Kind::Data, Kind::Metadata] {
            let bytes = self.list_bytes(List::Uncached, kind).min(want.saturating_sub(freed));
            freed += self.evict_list(Cut { state: List::Uncached, kind, bytes });
        }
        if freed < want {
            let cuts = self.0.balance.plan(want - freed);
            freed += cuts.into_iter().map(|cut| self.evict_list(cut)).sum::<u64>();
            for cut in self.0.balance.ghost_excess() {
                freed += self.evict_list(cut);
            }
        }
        if freed == 0 { self.sweep(want, |at| at, |shard, left, freed| freed.merge(shard.evict_any(left))) } else { freed }
    }

    fn evict_copies(&self, want: u64) -> u64 {
        self.sweep(want, |at| at, |shard, left, freed| freed.merge(shard.evict_copies(left)))
    }

    /// Takes bytes from one list of all shards, from where it reaches further back; gives how many that gave back to the budget.
    fn evict_list(&self, cut: Cut) -> u64 {
        let (list, mut given) = ((cut.state, cut.kind), 0);
        let take = |shard: &mut Shard, left: u64, freed: &mut Freed| {
            let taken = shard.evict_from(list, left, freed);
            given += freed.bytes;
            taken
        };
        self.sweep(cut.bytes, |at| self.older(at, list), take);
        given
    }

    /// Shard `at` or the next, whichever has the older end of a list. With turns alone the lists come to reach back very differently
    /// far, and of what was written together some stays long after the rest: blocks that share memory keep all of it.
    fn older(&self, at: usize, list: (List, Kind)) -> usize {
        let next = (at + 1) & (self.0.cells.len() - 1);
        let end = |at: usize| self.0.cells[at].0.lock().shard.oldest_ns(list).unwrap_or(u64::MAX);
        if end(next) < end(at) { next } else { at }
    }

    /// Lets `take` have bytes from shard after shard, or whom `pick` names for it, until it has `want` or nobody has any; begins
    /// where the last call ended.
    fn sweep(&self, want: u64, pick: impl Fn(usize) -> usize, mut take: impl FnMut(&mut Shard, u64, &mut Freed) -> u64) -> u64 {
        let shards = self.0.cells.len();
        let (mut taken, mut idle) = (0, 0);
        while taken < want && idle < shards {
            let at = pick(self.0.cursor.fetch_add(1, Ordering::Relaxed) & (shards - 1));
            let mut freed = Freed::default();
            let bytes = take(&mut self.0.cells[at].0.lock().shard, want - taken, &mut freed);
            self.release(freed);
            taken += bytes;
            idle = if bytes == 0 { idle + 1 } else { 0 };
        }
        taken
    }
}

impl State {
    /// After a miss: joins the read under way, or leaves one to be started.
    fn join_or_start(&mut self, wanted: &Wanted, make_then: impl FnOnce() -> ReadThen) -> Found {
        match self.flights.get_mut(&wanted.key) {
            None => {
                let mut flight = Flight::new(wanted, Access::Demand);
                flight.waiters.push(make_then());
                self.flights.insert(wanted.key, flight);
                Found::Start
            }
            Some(flight) if flight.tag == wanted.tag && !flight.doomed => {
                flight.waiters.push(make_then());
                let was_prefetch = flight.access == Access::Prefetch;
                flight.access = Access::Demand;
                flight.keep = flight.keep.max(wanted.keep);
                self.shard.counters.join(wanted.kind, was_prefetch);
                Found::Joined
            }
            Some(_) => Found::Other(make_then()),
        }
    }
}

/// True for a block that the pipeline stores with other bytes than it is given, compression aside, or that it is given as it is stored.
fn is_changed(request: &WriteRequest) -> bool {
    let kind = request.object_type;
    let changes = kind.is_encrypted() || kind == ObjectType::OBJSET;
    request.level == 0 && request.seal.as_ref().is_some_and(|seal| changes || seal.is_stored())
}

/// Bytes in our byte order; those that are encrypted have none.
fn native(bp: &BlockPtr, mut data: Abd) -> Abd {
    if zio::is_sealed(bp) {
        return data;
    }
    if !bp.is_little_endian() && !bp.is_hole() {
        byteswap_block(bp.object_type(), bp.level(), data.make_mut());
    }
    data
}
