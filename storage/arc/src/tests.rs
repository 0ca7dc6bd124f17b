//! Tests of the policy and of the cache over a real pipeline.

use crate::key::Key;
use crate::origin::Origin;
use crate::shard::{Access, Ask, Body, Freed, HEADER_BYTES, Keep, Kind, Lookup, Shard};
use crate::{BlockName, Cache, FoundThen, Leaving, SecondCounts, SecondLevel, Wish};
use abd::Abd;
use device::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use exec::{Exec, Executor, Inline, Lockstep, Mutex, Pool};
use kstat::NoEvents;
use metaslab::Allocator;
use ondisk::{BlockId, BlockPtr, Bookmark, Compression, Level, ObjectId, ObjectType, ObjsetId, Txg};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vdev::{TopKind, VdevTree};
use zio::{Facts, PoolView, WriteRequest, Zio};

/// A memory device that counts reads and can hold them back.
#[derive(Debug)]
struct Gate {
    mem: MemDevice,
    reads: AtomicU64,
    held: Mutex<Option<Vec<DeviceIo>>>,
}

impl BlockDevice for Gate {
    fn submit(&self, io: DeviceIo) {
        if let DeviceOp::Read(_) = &io.op {
            self.reads.fetch_add(1, Ordering::Relaxed);
            if let Some(held) = &mut *self.held.lock() {
                return held.push(io);
            }
        }
        self.mem.submit(io);
    }
    fn facts(&self) -> &DeviceFacts {
        self.mem.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.mem.size_bytes()
    }
}

struct Rig {
    inline: Arc<Inline>,
    device: Arc<Gate>,
    cache: Cache,
}

const LEAF_BYTES: u64 = 64 << 20;

fn cache_on(exec: Exec, max: u64) -> (Arc<Gate>, Cache) {
    let tree = Arc::new(VdevTree::simple(&[(TopKind::Leaf, 1)], 9, LEAF_BYTES).expect("one leaf is a tree"));
    let allocator = Arc::new(Allocator::new(&tree, 1));
    for metaslab in 0..allocator.metaslab_count(tree.tops[0].id) {
        allocator.load(tree.tops[0].id, metaslab, &[]).expect("an empty metaslab loads");
    }
    let mem = MemDevice::new("d0", (LEAF_BYTES + (5 << 20)) as usize);
    let device = Arc::new(Gate { mem, reads: AtomicU64::new(0), held: Mutex::new(None) });
    let facts = Facts { writeable: true, ..Facts::default() };
    let view = PoolView { tree, devices: vec![Some(device.clone() as Arc<dyn BlockDevice>)], allocator, facts };
    (device, Cache::new(Zio::new(exec, view, Arc::new(NoEvents)), max))
}

impl Rig {
    fn new(max: u64) -> Rig {
        let inline = Arc::new(Inline::new(3));
        let (device, cache) = cache_on(inline.clone(), max);
        Rig { inline, device, cache }
    }
    fn write(&self, request: WriteRequest) -> BlockPtr {
        let got: Arc<Mutex<Option<BlockPtr>>> = Arc::default();
        let slot = got.clone();
        self.cache.write(request, true, Box::new(move |result| *slot.lock() = result.ok()));
        while self.inline.step() {}
        got.lock().take().expect("the write succeeds")
    }
    fn reads(&self) -> u64 {
        self.device.reads.load(Ordering::Relaxed)
    }
    fn read(&self, bp: &BlockPtr) -> Abd {
        let data = self.cache.read(bp, &bookmark(0)).expect("the block reads");
        assert!(self.cache.size() <= self.cache.max(), "{} of {}", self.cache.size(), self.cache.max());
        data
    }
}

fn bookmark(block: u64) -> Bookmark {
    Bookmark { objset: ObjsetId(54), object: ObjectId(2), level: Level(0), block: BlockId(block) }
}

fn pattern(seed: u64, length: usize) -> Abd {
    let mut z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 32);
    while bytes.len() < length {
        z ^= z << 13;
        z ^= z >> 7;
        z ^= z << 17;
        bytes.extend_from_slice(&z.to_le_bytes());
        bytes.extend_from_slice(b"the same words again and");
    }
    Abd::from_slice(&bytes[..length])
}

fn request(seed: u64, length: usize) -> WriteRequest {
    WriteRequest::new(Txg(10), pattern(seed, length), bookmark(seed), ObjectType::PLAIN_FILE_CONTENTS)
}

/// Whatever is written, read, rewritten, freed, evicted: a reader must see the last contents, and memory must stay in budget.
#[test]
fn random_operations_match_a_map_within_the_budget() {
    for seed in 1..=4u64 {
        let rig = Rig::new(1 << 20);
        let mut model: BTreeMap<u64, (BlockPtr, Abd)> = BTreeMap::new();
        let mut random = seed;
        let mut next = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        for step in 0..3000u64 {
            let slot = next(60);
            match next(12) {
                0..=2 => {
                    let mut wanted = request(step + 1, [512, 4096, 20_480, 131_072][next(4) as usize]);
                    wanted.compression = if next(2) == 0 { Compression::LZ4 } else { Compression::OFF };
                    let data = wanted.data.clone();
                    let old = model.remove(&slot);
                    if let Some((bp, _)) = &old {
                        (wanted.previous, wanted.pass) = (*bp, 2);
                    }
                    let bp = rig.write(wanted);
                    if let Some((old, _)) = old.filter(|(old, _)| old.dva(0) != bp.dva(0)) {
                        rig.cache.free(Txg(10), &old);
                    }
                    model.insert(slot, (bp, data));
                }
                3 => rig.cache.set_max([1 << 20, 300 << 10, 64 << 10, 0][next(4) as usize]),
                4 => {
                    if let Some((bp, _)) = model.get(&slot) {
                        rig.cache.prefetch(bp, &bookmark(slot), Keep::Kept);
                    }
                }
                5 if next(20) == 0 => rig.cache.clear(),
                6 => {
                    if let Some((bp, _)) = model.remove(&slot) {
                        rig.cache.free(Txg(10), &bp);
                    }
                }
                7 => rig.inline.sleep_ns(100_000_000),
                _ => {
                    if let Some((bp, data)) = model.get(&slot) {
                        assert!(rig.read(bp) == *data, "seed {seed} step {step}");
                        if let Some(cached) = rig.cache.cached(bp) {
                            assert!(cached == *data, "seed {seed} step {step}: cached");
                        }
                    }
                }
            }
            assert!(rig.cache.size() <= rig.cache.max(), "seed {seed} step {step}");
        }
        rig.cache.clear();
        assert_eq!(rig.cache.size(), 0, "every byte charged is given back");
    }
}

/// Four readers that also shrink the cache, rewrite and forget, for `steps` steps each.
fn share(exec: &Exec, steps: u64) {
    let (_device, cache) = cache_on(exec.clone(), 2 << 20);
    let blocks: Vec<(BlockPtr, Abd)> = (0..64)
        .map(|n| {
            let mut wanted = request(n + 1, 65_536);
            wanted.compression = Compression::LZ4;
            let data = wanted.data.clone();
            (cache.zio().write_wait(wanted).expect("the write succeeds"), data)
        })
        .collect();
    let blocks = Arc::new(blocks);
    let workers: Vec<_> = (0..4u64)
        .map(|worker| {
            let (cache, blocks) = (cache.clone(), blocks.clone());
            exec.spawn_operation(
                "reader",
                Box::new(move || {
                    for step in 0..steps {
                        let (bp, data) = &blocks[((step * (worker + 3)) ^ (step >> 3)) as usize % blocks.len()];
                        assert!(cache.read(bp, &bookmark(0)).expect("the block reads") == *data);
                        assert!(cache.size() <= 2 << 20);
                        match (step + worker) % 23 {
                            3 => cache.set_max(if worker % 2 == 0 { 1 << 20 } else { 2 << 20 }),
                            7 => cache.insert_written(bp, &Bookmark::default(), data.clone()),
                            11 => cache.forget(bp),
                            13 => cache.prefetch(bp, &bookmark(0), Keep::Kept),
                            _ => {}
                        }
                    }
                }),
            )
        })
        .collect();
    workers.into_iter().for_each(exec::OperationHandle::join);
    for (bp, data) in blocks.iter() {
        assert!(cache.read(bp, &bookmark(0)).expect("the block reads") == *data);
    }
    cache.clear();
    assert_eq!(cache.size(), 0, "every byte charged is given back");
}

/// Threads that read, write and shrink the cache at the same time must get right bytes and never exceed the budget.
#[test]
fn threads_share_the_cache_within_the_budget() {
    let exec: Exec = Arc::new(Pool::new(2));
    share(&exec, 2000);
}

/// The same with every interleaving of locks that a seed can choose.
#[test]
fn interleaved_threads_share_the_cache_within_the_budget() {
    for seed in 0..12 {
        Lockstep::run(seed, |exec| share(exec, 60));
    }
}

/// Many readers of one cold block must cost one device read.
#[test]
fn concurrent_misses_share_one_read() {
    let rig = Rig::new(1 << 20);
    let bp = rig.write(request(1, 4096));
    rig.cache.clear();
    *rig.device.held.lock() = Some(Vec::new());
    let before = rig.reads();
    let got = Arc::new(AtomicU64::new(0));
    for _ in 0..5 {
        let got = got.clone();
        rig.cache.read_then(
            &bp,
            &bookmark(1),
            Box::new(move |result| {
                assert!(result.expect("the block reads") == pattern(1, 4096));
                got.fetch_add(1, Ordering::Relaxed);
            }),
        );
    }
    rig.cache.prefetch(&bp, &bookmark(1), Keep::Kept);
    assert_eq!((rig.reads() - before, got.load(Ordering::Relaxed)), (1, 0));
    let held = rig.device.held.lock().take().expect("reads were held");
    held.into_iter().for_each(|io| rig.device.mem.submit(io));
    while rig.inline.step() {}
    assert_eq!(got.load(Ordering::Relaxed), 5);
    rig.read(&bp);
    assert_eq!(rig.reads() - before, 1, "the block stayed in the cache");
}

/// A block freed while it is read must not come back from the cache when its address is used again.
#[test]
fn a_block_freed_while_read_is_not_kept() {
    let rig = Rig::new(1 << 20);
    let bp = rig.write(request(1, 4096));
    rig.cache.clear();
    *rig.device.held.lock() = Some(Vec::new());
    rig.cache.read_then(&bp, &bookmark(1), Box::new(|result| assert!(result.is_ok())));
    rig.cache.free(Txg(10), &bp);
    let held = rig.device.held.lock().take().expect("reads were held");
    held.into_iter().for_each(|io| rig.device.mem.submit(io));
    while rig.inline.step() {}
    assert!(rig.cache.cached(&bp).is_none());
    assert_eq!(rig.cache.size(), 0);
}

/// Written data must be readable without touching the device, and a hit must not copy.
#[test]
fn written_blocks_are_warm_without_a_copy() {
    let rig = Rig::new(1 << 20);
    let wanted = request(1, 65_536);
    let source = wanted.data.as_contiguous().map(<[u8]>::as_ptr);
    let bp = rig.write(wanted);
    let before = rig.reads();
    assert_eq!(rig.read(&bp).as_contiguous().map(<[u8]>::as_ptr), source);
    assert_eq!(rig.reads(), before);
}

/// Writes twelve blocks of 128 KiB that compress, with the patterns of 1 to 12.
fn compressed_blocks(rig: &Rig) -> Vec<BlockPtr> {
    (1..=12).map(|seed| rig.write(WriteRequest { compression: Compression::LZ4, ..request(seed, 131_072) })).collect()
}

/// A working set that fits in compressed form must stay in memory.
#[test]
fn compressed_blocks_take_compressed_space() {
    let rig = Rig::new(1 << 20);
    let blocks = compressed_blocks(&rig);
    assert!(blocks[0].psize() <= 80 << 10, "the pattern compresses: {:?}", blocks[0]);
    rig.cache.clear();
    let warm = |rig: &Rig| blocks.iter().enumerate().for_each(|(n, bp)| assert!(rig.read(bp) == pattern(n as u64 + 1, 131_072)));
    warm(&rig);
    let before = rig.reads();
    warm(&rig);
    assert_eq!(rig.reads(), before, "1.5 MiB of data fit into 1 MiB");
}

/// If this fails, a thousand mounted file systems fill the cache with the zeros of their trees of objects, five blocks of 128 KiB each, and push out what
/// is used; or such a block is read without its end, and what it points to is lost.
#[test]
fn indirect_blocks_with_few_pointers_take_few_bytes() {
    const BYTES: usize = 128 << 10;
    for (filled, level, few) in [(128, 1, true), (2048, 5, true), (2049, 1, false), (BYTES, 1, false), (128, 0, false)] {
        let what = format!("{filled} bytes on level {level}");
        let rig = Rig::new(2 << 20);
        let mut bytes = vec![0; BYTES];
        bytes[..filled].fill(7);
        let data = Abd::from_slice(&bytes);
        let at = Bookmark { level: Level(level), ..bookmark(0) };
        let written = WriteRequest::new(Txg(10), data.clone(), at, ObjectType::PLAIN_FILE_CONTENTS);
        let bp = rig.write(WriteRequest { compression: Compression::LZ4, ..written });
        let before = rig.reads();
        let check = |most: u64| {
            assert_eq!(rig.cache.size() <= HEADER_BYTES + most, few, "{what}: {} bytes", rig.cache.size());
            assert!(rig.read(&bp) == data && rig.cache.at_hand(&bp).is_some_and(|found| found == data), "{what}");
            assert!(rig.cache.cached(&bp).is_some_and(|found| found == data), "{what}");
        };
        check(4096);
        assert_eq!(rig.reads(), before, "{what}: it is warm");
        rig.cache.clear();
        assert!(rig.read(&bp) == data, "{what}");
        // As on disk, too.
        check(2 * 4096);
    }
}

/// If this fails, who may only look, since others wait for its thread, decompresses blocks there; or takes the bytes of another block.
#[test]
fn what_is_at_hand_costs_no_more_than_a_look() {
    let rig = Rig::new(2 << 20);
    let blocks = compressed_blocks(&rig);
    rig.cache.clear();
    let before = rig.reads();
    assert!(blocks.iter().all(|bp| rig.cache.at_hand(bp).is_none()));
    assert_eq!(rig.reads(), before, "nothing is read for it");
    blocks.iter().for_each(|bp| drop(rig.read(bp)));
    let at_hand: Vec<Option<Abd>> = blocks.iter().map(|bp| rig.cache.at_hand(bp)).collect();
    assert!(at_hand.iter().any(Option::is_some) && at_hand.iter().any(Option::is_none), "some copies fit");
    for (n, data) in at_hand.iter().enumerate() {
        assert!(data.as_ref().is_none_or(|data| *data == pattern(n as u64 + 1, 131_072)));
    }
    assert!(blocks.iter().all(|bp| rig.cache.cached(bp).is_some()), "the others are there compressed");
}

/// Reading a large file once must not throw out what is used again and again.
#[test]
fn a_scan_does_not_evict_the_frequently_used() {
    let rig = Rig::new(2 << 20);
    let hot: Vec<BlockPtr> = (0..8).map(|n| rig.write(request(n + 1, 32_768))).collect();
    for _ in 0..4 {
        rig.inline.sleep_ns(100_000_000);
        hot.iter().for_each(|bp| drop(rig.read(bp)));
    }
    for n in 0..400 {
        rig.write(request(1000 + n, 32_768));
    }
    let before = rig.reads();
    hot.iter().for_each(|bp| drop(rig.read(bp)));
    assert_eq!(rig.reads(), before);
}

/// If this fails, a cache that gave memory back when the machine was short of it stays small for good, or gives up too much.
#[test]
fn a_cache_that_shrank_keeps_its_least_and_grows_again_when_it_may() {
    let rig = Rig::new(4 << 20);
    rig.cache.set_min(1 << 20);
    let blocks: Vec<BlockPtr> = (0..96).map(|n| rig.write(request(n + 1, 32_768))).collect();
    let read_all = || blocks.iter().for_each(|bp| drop(rig.read(bp)));
    assert!(rig.cache.size() > 2 << 20);
    rig.cache.shrink(2 << 20, true);
    assert!(rig.cache.max() == 2 << 20 && rig.cache.size() <= 2 << 20);
    rig.cache.shrink(64 << 20, true);
    assert!(rig.cache.max() == 1 << 20 && rig.cache.size() <= 1 << 20);
    read_all();
    assert_eq!((rig.cache.max(), value(&rig, "arc_no_grow")), (1 << 20, 1), "memory is still short");
    rig.cache.shrink(0, false);
    read_all();
    assert!(rig.cache.max() > 2 << 20 && rig.cache.size() > 2 << 20, "{} of {}", rig.cache.size(), rig.cache.max());
    rig.cache.set_max(2 << 20);
    assert_eq!((rig.cache.max(), value(&rig, "c_min"), value(&rig, "c_max")), (2 << 20, 1 << 20, 2 << 20));
    rig.cache.set_min(64 << 20);
    assert_eq!((rig.cache.max(), rig.cache.limits()), (2 << 20, (2 << 20, 2 << 20)));
}

/// A second level in memory that answers later, forgets the oldest, and lies where told to.
#[derive(Default)]
struct Shelf {
    exec: Option<Exec>,
    blocks: Mutex<BTreeMap<BlockName, Abd>>,
    taken: AtomicU64,
    forgotten: AtomicU64,
    lies: AtomicU64,
}

impl Shelf {
    /// Takes what is about to leave and is not here yet.
    fn feed(&self, cache: &Cache) {
        let is_new = |block: &Leaving| !self.blocks.lock().contains_key(&block.name);
        let taken = cache.about_to_leave(u64::MAX, &mut |block| if is_new(block) { Wish::Take } else { Wish::Pass });
        self.taken.fetch_add(taken.len() as u64, Ordering::Relaxed);
        let mut blocks = self.blocks.lock();
        for candidate in taken {
            assert_eq!(candidate.physical.len(), candidate.block.physical_bytes);
            blocks.insert(candidate.block.name, candidate.physical);
            if blocks.len() > 40 {
                blocks.pop_first();
            }
        }
    }
}

impl SecondLevel for Shelf {
    fn read(&self, name: BlockName, psize_bytes: usize, then: FoundThen) {
        let found = self.blocks.lock().get(&name).cloned();
        assert!(found.as_ref().is_none_or(|data| data.len() == psize_bytes));
        let wrong = || match self.lies.load(Ordering::Relaxed) {
            0 => found.clone(),
            1 => found.as_ref().map(|data| Abd::zeroed(data.len())),
            2 => found.as_ref().map(|data| data.slice(0..data.len() / 2)),
            _ => Some(pattern(name.version, psize_bytes)),
        };
        let answer = wrong();
        match &self.exec {
            Some(exec) => exec.spawn(exec::TaskClass::Read, Box::new(move || then(answer))),
            None => then(answer),
        }
    }
    fn forget(&self, name: BlockName) {
        self.forgotten.fetch_add(1, Ordering::Relaxed);
        self.blocks.lock().remove(&name);
    }
    fn counts(&self) -> SecondCounts {
        SecondCounts { feeds: self.taken.load(Ordering::Relaxed), ..SecondCounts::default() }
    }
}

fn shelf_behind(rig: &Rig, later: bool) -> Arc<Shelf> {
    let exec = later.then(|| rig.inline.clone() as Exec);
    let shelf = Arc::new(Shelf { exec, ..Shelf::default() });
    assert!(rig.cache.set_second_level(shelf.clone()));
    assert!(!rig.cache.set_second_level(shelf.clone()), "there is one second level");
    shelf
}

/// If this fails, a second level on a fast device is never asked, or gets bytes that nobody can verify.
#[test]
fn what_the_cache_lets_go_of_is_found_in_the_second_level() {
    for later in [false, true] {
        let rig = Rig::new(256 << 10);
        let shelf = shelf_behind(&rig, later);
        let blocks: Vec<BlockPtr> = (0..24)
            .map(|n| {
                let mut wanted = request(n + 1, 32_768);
                wanted.compression = if n % 2 == 0 { Compression::LZ4 } else { Compression::OFF };
                rig.write(wanted)
            })
            .collect();
        let read_all = || {
            for (n, bp) in blocks.iter().enumerate() {
                assert!(rig.read(bp) == pattern(n as u64 + 1, 32_768));
                shelf.feed(&rig.cache);
            }
        };
        (0..3).for_each(|_| read_all());
        let before = rig.reads();
        read_all();
        assert_eq!(rig.reads(), before, "all of it is in memory or in the second level");
        assert!(value(&rig, "l2_hits") > 20 && value(&rig, "l2_cksum_bad") == 0 && value(&rig, "evict_l2_eligible") > 0);
        assert_eq!(value(&rig, "l2_feeds"), shelf.taken.load(Ordering::Relaxed), "the second level counts for itself");
        assert!(shelf.taken.load(Ordering::Relaxed) > 20);
        rig.cache.free(Txg(10), &blocks[0]);
        assert_eq!(shelf.forgotten.load(Ordering::Relaxed), 1);
        assert!(!shelf.blocks.lock().contains_key(&BlockName::of(&blocks[0]).expect("it has an address")));
    }
}

/// If this fails, a second level that lost or mixed up bytes gives users wrong data.
#[test]
fn a_second_level_is_never_trusted() {
    for lie in 1..=3 {
        let rig = Rig::new(256 << 10);
        let shelf = shelf_behind(&rig, lie == 2);
        let mut blocks: Vec<(BlockPtr, u64)> = (0..24).map(|n| (rig.write(request(n + 1, 32_768)), n + 1)).collect();
        for round in 0..4u64 {
            shelf.lies.store(if round == 0 { 0 } else { lie }, Ordering::Relaxed);
            for (bp, seed) in &mut blocks {
                assert!(rig.read(bp) == pattern(*seed, 32_768), "lie {lie} in round {round}");
                shelf.feed(&rig.cache);
                if *seed % 5 == round {
                    // In place, while its txg syncs: the name's version changes.
                    let mut wanted = request(*seed + 1000, 32_768);
                    (wanted.previous, wanted.pass) = (*bp, 2);
                    *bp = rig.write(wanted);
                    *seed += 1000;
                }
            }
        }
        assert!(value(&rig, "l2_cksum_bad") > 0, "lie {lie} was not noticed");
    }
}

/// If this fails, a second level fills with what it was not to have, or looks through the whole cache each time.
#[test]
fn a_second_level_sees_what_gives_way_next_and_no_more_than_it_asks_for() {
    let rig = Rig::new(8 << 20);
    let shelf = shelf_behind(&rig, false);
    let mut wanted = request(1, 32_768);
    wanted.compression = Compression::LZ4;
    let compressed = rig.write(wanted);
    let plain: Vec<BlockPtr> = (2..40).map(|n| rig.write(request(n, 32_768))).collect();
    let seen = |most: usize| {
        let mut names = Vec::new();
        let taken = rig.cache.about_to_leave(u64::MAX, &mut |block| {
            assert_eq!((block.objset, block.logical_bytes, block.is_prefetched), (ObjsetId(54), 32_768, false));
            names.push(block.name);
            if names.len() < most { Wish::Take } else { Wish::Enough }
        });
        assert_eq!(taken.len(), names.len().min(most - 1));
        names
    };
    let all = seen(1000);
    assert_eq!(all.len(), plain.len() + 1);
    let name = BlockName::of(&compressed).expect("it has an address");
    // What was just written compressed is here as it is read only: its bytes are made once more.
    let taken = rig.cache.about_to_leave(u64::MAX, &mut |block| if block.name == name { Wish::Take } else { Wish::Pass });
    assert!(compressed.psize() < 32_768 && taken.len() == 1 && taken[0].block.physical_bytes == compressed.psize());
    assert!(rig.cache.zio().is_intact(&compressed, &taken[0].physical));
    rig.cache.withhold(&compressed);
    assert_eq!(seen(1000).len(), plain.len(), "one that comes out otherwise is not shown again");
    assert_eq!(seen(5).len(), 5);
    let before = rig.cache.size();
    assert!(rig.cache.charge_headers(1 << 20) && rig.cache.size() == before + (1 << 20));
    assert!(!rig.cache.charge_headers(64 << 20), "headers never exceed the budget");
    rig.cache.release_headers(1 << 20);
    assert_eq!(shelf.forgotten.load(Ordering::Relaxed), 0);
}

/// Reads through the cache what is kept: `blocks` of metadata.
fn write_metadata(rig: &Rig, seeds: std::ops::Range<u64>, bytes: usize) -> Vec<BlockPtr> {
    let request = |n| WriteRequest::new(Txg(10), pattern(n + 1, bytes), bookmark(n), ObjectType::DIRECTORY_CONTENTS);
    seeds.map(|n| rig.write(request(n))).collect()
}

fn value(rig: &Rig, name: &str) -> u64 {
    let kstat = rig.cache.kstat();
    let found = kstat.values().into_iter().find(|(known, _)| *known == name);
    match found {
        Some((_, kstat::Value::U64(value))) => value,
        other => panic!("{name}: {other:?}"),
    }
}

/// If this fails, a backup that reads every file once makes each lookup of a name wait for a device.
#[test]
fn a_stream_of_data_does_not_push_out_metadata_in_use() {
    for share_kib in [256, 900] {
        let rig = Rig::new(2 << 20);
        let metadata = write_metadata(&rig, 0..share_kib / 4, 4096);
        let stream: Vec<BlockPtr> = (0..200).map(|n| rig.write(request(5000 + n, 32_768))).collect();
        let mut late = 0;
        for (step, bp) in stream.iter().cycle().take(3000).enumerate() {
            rig.read(bp);
            let before = rig.reads();
            for at in 0..4 {
                rig.read(&metadata[(step * 4 + at) % metadata.len()]);
            }
            rig.inline.sleep_ns(5_000_000);
            late += if step >= 1500 { rig.reads() - before } else { 0 };
        }
        assert!(late * 50 < 1500 * 4, "{share_kib} KiB of metadata in use: {late} of 6000 reads waited for a device");
    }
}

/// If this fails, an administrator who sets `zfs_arc_meta_balance` changes nothing, or the wrong way round.
#[test]
fn the_weight_of_metadata_decides_who_gives_way() {
    let kept = |percent| {
        let rig = Rig::new(1 << 20);
        rig.cache.set_meta_balance(percent);
        let metadata = write_metadata(&rig, 0..200, 4096);
        let data: Vec<BlockPtr> = (0..200).map(|n| rig.write(request(1000 + n, 4096))).collect();
        for step in 0..12_000usize {
            rig.read(&metadata[step * 7 % metadata.len()]);
            rig.read(&data[step * 11 % data.len()]);
            rig.inline.sleep_ns(1_000_000);
        }
        assert_eq!(value(&rig, "arc_meta_used"), value(&rig, "metadata_size"));
        assert!(value(&rig, "mru_ghost_hits") + value(&rig, "mfu_ghost_hits") > 0);
        value(&rig, "metadata_size")
    };
    let (little, much) = (kept(20), kept(2000));
    assert!(little + (100 << 10) < much, "metadata in memory: {little} bytes at 20 %, {much} at 2000 %");
}

/// If this fails, of what was written together some leaves memory long before the rest, which keeps memory that both share.
#[test]
fn all_shards_reach_equally_far_back() {
    const FIT: u64 = 1024;
    let rig = Rig::new(FIT * (4096 + HEADER_BYTES));
    let written: Vec<BlockPtr> = (0..8 * FIT).map(|n| rig.write(request(n + 1, 4096))).collect();
    let is_here = |bp: &BlockPtr| rig.cache.cached(bp).is_some();
    let oldest = written.iter().position(is_here).expect("something is kept");
    let newest_gone = written.iter().rposition(|bp| !is_here(bp)).expect("not all fits");
    let spread = newest_gone.saturating_sub(oldest);
    assert!(spread < FIT as usize / 8, "block {oldest} is kept, block {newest_gone} is not: {spread} of {FIT} that fit");
}

/// If this fails, `primarycache=none` fills memory after all, or what was read ahead for it is read twice.
#[test]
fn blocks_not_to_be_kept_leave_nothing_behind() {
    let rig = Rig::new(1 << 20);
    let blocks: Vec<BlockPtr> = (0..4)
        .map(|n| {
            let mut wanted = request(n + 1, 65_536);
            wanted.compression = if n % 2 == 0 { Compression::LZ4 } else { Compression::OFF };
            rig.write(wanted)
        })
        .collect();
    rig.cache.clear();
    let read = |bp: &BlockPtr, keep| rig.cache.read_kept(bp, &bookmark(0), keep).expect("the block reads");
    for (n, bp) in blocks.iter().enumerate() {
        let before = rig.reads();
        assert!(read(bp, Keep::Once) == pattern(n as u64 + 1, 65_536));
        assert!(read(bp, Keep::Once) == pattern(n as u64 + 1, 65_536));
        assert_eq!((rig.reads() - before, rig.cache.size()), (2, 0));
        // Read ahead, it waits for its one use.
        rig.cache.prefetch(bp, &bookmark(0), Keep::Once);
        while rig.inline.step() {}
        assert!(value(&rig, "uncached_size") > 0);
        assert!(read(bp, Keep::Once) == pattern(n as u64 + 1, 65_536));
        assert_eq!((rig.reads() - before, rig.cache.size(), value(&rig, "uncached_size")), (3, 0, 0));
        // Read ahead and then wanted by somebody who keeps it.
        rig.cache.prefetch(bp, &bookmark(0), Keep::Once);
        while rig.inline.step() {}
        read(bp, Keep::Kept);
        assert_eq!(value(&rig, "uncached_size"), 0);
        read(bp, Keep::Once);
        read(bp, Keep::Kept);
        assert_eq!(rig.reads() - before, 4, "what somebody keeps serves all");
        rig.cache.clear();
    }
    assert!(value(&rig, "uncached_hits") == 8 && value(&rig, "demand_hit_predictive_prefetch") >= 4);
    // Taken in parts it is read once, and many such blocks take little.
    let many: Vec<BlockPtr> = (0..40).map(|n| rig.write(request(100 + n, 16_384))).collect();
    rig.cache.clear();
    for bp in &many {
        let before = rig.reads();
        (0..4).for_each(|_| drop(read(bp, Keep::Lingers)));
        assert_eq!(rig.reads() - before, 1);
    }
    assert!(rig.cache.size() < 200 << 10, "{} bytes linger", rig.cache.size());
    rig.cache.clear();
    let silent = request(77, 4096);
    rig.cache.write(silent, false, Box::new(|result| assert!(result.is_ok())));
    while rig.inline.step() {}
    assert_eq!(rig.cache.size(), 0);
}

/// A pool written by a big-endian machine must read as if written by ours.
#[test]
fn foreign_blocks_are_swapped_by_type() {
    let rig = Rig::new(1 << 20);
    let words: Vec<u8> = (0..512u64).flat_map(u64::to_be_bytes).collect();
    let data = Abd::from_slice(&words);
    let mut bp = rig.write(WriteRequest::new(Txg(10), data, bookmark(1), ObjectType::UINT64_OTHER));
    rig.cache.clear();
    bp.set_little_endian(false);
    bp.set_checksum(kernels::checksum(bp.checksum_kind(), &[&words], kernels::ByteOrder::Big).expect("fletcher4 is supported"));
    let expected: Vec<u8> = (0..512u64).flat_map(u64::to_le_bytes).collect();
    assert_eq!(rig.read(&bp).to_vec(), expected);
    assert_eq!(rig.read(&bp).to_vec(), expected, "and from the cache");
}

/// Monitoring reads the numbers by these names.
#[test]
fn arcstats_has_the_names_that_tools_read() {
    let rig = Rig::new(1 << 20);
    let bp = rig.write(request(1, 4096));
    rig.read(&bp);
    rig.cache.clear();
    assert!(rig.cache.cached(&bp).is_none(), "looking does not read");
    rig.read(&bp);
    let kstat = rig.cache.kstat();
    let values: BTreeMap<&str, kstat::Value> = kstat.values().into_iter().collect();
    let value = |name: &str| values.get(name).cloned();
    assert_eq!(value("hits"), Some(kstat::Value::U64(1)));
    assert_eq!(value("misses"), Some(kstat::Value::U64(1)));
    assert_eq!(value("mru_ghost_hits"), Some(kstat::Value::U64(0)));
    assert_eq!(value("size"), Some(kstat::Value::U64(rig.cache.size())));
    assert_eq!(value("c_max"), Some(kstat::Value::U64(1 << 20)));
    for name in ["c", "mfu_hits", "compressed_size", "uncompressed_size", "overhead_size", "evict_skip", "demand_data_hits"] {
        assert!(value(name).is_some(), "{name}");
    }
}

/// The charge that a shard reports must be the sum of what it holds, or the budget drifts away from the truth.
#[test]
fn a_shard_reports_every_byte() {
    let mut shard = Shard::default();
    let (mut charged, mut random) = (0u64, 9u64);
    for step in 0..20_000u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = Key::test(random >> 40 & 63);
        let kind = if random & 1 << 50 == 0 { Kind::Data } else { Kind::Metadata };
        let access = if random & 1 << 54 == 0 { Access::Demand } else { Access::Prefetch };
        let ask = Ask {
            key,
            tag: 1,
            kind,
            access,
            keep: [Keep::Once, Keep::Lingers, Keep::Kept, Keep::Kept][(random >> 55 & 3) as usize],
            is_verifiable: true,
            origin: Origin::default(),
        };
        match random >> 60 {
            0..=4 => {
                let physical = (random & 1 << 51 != 0).then(|| Abd::zeroed(1024));
                let logical = (physical.is_none() || random & 1 << 52 != 0).then(|| Abd::zeroed(9000));
                let body = Body { physical, logical, ..Body::default() };
                charged += HEADER_BYTES + body.bytes();
                charged -= shard.insert(&ask, body, step * 40_000_000).bytes;
            }
            5..=9 => {
                let mut freed = Freed::default();
                let found = shard.lookup(&ask, step * 40_000_000, &mut freed);
                charged -= freed.bytes;
                if let Lookup::Compressed(_) = found {
                    let logical = Abd::zeroed(9000);
                    charged += if shard.attach(&key, 1, &logical) { 12_288 } else { 0 };
                }
            }
            10 => charged -= shard.remove(&key).bytes,
            _ if random & 1 << 53 == 0 => charged -= shard.evict_any(random >> 44 & 0x7FFF).bytes,
            _ => {}
        }
        assert_eq!(charged, shard.charged(), "step {step}");
    }
    charged -= shard.evict_any(u64::MAX).bytes;
    assert_eq!((charged, shard.entries(), shard.overhead()), (0, 0, 0));
}

/// Who asks why memory is full must see which blocks fill it, once each, and how often they were used.
#[test]
fn blocks_are_told_with_what_they_are_of() {
    let rig = Rig::new(1 << 20);
    let compressed = |n| WriteRequest { compression: Compression::LZ4, ..request(n, 20_480) };
    let blocks: Vec<BlockPtr> = (0..3).map(|n| rig.write(compressed(n))).collect();
    assert!(rig.cache.blocks().iter().all(|block| block.bookmark.objset == ObjsetId(54) && !block.has_copy()));
    rig.cache.clear();
    for (n, bp) in blocks.iter().enumerate() {
        rig.cache.read(bp, &bookmark(n as u64)).unwrap();
    }
    rig.inline.sleep_ns(1_000_000_000);
    rig.cache.read(&blocks[1], &bookmark(1)).unwrap();
    let mut told = rig.cache.blocks();
    told.sort_by_key(|block| block.bookmark.block);
    assert_eq!(told.iter().map(|block| block.bookmark).collect::<Vec<_>>(), [0, 1, 2].map(bookmark));
    assert!(told.iter().all(|block| block.has_copy() && block.logical_bytes == 20_480 && !block.is_metadata));
    assert_eq!(
        told.iter().map(|block| (block.is_frequent, block.uses)).collect::<Vec<_>>(),
        [(false, [0, 0]), (true, [1, 0]), (false, [0, 0])]
    );
    let counts = rig.cache.block_counts();
    assert_eq!((counts.blocks, counts.copies[0], counts.copy_bytes), (3, (3, 3 * 20_480), 3 * 20_480));
    assert_eq!((counts.hits, counts.misses, counts.copies_evicted, counts.copy_bytes_most), (1, 3, 0, 3 * 20_480));
    rig.cache.clear();
    assert!(rig.cache.blocks().is_empty());
    rig.cache.set_compressed(false);
    rig.cache.read(&blocks[0], &bookmark(0)).unwrap();
    assert!(rig.cache.blocks().iter().all(|block| block.is_decompressed && !block.is_compressed));
}
