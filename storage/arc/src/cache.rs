//! The cache itself: lookups, misses that share a read, insertion under the budget.
//!
//! ```text
//! read ─hit───────────────────────────► bytes
//!   ├─compressed only─► decompress ───► bytes, attached to the entry
//!   ├─miss, in flight─► wait for it
//!   └─miss────────────► zio ─► finish(): reserve, insert, wake everybody who waits
//! ```

use crate::budget::Budget;
use crate::key::{Key, KeyMap};
use crate::shard::{Access, Body, Freed, HEADER_BYTES, Kind, Lookup, Shard, charge};
use crate::stats::Counters;
use abd::{Abd, AbdPart};
use exec::{Exec, Mutex, MutexGuard, TaskClass, completion};
use ondisk::{BlockPtr, Bookmark, Compression, Txg, byteswap_block};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zio::{Landed, LandedThen, Priority, ReadFlags, ReadRequest, ReadThen, WriteRequest, WriteThen, Zio, ZioError};

/// Most shards of a cache.
const SHARDS_MAX: usize = 64;

/// Share of the budget that decompressed copies keep when memory is short (OpenZFS: `dbuf_cache_shift` 5).
const COPIES_SHIFT: u32 = 5;

/// A read that is under way, and who waits for it.
struct Flight {
    tag: u64,
    waiters: Vec<ReadThen>,
    access: Access,
    /// The block was freed or rewritten meanwhile: deliver, but do not keep.
    doomed: bool,
}

impl Flight {
    fn new(wanted: &Wanted, access: Access) -> Flight {
        Flight { tag: wanted.tag, waiters: Vec::new(), access, doomed: false }
    }
}

/// What one look under the lock found.
enum Found {
    Hit(Abd),
    /// Only compressed bytes.
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
struct Cell(Mutex<State>);

struct Inner {
    zio: Zio,
    budget: Budget,
    /// Bytes of decompressed copies in all shards.
    copies: Arc<AtomicU64>,
    cells: Box<[Cell]>,
}

/// The cache of one pool; a cheap handle.
#[derive(Clone)]
pub struct Cache(Arc<Inner>);

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cache {{ used: {}, max: {} }}", self.size(), self.max())
    }
}

/// A block wanted: everything derived from its pointer once.
#[derive(Clone, Copy)]
struct Wanted {
    bp: BlockPtr,
    bookmark: Bookmark,
    key: Key,
    tag: u64,
    kind: Kind,
}

impl Wanted {
    fn new(bp: &BlockPtr, bookmark: &Bookmark) -> Option<Wanted> {
        let key = Key::of(bp)?;
        let metadata = bp.level() > 0 || bp.object_type().is_metadata();
        let kind = if metadata { Kind::Metadata } else { Kind::Data };
        Some(Wanted { bp: *bp, bookmark: *bookmark, key, tag: Key::tag(bp), kind })
    }
    fn is_compressed(&self) -> bool {
        self.bp.compression() != Compression::OFF
    }
}

impl Cache {
    /// A cache over `zio` that holds at most `max_bytes`.
    pub fn new(zio: Zio, max_bytes: u64) -> Cache {
        let shards = (zio.exec().parallelism() * 4).next_power_of_two().min(SHARDS_MAX);
        let copies: Arc<AtomicU64> = Arc::default();
        let state = || State { shard: Shard::new(copies.clone()), flights: KeyMap::default() };
        let cells = (0..shards).map(|_| Cell(Mutex::new(state()))).collect();
        Cache(Arc::new(Inner { zio, budget: Budget::new(max_bytes), copies, cells }))
    }

    /// The pipeline below.
    pub fn zio(&self) -> &Zio {
        &self.0.zio
    }
    /// The executor.
    pub fn exec(&self) -> &Exec {
        self.0.zio.exec()
    }
    /// Bytes charged now, headers included.
    pub fn size(&self) -> u64 {
        self.0.budget.used()
    }
    /// The budget in bytes.
    pub fn max(&self) -> u64 {
        self.0.budget.max()
    }

    /// Changes the budget (OpenZFS: `zfs_arc_max`) and evicts down to it.
    pub fn set_max(&self, max_bytes: u64) {
        self.0.budget.set_max(max_bytes);
        self.reserve(0, 0);
    }

    /// The block's logical bytes in native order, from memory or the pool; waits. Errors are those of [`Zio::read`].
    pub fn read(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, ZioError> {
        let Some(wanted) = Wanted::new(bp, bookmark) else { return self.read_uncached(bp, bookmark) };
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
            (None, None) => self.read_uncached(bp, bookmark),
        }
    }

    /// As [`Cache::read`], without waiting: `then` runs at once on a hit, and on any thread after a miss.
    pub fn read_then(&self, bp: &BlockPtr, bookmark: &Bookmark, then: ReadThen) {
        let Some(wanted) = Wanted::new(bp, bookmark) else { return then(self.read_uncached(bp, bookmark)) };
        let mut kept = Some(then);
        let found = self.find(&wanted, || kept.take().unwrap_or_else(|| Box::new(drop)));
        if let Some(result) = self.proceed(&wanted, found)
            && let Some(then) = kept
        {
            then(result);
        }
    }

    /// Holes and embedded blocks: no device, no wait.
    fn read_uncached(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, ZioError> {
        self.0.zio.read_wait(ReadRequest::new(*bp, *bookmark)).map(|data| native(bp, data))
    }

    /// Starts reading the block into the cache unless it is there or on its way.
    pub fn prefetch(&self, bp: &BlockPtr, bookmark: &Bookmark) {
        let Some(wanted) = Wanted::new(bp, bookmark) else { return };
        let now_ns = self.exec().now_ns();
        {
            let mut state = self.state(&wanted.key);
            let state = &mut *state;
            if !matches!(state.shard.lookup(&wanted.key, wanted.tag, Access::Prefetch, wanted.kind, now_ns), Lookup::Miss) {
                return;
            }
            if state.flights.contains_key(&wanted.key) {
                return;
            }
            state.flights.insert(wanted.key, Flight::new(&wanted, Access::Prefetch));
        }
        let cache = self.clone();
        self.exec().spawn(TaskClass::Read, Box::new(move || cache.start(wanted, Priority::AsyncRead)));
    }

    /// The block's bytes when they are in memory.
    pub fn cached(&self, bp: &BlockPtr) -> Option<Abd> {
        let wanted = Wanted::new(bp, &Bookmark::default())?;
        let now_ns = self.exec().now_ns();
        let found = self.state(&wanted.key).shard.lookup(&wanted.key, wanted.tag, Access::Probe, wanted.kind, now_ns);
        match found {
            Lookup::Hit(data) => Some(data),
            Lookup::Compressed(physical) => self.unpack(&wanted, &physical).ok(),
            Lookup::Miss => None,
        }
    }

    /// Makes the logical bytes just written under `bp` warm, without a copy.
    pub fn insert_written(&self, bp: &BlockPtr, data: Abd) {
        let Some(wanted) = Wanted::new(bp, &Bookmark::default()) else { return };
        self.insert(&wanted, Body { physical: None, logical: Some(data) }, false);
    }

    /// Writes a block through the pipeline and keeps its bytes warm.
    pub fn write(&self, request: WriteRequest, then: WriteThen) {
        if request.previous.birth() == request.txg {
            self.forget(&request.previous);
        }
        let (cache, data) = (self.clone(), request.data.clone());
        let done: WriteThen = Box::new(move |result| {
            if let Ok(bp) = &result {
                cache.insert_written(bp, data);
            }
            then(result);
        });
        self.0.zio.write(request, done);
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
    }

    /// Forgets everything that nobody waits for.
    pub fn clear(&self) {
        for cell in &self.0.cells {
            let freed = cell.0.lock().shard.evict(u64::MAX);
            self.release(freed);
        }
    }

    fn home(&self, key: &Key) -> usize {
        (key.hash64() >> 40) as usize & (self.0.cells.len() - 1)
    }
    fn state(&self, key: &Key) -> MutexGuard<'_, State> {
        self.0.cells[self.home(key)].0.lock()
    }
    fn release(&self, freed: Freed) {
        self.0.budget.release(freed.bytes);
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

    /// One look under the lock: the bytes, or the read under way, or the duty to start one.
    fn find(&self, wanted: &Wanted, make_then: impl FnOnce() -> ReadThen) -> Found {
        let now_ns = self.exec().now_ns();
        let mut state = self.state(&wanted.key);
        let state = &mut *state;
        match state.shard.lookup(&wanted.key, wanted.tag, Access::Demand, wanted.kind, now_ns) {
            Lookup::Hit(data) => return Found::Hit(data),
            Lookup::Compressed(physical) => return Found::Compressed(physical),
            Lookup::Miss => {}
        }
        match state.flights.get_mut(&wanted.key) {
            None => {
                let mut flight = Flight::new(wanted, Access::Demand);
                flight.waiters.push(make_then());
                state.flights.insert(wanted.key, flight);
                Found::Start
            }
            Some(flight) if flight.tag == wanted.tag && !flight.doomed => {
                flight.waiters.push(make_then());
                flight.access = Access::Demand;
                state.shard.counters.joined += 1;
                Found::Joined
            }
            Some(_) => Found::Other(make_then()),
        }
    }

    /// Does what was found, without the lock; the bytes when they are there already.
    fn proceed(&self, wanted: &Wanted, found: Found) -> Option<Result<Abd, ZioError>> {
        match found {
            Found::Hit(data) => return Some(Ok(data)),
            Found::Compressed(physical) => return Some(self.unpack(wanted, &physical)),
            Found::Joined => {}
            Found::Start => self.start(*wanted, Priority::SyncRead),
            Found::Other(then) => {
                let bp = wanted.bp;
                self.0.zio.iostats().arc_read.add(1, bp.psize() as u64);
                let request = ReadRequest::new(bp, wanted.bookmark);
                self.0.zio.read(request, Box::new(move |result| then(result.map(|data| native(&bp, data)))));
            }
        }
        None
    }

    /// Decompresses what the cache holds and keeps the copy while memory lasts.
    fn unpack(&self, wanted: &Wanted, physical: &Abd) -> Result<Abd, ZioError> {
        let logical = logical(wanted, physical)?;
        let bytes = charge(&logical);
        if self.reserve_copy(bytes, self.home(&wanted.key)) && !self.state(&wanted.key).shard.attach(&wanted.key, wanted.tag, &logical) {
            self.0.budget.release(bytes);
        }
        Ok(logical)
    }

    fn start(&self, wanted: Wanted, priority: Priority) {
        self.0.zio.iostats().arc_read.add(1, wanted.bp.psize() as u64);
        let flags = ReadFlags { raw: wanted.is_compressed(), ..ReadFlags::default() };
        let request = ReadRequest { bp: wanted.bp, bookmark: wanted.bookmark, priority, flags };
        let cache = self.clone();
        self.0.zio.read(request, Box::new(move |result| cache.finish(&wanted, result)));
    }

    /// A read ended: keeps the bytes and hands them to everybody who waits.
    fn finish(&self, wanted: &Wanted, result: Result<Abd, ZioError>) {
        let result = result.and_then(|physical| {
            let data = logical(wanted, &physical)?;
            Ok((data, physical))
        });
        let waiters = match &result {
            Ok((data, physical)) => {
                let keep_physical = wanted.is_compressed() && wanted.bp.is_little_endian();
                let body = Body { physical: keep_physical.then(|| physical.clone()), logical: Some(data.clone()) };
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
        let home = self.home(&wanted.key);
        let copy = body.overhead_bytes();
        let mut reserved = HEADER_BYTES + body.bytes() - copy;
        let fits = self.reserve(reserved, home);
        if fits && copy > 0 {
            if self.reserve_copy(copy, home) {
                reserved += copy;
            } else {
                body.logical = None;
            }
        }
        let now_ns = self.exec().now_ns();
        let mut freed = Freed { bytes: if fits { reserved } else { 0 }, ..Freed::default() };
        let mut waiters = Vec::new();
        let (mut access, mut keep) = (Access::Demand, true);
        {
            let mut state = self.state(&wanted.key);
            let state = &mut *state;
            if ends_flight {
                if let Some(flight) = state.flights.remove(&wanted.key) {
                    (access, keep, waiters) = (flight.access, !flight.doomed, flight.waiters);
                }
            } else if let Some(flight) = state.flights.get_mut(&wanted.key) {
                flight.doomed = true;
            }
            if !fits {
                state.shard.counters.bypassed += 1;
                freed = state.shard.remove(&wanted.key);
            } else if keep {
                freed = state.shard.insert(wanted.key, wanted.tag, wanted.kind, body, access, now_ns);
            }
        }
        self.release(freed);
        waiters
    }

    /// Copies may hold this much even when memory is short.
    fn copies_min(&self) -> u64 {
        self.max() >> COPIES_SHIFT
    }

    /// Charges `bytes` for a decompressed copy: from free memory, then from older copies. False when they do not fit.
    fn reserve_copy(&self, bytes: u64, home: usize) -> bool {
        if self.0.copies.load(Ordering::Relaxed) + bytes <= self.copies_min() {
            return self.reserve(bytes, home);
        }
        let shards = self.0.cells.len();
        for at in (home..home + shards).map(|at| at & (shards - 1)) {
            let Err(missing) = self.0.budget.reserve(bytes) else { return true };
            if self.0.copies.load(Ordering::Relaxed) < missing {
                return false;
            }
            let freed = self.0.cells[at].0.lock().shard.evict_copies(missing);
            self.release(freed);
        }
        self.0.budget.reserve(bytes).is_ok()
    }

    /// Charges `bytes` to the budget. Copies that can be made again go first, wherever they are; then entries of shard `home`,
    /// then those of the others. False when the bytes do not fit.
    fn reserve(&self, bytes: u64, home: usize) -> bool {
        let shards = self.0.cells.len();
        let (mut empty, mut at) = (0, home);
        let mut copies_left = shards;
        loop {
            let Err(missing) = self.0.budget.reserve(bytes) else { return true };
            if empty == shards || bytes > self.max() {
                return false;
            }
            let copies = copies_left > 0 && self.0.copies.load(Ordering::Relaxed) > self.copies_min();
            let freed = {
                let shard = &mut self.0.cells[at].0.lock().shard;
                if copies { shard.evict_copies(missing) } else { shard.evict(missing) }
            };
            let nothing = freed.bytes == 0;
            self.release(freed);
            if copies {
                // One round over all shards; then back home for entries.
                copies_left -= 1;
                at = if copies_left == 0 { home } else { (at + usize::from(nothing)) & (shards - 1) };
            } else if nothing {
                empty += 1;
                at = (at + 1) & (shards - 1);
            } else {
                empty = 0;
            }
        }
    }
}

/// The block's bytes as the engine uses them.
fn logical(wanted: &Wanted, physical: &Abd) -> Result<Abd, ZioError> {
    if !wanted.is_compressed() {
        return Ok(native(&wanted.bp, physical.clone()));
    }
    let data = zio::decompress(&wanted.bp, physical).map_err(|kind| ZioError::new(kind, wanted.bookmark))?;
    Ok(native(&wanted.bp, data))
}

/// Bytes in our byte order.
fn native(bp: &BlockPtr, mut data: Abd) -> Abd {
    if !bp.is_little_endian() && !bp.is_hole() {
        byteswap_block(bp.object_type(), bp.level(), data.make_mut());
    }
    data
}
