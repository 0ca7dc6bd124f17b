//! Tests of a second level behind a cache over a real pipeline: devices in memory, each fault at each kind of I/O.

mod persist;

use crate::{L2arc, Tunables};
use abd::Abd;
use arc::Cache;
use device::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use exec::{Exec, Executor, Inline, Mutex};
use kstat::{NoEvents, Value};
use metaslab::Allocator;
use ondisk::{BlockId, BlockPtr, Bookmark, Compression, Guid, Level, ObjectId, ObjectType, ObjsetId, Txg};
use std::sync::Arc;
use vdev::{LeafState, TopKind, VdevTree};
use zio::{Facts, Fault, FaultError, IoKind, LeafFault, PoolView, WriteRequest, Zio};

const LEAF_BYTES: u64 = 256 << 20;
const BLOCK: usize = 32 << 10;
const CACHE: Guid = Guid(4711);
const POOL: Guid = Guid(815);

/// A device that keeps reads until it is told to do them, and what was written since it was asked to.
#[derive(Debug)]
struct Slow {
    mem: MemDevice,
    held: Mutex<Option<Vec<DeviceIo>>>,
    written: Mutex<Option<Vec<(u64, Abd)>>>,
    /// Bytes that it was told are not needed any more.
    trimmed: Mutex<u64>,
}

impl BlockDevice for Slow {
    fn submit(&self, io: DeviceIo) {
        if let DeviceOp::Trim { length_bytes } = io.op {
            *self.trimmed.lock() += length_bytes;
        }
        let is_read = matches!(io.op, DeviceOp::Read(_));
        if let Some(held) = self.held.lock().as_mut().filter(|_| is_read) {
            return held.push(io);
        }
        if let DeviceOp::Write(data) = &io.op {
            self.written.lock().iter_mut().for_each(|written| written.push((io.offset, data.clone())));
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
    zio: Zio,
    cache: Cache,
    l2: Arc<L2arc>,
    /// Device of the pool.
    own: Arc<MemDevice>,
    /// Device of the second level.
    device: Arc<Slow>,
}

impl Rig {
    /// A pool whose cache may have so many bytes, with a second level on a device of so many.
    fn new(max: u64, device_bytes: usize) -> Rig {
        Rig::tuned((max, Tunables::default()), device_bytes)
    }

    fn tuned(form: (u64, Tunables), device_bytes: usize) -> Rig {
        let inline = Arc::new(Inline::new(5));
        let tree = Arc::new(VdevTree::simple(&[(TopKind::Leaf, 1)], 9, LEAF_BYTES).expect("one leaf is a tree"));
        let allocator = Arc::new(Allocator::new(&tree, 1));
        let top = tree.tops[0].id;
        for metaslab in 0..allocator.metaslab_count(top) {
            allocator.load(top, metaslab, &[]).expect("it is empty");
        }
        let own = Arc::new(MemDevice::new("pool", (LEAF_BYTES + (5 << 20)) as usize));
        let devices = vec![Some(own.clone() as Arc<dyn BlockDevice>)];
        let view = PoolView { tree, devices, allocator, facts: Facts { writeable: true, ..Facts::default() } };
        let zio = Zio::new(inline.clone() as Exec, view, Arc::new(NoEvents));
        Rig::over((inline, zio, own), form, MemDevice::new("cache", device_bytes))
    }

    fn over((inline, zio, own): (Arc<Inline>, Zio, Arc<MemDevice>), (max, tunables): (u64, Tunables), mem: MemDevice) -> Rig {
        let (cache, l2) = (Cache::new(zio.clone(), max), Arc::new(L2arc::new(zio.clone())));
        l2.set_pool(POOL);
        l2.tune(tunables);
        let device = Arc::new(Slow { mem, held: Mutex::default(), written: Mutex::default(), trimmed: Mutex::default() });
        assert!(cache.set_second_level(l2.clone()) && l2.add(CACHE, &(device.clone() as Arc<dyn BlockDevice>), 9));
        Rig { inline, zio, cache, l2, own, device }
    }

    /// The pool in another process, which finds these bytes on the device of the second level.
    fn again(&self, bytes: Vec<u8>) -> Rig {
        let form = (self.cache.max(), self.l2.tunables());
        Rig::over((self.inline.clone(), self.zio.clone(), self.own.clone()), form, MemDevice::with_bytes("cache", bytes))
    }

    fn write(&self, seed: u64, compression: Compression) -> BlockPtr {
        let mut request = WriteRequest::new(Txg(10), contents(seed), bookmark(seed), ObjectType::PLAIN_FILE_CONTENTS);
        request.compression = compression;
        let got: Arc<Mutex<Option<BlockPtr>>> = Arc::default();
        let slot = got.clone();
        self.cache.write(request, true, Box::new(move |result| *slot.lock() = result.ok()));
        while self.inline.step() {}
        got.lock().take().expect("written")
    }

    fn write_all(&self, count: u64) -> Vec<BlockPtr> {
        (0..count).map(|seed| self.write(seed, Compression::OFF)).collect()
    }

    fn feed(&self) -> u64 {
        self.l2.feed(&self.cache, &mut |_| true).map_or(0, |fed| fed.blocks)
    }

    /// Reads blocks that are not in memory, and finds them right.
    fn read_all(&self, blocks: &[BlockPtr]) {
        self.cache.clear();
        for (seed, bp) in blocks.iter().enumerate() {
            assert!(self.cache.read(bp, &bookmark(0)).expect("read") == contents(seed as u64), "block {seed}");
        }
    }

    fn inject(&self, error: FaultError, kind: IoKind) {
        self.zio.inject(1, Fault::Leaf(LeafFault::Device { leaf: CACHE, error, kind: Some(kind) }), 0);
    }

    fn state(&self) -> Option<LeafState> {
        self.l2.report(CACHE).map(|report| report.state)
    }

    fn value(&self, name: &str) -> u64 {
        match self.cache.kstat().values().into_iter().find(|(known, _)| *known == name) {
            Some((_, Value::U64(value))) => value,
            other => panic!("{name}: {other:?}"),
        }
    }
}

fn bookmark(block: u64) -> Bookmark {
    Bookmark { objset: ObjsetId(54), object: ObjectId(2), level: Level(0), block: BlockId(block) }
}

/// Contents of a block, which compress to about a half.
fn contents(seed: u64) -> Abd {
    let word = |at: usize| {
        if at.is_multiple_of(2) { seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(at as u32 % 61) ^ at as u64 } else { seed }
    };
    let bytes: Vec<u8> = (0..BLOCK / 8).flat_map(|at| word(at).to_le_bytes()).collect();
    Abd::from_slice(&bytes)
}

/// If this fails, a cache device is written and never read, or what it holds is not what is asked for.
#[test]
fn what_left_the_cache_comes_from_the_device() {
    let rig = Rig::new(8 << 20, 80 << 20);
    let mut blocks = rig.write_all(40);
    assert_eq!((rig.feed(), rig.feed()), (40, 0), "each block once");
    // Compressed ones are there as on disk, too.
    blocks.extend((40..60).map(|seed| rig.write(seed, Compression::LZ4)));
    assert_eq!(rig.feed(), 20);
    // Nothing of the pool can be read any more.
    rig.own.tamper(|bytes| bytes.fill(0));
    rig.read_all(&blocks);
    assert_eq!((rig.value("l2_cksum_bad"), rig.value("l2_io_error")), (0, 0));
    assert!(rig.value("l2_hits") == 60 && rig.value("l2_size") == 60 * BLOCK as u64);
    let (asize, report) = (rig.value("l2_asize"), rig.l2.report(CACHE).expect("it is there"));
    assert!(asize < 60 * BLOCK as u64 && report.allocated_bytes == asize && report.size_bytes > asize);
    assert_eq!(rig.value("l2_bufc_data_asize"), asize);
    assert_eq!(rig.value("l2_prefetch_asize") + rig.value("l2_mru_asize") + rig.value("l2_mfu_asize"), asize);
    assert!(rig.value("l2_hdr_size") > 0 && rig.value("l2_write_bytes") == asize && rig.value("l2_feeds") == 3);
}

/// If this fails, an error of a cache device is an error of the pool, or wrong data.
#[test]
fn whatever_fails_on_the_device_costs_no_data() {
    let faults = [FaultError::Io, FaultError::Gone, FaultError::Corrupt, FaultError::Noop];
    let pairs = faults.into_iter().flat_map(|error| [(error, IoKind::Read), (error, IoKind::Write)]);
    // Bits are flipped in what is read.
    for (error, kind) in pairs.filter(|pair| *pair != (FaultError::Corrupt, IoKind::Write)) {
        let rig = Rig::new(8 << 20, 80 << 20);
        let blocks = rig.write_all(40);
        if kind == IoKind::Write {
            rig.inject(error, kind);
        }
        let fed = rig.feed();
        if kind == IoKind::Read {
            assert_eq!(fed, 40);
            rig.inject(error, kind);
        }
        (0..2).for_each(|_| rig.read_all(&blocks));
        let counts = (rig.value("l2_io_error") > 0, rig.value("l2_writes_error") > 0, rig.value("l2_cksum_bad") > 0);
        let (expected, state) = match (error, kind) {
            (FaultError::Io, IoKind::Read) => ((true, false, false), LeafState::Faulted),
            (FaultError::Gone, IoKind::Read) => ((true, false, false), LeafState::Removed),
            (FaultError::Io, _) => ((false, true, false), LeafState::Online),
            (FaultError::Gone, _) => ((false, true, false), LeafState::Removed),
            // A device that gives or keeps something else than it was given says nothing of it.
            _ => ((false, false, true), LeafState::Online),
        };
        assert_eq!((counts, rig.state()), (expected, Some(state)), "{error:?} of {kind:?}");
        assert!(!rig.zio.is_suspended());
        // What is broken is repaired by another device, also under the old guid.
        rig.zio.clear_injection(1);
        assert!(rig.l2.add(CACHE, &(rig.device.clone() as Arc<dyn BlockDevice>), 9));
        rig.read_all(&blocks);
        assert_eq!((rig.feed(), rig.state()), (40, Some(LeafState::Online)), "{error:?} of {kind:?}");
    }
}

/// If this fails, who pulls out a cache device makes a reader wait for ever, or has him read something else.
#[test]
fn a_device_may_go_while_it_is_read() {
    let rig = Rig::new(8 << 20, 80 << 20);
    let blocks = rig.write_all(4);
    assert_eq!(rig.feed(), 4);
    rig.cache.clear();
    *rig.device.held.lock() = Some(Vec::new());
    let got: Arc<Mutex<Vec<Abd>>> = Arc::default();
    let slot = got.clone();
    rig.cache.read_then(&blocks[1], &bookmark(1), Box::new(move |result| slot.lock().extend(result)));
    while rig.inline.step() {}
    assert!(got.lock().is_empty());
    rig.l2.remove(CACHE);
    let held = rig.device.held.lock().take().expect("it holds reads");
    assert_eq!(held.len(), 1);
    held.into_iter().for_each(|io| rig.device.submit(io));
    while rig.inline.step() {}
    assert!(*got.lock() == [contents(1)] && rig.value("l2_evict_reading") == 1);
    assert_eq!((rig.state(), rig.l2.is_in_use(), rig.feed()), (None, false, 0));
    rig.l2.settle(&rig.cache, u64::MAX);
    assert_eq!((rig.value("l2_asize"), rig.value("l2_size"), rig.value("l2_hdr_size")), (0, 0, 0));
    rig.cache.clear();
    assert_eq!(rig.cache.size(), 0, "nothing is charged any more");
}

/// If this fails, a device is written beyond its end, or gives one block for another once it is full.
#[test]
fn a_full_device_loses_the_oldest_and_goes_on() {
    let rig = Rig::new(16 << 20, 64 << 20);
    rig.l2.tune(Tunables { write_max: 5 << 20, write_boost: 0, trim_ahead: 50, ..Tunables::default() });
    let mut blocks = Vec::new();
    let mut most = 0;
    for seed in 0..3000 {
        blocks.push(rig.write(seed, Compression::OFF));
        if seed % 100 == 99 {
            rig.feed();
            let report = rig.l2.report(CACHE).expect("it is there");
            assert!(report.allocated_bytes <= report.size_bytes && report.allocated_bytes == rig.value("l2_asize"));
            most = most.max(report.allocated_bytes);
        }
    }
    let written = rig.value("l2_write_bytes");
    assert!(written > 80 << 20 && most > 40 << 20 && most < 60 << 20, "{written} bytes written, {most} known at most");
    // All of it was trimmed before its first use.
    let trimmed = *rig.device.trimmed.lock() - rig.l2.report(CACHE).map_or(0, |report| report.size_bytes);
    assert!(trimmed > written && trimmed <= written + written / 2, "{written} bytes written, {trimmed} trimmed");
    rig.read_all(&blocks);
    assert!(rig.value("l2_hits") > 500 && rig.value("l2_misses") > 500);
    assert_eq!(rig.value("l2_cksum_bad"), 0);
    // What is behind the last label is nobody's.
    let bytes = rig.device.mem.contents();
    assert!(bytes[bytes.len() - (512 << 10)..].iter().chain(&bytes[..4 << 20]).all(|byte| *byte == 0));
}

/// If this fails, what is known of a large device pushes everything else out of memory.
#[test]
fn what_is_known_takes_a_part_of_the_budget_and_no_more() {
    let rig = Rig::new(2 << 20, 80 << 20);
    rig.l2.tune(Tunables { meta_percent: 1, ..Tunables::default() });
    let mut blocks = Vec::new();
    for seed in 0..400 {
        blocks.push(rig.write(seed, Compression::OFF));
        rig.feed();
        assert!(rig.value("l2_hdr_size") <= (2 << 20) / 100 && rig.cache.size() <= rig.cache.max());
    }
    assert!(rig.value("l2_abort_lowmem") > 0);
    rig.l2.settle(&rig.cache, 1600);
    assert!(rig.value("l2_hdr_size") <= 1600);
    rig.read_all(&blocks);
}

/// If this fails, parameters that an administrator sets do nothing, or something else than their names say.
#[test]
fn parameters_do_what_their_names_say() {
    let fed = |tunables: Tunables, allows: bool| {
        let rig = Rig::new(8 << 20, 80 << 20);
        rig.l2.tune(tunables);
        let blocks = rig.write_all(40);
        // A second use, later than the first.
        rig.inline.sleep_ns(1_000_000_000);
        blocks[..10].iter().for_each(|bp| drop(rig.cache.read(bp, &bookmark(0))));
        rig.l2.feed(&rig.cache, &mut |block| allows || block.objset != ObjsetId(54)).expect("there is a device")
    };
    let usual = Tunables::default();
    assert_eq!(fed(usual, true).blocks, 40);
    let untrimmed = Rig::new(8 << 20, 80 << 20);
    untrimmed.write_all(40);
    assert_eq!((untrimmed.feed(), *untrimmed.device.trimmed.lock()), (40, 0), "nothing is trimmed by default");
    assert_eq!(fed(usual, false).blocks, 0, "the property secondarycache");
    assert_eq!(fed(Tunables { mfuonly: 1, ..usual }, true).blocks, 10);
    assert_eq!(fed(Tunables { mfuonly: 2, ..usual }, true).blocks, 10);
    let small = Tunables { write_max: 8 * BLOCK as u64, write_boost: 0, ..usual };
    let (first, boosted) = (fed(small, true), fed(Tunables { write_boost: 8 * BLOCK as u64, ..small }, true));
    assert_eq!((first.blocks, first.bytes, boosted.blocks), (8, 8 * BLOCK as u64, 16));
    assert_eq!((first.interval_ns, fed(usual, true).interval_ns), (200_000_000, 1_000_000_000), "much was found, and little");
    assert_eq!(fed(Tunables { feed_again: false, feed_secs: 3, ..small }, true).interval_ns, 3_000_000_000);
    let rig = Rig::new(8 << 20, 80 << 20);
    let blocks = rig.write_all(4);
    rig.feed();
    rig.cache.clear();
    blocks.iter().for_each(|bp| rig.cache.prefetch(bp, &bookmark(0), arc::Keep::Kept));
    while rig.inline.step() {}
    rig.l2.remove(CACHE);
    assert!(rig.l2.add(CACHE, &(rig.device.clone() as Arc<dyn BlockDevice>), 9));
    assert_eq!(rig.feed(), 0, "what was read ahead, and nobody used");
    rig.l2.tune(Tunables { noprefetch: false, ..usual });
    assert_eq!((rig.feed(), rig.value("l2_prefetch_asize")), (4, 4 * BLOCK as u64));
}
