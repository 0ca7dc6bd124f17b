//! Scrubs of disks that somebody uses: they go where the heads are, so they read in no order. What the user loses when these fail: damage
//! that was passed over, or a scrub that never ends.
use crate::common::leaf;
use crate::scan_pools::*;
use device::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use exec::{Exec, Inline, Mutex, SplitMix, TaskClass};
use ondisk::Guid;
use pool::{ImportOptions, Pool, PoolSpec, Runtime, ScanState, TopSpec};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vdev::TopKind;
use zio::{LeafRequest, Priority, Zio};

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;
/// Blocks of an object: 4 MiB.
const OBJECT_BLOCKS: u64 = 64;
const OBJECTS: u64 = 10;
const DISK_BYTES: usize = 192 << 20;

/// A disk: one I/O at a time, and a seek before each that does not go on where the one before ended.
struct Disk {
    exec: Exec,
    mem: Arc<MemDevice>,
    facts: DeviceFacts,
    /// Time in nanoseconds when the disk is free, and the offset in bytes of its head then.
    state: Mutex<(u64, u64)>,
    /// Offsets in bytes at which large reads began.
    reads: Mutex<Vec<u64>>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").finish_non_exhaustive()
    }
}

impl BlockDevice for Disk {
    fn submit(&self, io: DeviceIo) {
        let (now, bytes) = (self.exec.now_ns(), io.op.length_bytes());
        if matches!(io.op, DeviceOp::Read(_)) && bytes >= BLOCK_BYTES as u64 {
            self.reads.lock().push(io.offset);
        }
        let mut state = self.state.lock();
        let seek_ns = if state.1 == io.offset { 0 } else { 8 * MS };
        let done_ns = state.0.max(now) + seek_ns + bytes * 5;
        *state = (done_ns, io.offset + bytes);
        let mem = self.mem.clone();
        self.exec.spawn_after(done_ns - now, TaskClass::Interrupt, Box::new(move || mem.submit(io)));
    }
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }
    fn size_bytes(&self) -> u64 {
        self.mem.size_bytes()
    }
}

fn disks(exec: &Exec, devices: &[Arc<MemDevice>]) -> Vec<Arc<Disk>> {
    let disk = |mem: &Arc<MemDevice>| {
        let facts = DeviceFacts { rotational: true, ..mem.facts().clone() };
        Arc::new(Disk { exec: exec.clone(), mem: mem.clone(), facts, state: Mutex::default(), reads: Mutex::default() })
    };
    devices.iter().map(disk).collect()
}

fn create(exec: &Exec, disks: &[Arc<Disk>], kind: TopKind) -> Pool {
    let tops = vec![TopSpec { kind, leaves: disks.iter().map(leaf).collect() }];
    let spec = PoolSpec { host: host(), ..PoolSpec::new("tank", tops, dataset()) };
    Pool::create(exec, spec, &Runtime::new()).expect("created")
}

/// Data that lies in extents with holes between them.
fn scatter(pool: &Pool) {
    pool.dsl().create_dataset("tank/fs", dataset()).expect("created");
    let objects: Vec<_> = (0..OBJECTS).map(|seed| write(pool, "tank/fs", None, 0..OBJECT_BLOCKS, seed)).collect();
    pool.sync().expect("synced");
    for object in objects.into_iter().step_by(2) {
        write(pool, "tank/fs", Some(object), 0..OBJECT_BLOCKS, 100);
        pool.sync().expect("synced");
    }
    (0..3).for_each(|_| pool.sync().expect("synced"));
}

/// Reads all over the leaf, one block every 15 ms, until `stop`.
fn use_leaf(zio: Zio, leaf: Guid, mut random: SplitMix, stop: Arc<AtomicBool>) {
    if stop.load(Ordering::Relaxed) {
        return;
    }
    let offset = (8 + random.below(DISK_BYTES / (1 << 20) - 16) as u64) * MIB;
    let op = DeviceOp::Read(vec![abd::AbdPart::scratch(4096)]);
    let request = LeafRequest { leaf, offset, op, priority: Priority::SyncRead, speculative: false };
    // The leaf may be offline.
    zio.leaf_io(request, Box::new(drop));
    let exec = zio.exec().clone();
    exec.spawn_after(15 * MS, TaskClass::Interrupt, Box::new(move || use_leaf(zio, leaf, random, stop)));
}

fn use_pool(pool: &Pool) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for (seed, guid) in (0..).zip(crate::common::guids(pool)) {
        use_leaf(pool.cache().zio().clone(), guid, SplitMix::new(seed), stop.clone());
    }
    stop
}

/// Number of times that a disk's large reads went back since the last call.
fn went_back(disk: &Disk) -> usize {
    let reads = std::mem::take(&mut *disk.reads.lock());
    reads.windows(2).filter(|pair| pair[1] + MIB < pair[0]).count()
}

#[test]
fn a_scrub_that_goes_where_the_heads_are_reads_and_repairs_everything() {
    for (kind, count) in [(TopKind::Leaf, 1), (TopKind::Mirror, 2), (TopKind::Raidz(1), 3)] {
        let exec: Exec = Arc::new(Inline::new(7));
        let devices = crate::common::devices_of(count, DISK_BYTES);
        let disks = disks(&exec, &devices);
        let pool = create(&exec, &disks, kind);
        scatter(&pool);
        went_back(&disks[0]);
        pool.cache().clear();
        let alone = scrub(&pool);
        assert_eq!((alone.errors, alone.repaired), (0, 0));
        let in_order = went_back(&disks[0]);
        if count > 1 {
            devices[count - 1].tamper(|bytes| {
                let end = bytes.len() - (1 << 20);
                bytes[8 << 20..end].fill(0x3C);
            });
        }
        pool.cache().clear();
        let stop = use_pool(&pool);
        let used = scrub(&pool);
        stop.store(true, Ordering::Relaxed);
        let out_of_order = went_back(&disks[0]);
        assert!(out_of_order > in_order, "{kind:?}: it goes nowhere ({in_order}, {out_of_order}), so the test shows nothing");
        assert_eq!((used.errors, used.examined), (0, used.issued), "{kind:?}");
        assert!(count == 1 || used.repaired > OBJECTS * 4 * MIB / count as u64, "{kind:?}: {used:?}");
        pool.clear_errors(None);
        let again = scrub(&pool);
        assert_eq!((again.errors, again.repaired, checksum_errors(&pool)), (0, 0, 0), "{kind:?}");
    }
}

/// A device that came back would be believed to have what was passed over.
#[test]
fn a_resilver_that_goes_where_the_heads_are_brings_everything() {
    for (kind, count) in [(TopKind::Mirror, 2), (TopKind::Raidz(1), 3)] {
        let exec: Exec = Arc::new(Inline::new(11));
        let devices = crate::common::devices_of(count, DISK_BYTES);
        let disks = disks(&exec, &devices);
        let pool = create(&exec, &disks, kind);
        let leaves = crate::common::guids(&pool);
        pool.offline(leaves[0], false).expect("enough others");
        scatter(&pool);
        pool.cache().clear();
        went_back(&disks[1]);
        let stop = use_pool(&pool);
        pool.online(leaves[0], Some(disks[0].clone())).expect("back");
        pool.scrub_wait().expect("resilvered");
        stop.store(true, Ordering::Relaxed);
        pool.sync().expect("synced");
        assert!(went_back(&disks[1]) > 0, "{kind:?}: the test shows nothing if it never goes anywhere");
        let status = pool.scan_status().expect("a scan");
        assert_eq!((status.state, status.errors), (ScanState::Finished, 0), "{kind:?}");
        assert!(pool.tree().leaves.iter().all(|leaf| leaf.missing_txgs.is_empty()), "{kind:?}");
        pool.cache().clear();
        let after = scrub(&pool);
        assert_eq!((after.errors, after.repaired, checksum_errors(&pool)), (0, 0, 0), "{kind:?}");
    }
}

#[test]
fn a_scrub_that_goes_where_the_heads_are_goes_on_after_crashes() {
    let devices = crate::common::devices_of(2, DISK_BYTES);
    let start = || {
        let exec: Exec = Arc::new(Inline::new(9));
        let disks = disks(&exec, &devices);
        (exec, disks)
    };
    let (exec, first) = start();
    let mut pool = create(&exec, &first, TopKind::Mirror);
    scatter(&pool);
    devices[1].tamper(|bytes| {
        let end = bytes.len() - (1 << 20);
        bytes[8 << 20..end].fill(0x3C);
    });
    pool.scrub_start().expect("started");
    let mut last = pool.scan_status().expect("a scan");
    for _ in 0..100 {
        pool.cache().clear();
        // What is found fits in no memory: it is read in parts, each in whatever order, and a restart goes on behind what was read whole.
        pool.scrub_queue_max(150);
        let stop = use_pool(&pool);
        pool.scrub_drive_part(150).expect("driven");
        stop.store(true, Ordering::Relaxed);
        let status = pool.scan_status().expect("a scan");
        assert!(status.examined >= last.examined && status.issued >= last.issued && status.repaired >= last.repaired);
        last = status;
        if last.state == ScanState::Finished {
            break;
        }
        pool.sync().expect("synced");
        drop(pool);
        let (exec, disks) = start();
        let opened = disks.into_iter().map(|disk| disk as Arc<dyn BlockDevice>).collect();
        let options = ImportOptions { host: host(), ..ImportOptions::default() };
        pool = Pool::import(&exec, opened, &options, &Runtime::new()).expect("imported");
    }
    assert_eq!((last.state, last.errors), (ScanState::Finished, 0));
    let again = scrub(&pool);
    assert_eq!((again.errors, again.repaired), (0, 0), "everything was repaired in spite of the crashes");
}
