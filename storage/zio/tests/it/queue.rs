//! The I/O scheduler between the pipeline and its devices: what waits, what goes straight through, what is merged, and what is told of I/Os
//! that take too long.

use crate::common::{Rig, noise};
use abd::Abd;
use device::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use exec::{Exec, Inline, Mutex, SplitMix};
use kstat::EventLog;
use metaslab::Allocator;
use ondisk::{BlockPtr, Bookmark, Checksum, Compression, Dva, Guid, ObjectType, Txg, VdevId};
use std::sync::Arc;
use vdev::{LeafId, TopKind, VdevTree};
use zio::{Class, DeadmanFailMode, Facts, IoKind, LatencyTarget, LeafRequest, LogBlocks, PoolView, Priority, Scheduler, Zio};

const BLOCK: u64 = 4096;
/// First byte behind the labels.
const START: u64 = 4 << 20;
const SIZE: usize = 16 << 20;
const SECOND: u64 = 1_000_000_000;

/// A device that keeps what it gets until it is told to go on.
#[derive(Debug)]
struct Holding {
    mem: MemDevice,
    facts: DeviceFacts,
    held: Mutex<Vec<DeviceIo>>,
    /// I/Os over this byte fail.
    bad: Mutex<Option<u64>>,
}

impl BlockDevice for Holding {
    fn submit(&self, io: DeviceIo) {
        self.held.lock().push(io);
    }
    fn can_write_durably(&self) -> bool {
        true
    }
    fn write_durably(&self, offset: u64, data: &Abd) -> Result<(), DeviceError> {
        self.mem.submit(DeviceIo::new(DeviceOp::Write(data.clone()), offset, drop));
        Ok(())
    }
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }
    fn size_bytes(&self) -> u64 {
        self.mem.size_bytes()
    }
}

impl Holding {
    fn held(&self) -> usize {
        self.held.lock().len()
    }

    /// Does one of the I/Os that it has.
    fn release(&self, index: usize) {
        let io = self.held.lock().remove(index);
        let end = io.offset + io.op.length_bytes();
        if self.bad.lock().is_some_and(|bad| (io.offset..end).contains(&bad)) {
            return io.fail(DeviceError::Io);
        }
        self.mem.submit(io);
    }
}

type Answers = Arc<Mutex<Vec<(u64, Result<Abd, DeviceError>)>>>;

struct Bench {
    inline: Arc<Inline>,
    exec: Exec,
    zio: Zio,
    device: Arc<Holding>,
    leaf: Guid,
    events: Arc<EventLog>,
    answers: Answers,
}

/// The byte that a test writes at every place of a block.
fn pattern(offset: u64) -> u8 {
    (offset / BLOCK) as u8 ^ 0x5A
}

impl Bench {
    fn new(rotational: bool) -> Bench {
        let inline = Arc::new(Inline::new(11));
        let exec: Exec = inline.clone();
        let tree = Arc::new(VdevTree::simple(&[(TopKind::Leaf, 1)], 12, 8 << 20).expect("sound"));
        let mem = MemDevice::new("held", SIZE);
        mem.tamper(|bytes| bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at as u64)));
        let facts = DeviceFacts { rotational, ..DeviceFacts::solid("held", "sim") };
        let device = Arc::new(Holding { mem, facts, held: Mutex::default(), bad: Mutex::default() });
        let leaf = tree.leaf(LeafId(0)).guid;
        let view = PoolView {
            allocator: Arc::new(Allocator::new(&tree, 1)),
            tree,
            devices: vec![Some(device.clone() as Arc<dyn BlockDevice>)],
            facts: Facts { name: "tank".into(), writeable: true, ..Facts::default() },
        };
        let events = Arc::new(EventLog::new(64, Box::new(|| (0, 0))));
        let zio = Zio::new(exec.clone(), view, events.clone());
        Bench { inline, exec, zio, device, leaf, events, answers: Arc::default() }
    }

    fn ask(&self, priority: Priority, op: DeviceOp, offset: u64) {
        let answers = self.answers.clone();
        let request = LeafRequest { leaf: self.leaf, offset, op, priority, speculative: false };
        self.zio.leaf_io(request, Box::new(move |result| answers.lock().push((offset, result))));
        self.inline.run_ready();
    }

    fn read(&self, priority: Priority, block: u64) {
        self.ask(priority, DeviceOp::read(BLOCK as usize), START + block * BLOCK);
    }

    /// Writes a block of an intent log on this thread; true when it is durable, false when it is to be queued.
    fn write_log(&self) -> bool {
        let mut bp = BlockPtr::HOLE;
        bp.set_dva(0, Dva { vdev: VdevId(0), offset: 1 << 20, asize: BLOCK, gang: false });
        bp.set_lsize(BLOCK as usize);
        bp.set_psize(BLOCK as usize);
        bp.set_compression(Compression::OFF);
        bp.set_checksum_kind(Checksum::ZILOG);
        bp.set_object_type(ObjectType::INTENT_LOG);
        bp.set_little_endian(true);
        bp.set_birth(Txg(1), Txg(1));
        let mut block = vec![0; BLOCK as usize];
        let written = LogBlocks(&self.zio).write_durably(&bp, Bookmark::default(), &mut block, BLOCK as usize);
        self.inline.run_ready();
        written.is_some_and(|(bytes, outcome)| bytes == BLOCK as usize && outcome.is_ok())
    }

    fn release(&self, index: usize) {
        self.device.release(index);
        self.inline.run_ready();
    }

    /// Lets the device and the clock go on until nothing waits.
    fn finish(&self, expected: usize) {
        while self.answers.lock().len() < expected {
            if self.device.held() > 0 {
                self.release(0);
            } else {
                assert!(self.inline.step(), "{} of {expected} I/Os came back, and nothing goes on", self.answers.lock().len());
            }
        }
    }

    fn assert_right(&self) {
        for (offset, result) in self.answers.lock().iter() {
            let bytes = result.as_ref().expect("no device failed").to_vec();
            assert!(bytes.is_empty() || bytes == vec![pattern(*offset); BLOCK as usize], "at {offset}");
        }
    }

    fn classes(&self) -> Vec<String> {
        self.events.since(0).into_iter().map(|logged| logged.event.class.into_owned()).collect()
    }
}

/// An HDD that gets everything at once serves a stream for seconds while somebody waits.
#[test]
fn a_rotational_device_gets_no_more_than_its_limits() {
    let bench = Bench::new(true);
    bench.zio.tune_queues(|tunables| tunables.latency_target = LatencyTarget::Off);
    (0..40).for_each(|block| bench.read(Priority::SyncRead, block * 37));
    assert_eq!(bench.device.held(), 10, "zfs_vdev_sync_read_max_active");
    let state = bench.zio.queue_state(bench.leaf).expect("it has a device");
    assert_eq!((state.queued[Class::SyncRead as usize], state.active[Class::SyncRead as usize]), (30, 10));
    bench.zio.tune_queues(|tunables| tunables.set("zfs_vdev_sync_read_max_active", 12).expect("a parameter"));
    bench.release(0);
    assert_eq!(bench.device.held(), 12, "a parameter counts from the next decision on");
    bench.finish(40);
    bench.assert_right();
    assert_eq!(bench.zio.leaf_stats_of(bench.leaf).counts().ops[IoKind::Read as usize], 40);
}

/// If this fails, each fsync on a disk that says of itself that it turns (virtual ones do) goes through a ring and its threads, twice; or it goes
/// before what waits, or disturbs background work, or nobody counts it.
#[test]
fn a_log_is_written_in_one_step_where_nothing_else_is_about() {
    for rotational in [true, false] {
        let bench = Bench::new(rotational);
        let active = || bench.zio.queue_state(bench.leaf).expect("it has a device").active[Class::SyncWrite as usize];
        let count = || bench.zio.leaf_stats_of(bench.leaf).counts().ops[IoKind::Write as usize];
        assert!(bench.write_log());
        assert_eq!((count(), active(), bench.device.held()), (1, 0, 0));
        (0..11).for_each(|block| bench.read(Priority::SyncRead, block * 37));
        assert_eq!(bench.write_log(), !rotational, "one of the reads waits for its turn");
        bench.release(0);
        assert!(bench.write_log(), "nobody waits");
        bench.finish(11);
        bench.read(Priority::Scrub, 1000);
        assert!(!bench.write_log(), "background work is about");
        bench.finish(12);
        assert!(!bench.write_log(), "and was just now");
        bench.assert_right();
        assert_eq!(count(), 2 + u64::from(!rotational));
    }
}

/// Neighbours that wait become one request; a bad sector costs only the block that it belongs to.
#[test]
fn neighbours_that_wait_are_merged_and_fail_alone() {
    for bad in [None, Some(START + 5 * BLOCK + 7)] {
        let bench = Bench::new(true);
        bench.zio.tune_queues(|tunables| tunables.set("zfs_vdev_async_read_max_active", 1).expect("a parameter"));
        *bench.device.bad.lock() = bad;
        bench.read(Priority::AsyncRead, 500);
        // A gap of one block between 3 and 5 is read and thrown away.
        [2, 3, 5, 6].into_iter().for_each(|block| bench.read(Priority::AsyncRead, block));
        assert_eq!(bench.device.held(), 1);
        bench.release(0);
        assert_eq!(bench.device.held(), 1, "four reads as one");
        assert_eq!(bench.device.held.lock()[0].op.length_bytes(), 5 * BLOCK);
        bench.finish(5);
        let failed: Vec<u64> =
            bench.answers.lock().iter().filter(|(_, result)| result.is_err()).map(|(offset, _)| (offset - START) / BLOCK).collect();
        if bad.is_some() {
            assert_eq!(failed, [5]);
        } else {
            bench.assert_right();
            let stats = bench.zio.leaf_stats_of(bench.leaf);
            let counts = stats.counts();
            assert_eq!((counts.ops[0], counts.bytes[0]), (2, 6 * BLOCK), "the merged I/O counts once");
        }
    }
}

/// Writes that are merged must land where they belong.
#[test]
fn merged_writes_land_where_they_belong() {
    let bench = Bench::new(true);
    bench.zio.tune_queues(|tunables| tunables.set("zfs_vdev_async_write_max_active", 1).expect("a parameter"));
    bench.zio.tune_queues(|tunables| tunables.set("zfs_vdev_async_write_min_active", 1).expect("a parameter"));
    let blocks = [40u64, 9, 7, 8, 20];
    for block in blocks {
        bench.ask(Priority::AsyncWrite, DeviceOp::Write(noise(block + 1, BLOCK as usize)), START + block * BLOCK);
    }
    bench.finish(blocks.len());
    for block in blocks {
        let at = (START + block * BLOCK) as usize;
        let mut found = Vec::new();
        bench.device.mem.tamper(|bytes| found = bytes[at..at + BLOCK as usize].to_vec());
        assert_eq!(found, noise(block + 1, BLOCK as usize).to_vec(), "block {block}");
    }
}

/// Somebody waits for a read while a scrub fills an NVMe device: the read must not wait behind it.
#[test]
fn only_background_work_waits_where_nothing_rotates() {
    let bench = Bench::new(false);
    (0..20).for_each(|block| bench.read(Priority::Scrub, 100 + block * 20));
    assert_eq!(bench.device.held(), 1, "one until zfs_vdev_nia_delay came back alone");
    (0..8).for_each(|_| bench.release(0));
    assert_eq!(bench.device.held(), 4, "more would not make a device faster that answers one at a time");
    (0..30).for_each(|block| bench.read(Priority::SyncRead, block));
    assert_eq!(bench.device.held(), 34, "what somebody waits for goes straight through");
    bench.ask(Priority::AsyncWrite, DeviceOp::Write(Abd::from_slice(&[pattern(START); BLOCK as usize])), START);
    assert_eq!(bench.device.held(), 35);
    bench.finish(51);
    bench.assert_right();
}

/// A resilver that begins must know what users are used to: until it does, nothing is promised to them.
#[test]
fn what_went_straight_tells_what_the_idle_device_does() {
    let bench = Bench::new(false);
    bench.exec.sleep_ns(100 * SECOND);
    for round in 0..400u64 {
        bench.read(Priority::SyncRead, round);
        bench.exec.sleep_ns(1_000_000);
        bench.release(0);
    }
    assert_eq!(bench.zio.queue_state(bench.leaf).expect("it has a device").promise.limit_ns, None);
    bench.read(Priority::Scrub, 500);
    let promise = bench.zio.queue_state(bench.leaf).expect("it has a device").promise;
    assert!(promise.alone_p99_ns.is_some_and(|p99| (1_000_000..1_100_000).contains(&p99)), "{promise:?}");
    assert!(promise.limit_ns.is_some_and(|limit| (1_900_000..2_200_000).contains(&limit)), "{promise:?}");
    bench.finish(401);
}

/// A parameter of the users' who want everything queued, or nothing.
#[test]
fn the_scheduler_can_be_switched() {
    let bench = Bench::new(false);
    bench.zio.tune_queues(|tunables| tunables.scheduler = Scheduler::On);
    (0..15).for_each(|block| bench.read(Priority::SyncRead, block * 5));
    assert_eq!(bench.device.held(), 10);
    bench.zio.tune_queues(|tunables| tunables.scheduler = Scheduler::Auto);
    bench.finish(15);
    (0..15).for_each(|block| bench.read(Priority::SyncRead, block * 5));
    assert_eq!(bench.device.held(), 15);
    bench.finish(30);
    bench.assert_right();
}

/// Held back for the sake of others, background work still comes to its end, also when nobody does anything else any more.
#[test]
fn background_work_that_is_held_back_goes_on_by_itself() {
    for rotational in [true, false] {
        let bench = Bench::new(rotational);
        for round in 0..50u64 {
            bench.read(Priority::SyncRead, round * 7 % 400);
            bench.read(Priority::Rebuild, 500 + round * 2);
            bench.read(Priority::Scrub, 700 + round * 2);
            if round % 3 == 0 && bench.device.held() > 0 {
                bench.release(0);
            }
        }
        bench.finish(150);
        bench.assert_right();
    }
}

/// Random programs: every I/O comes back once, with its bytes, whatever the order, the device and the parameters.
#[test]
fn nothing_is_lost_or_served_twice() {
    let priorities = [
        Priority::SyncRead,
        Priority::AsyncRead,
        Priority::Scrub,
        Priority::Resilver,
        Priority::Rebuild,
        Priority::Removal,
        Priority::AsyncDestroy,
    ];
    for seed in 0..30u64 {
        let random = Mutex::new(SplitMix::new(seed));
        let below = |limit: u64| random.lock().next_u64() % limit;
        let bench = Bench::new(seed % 2 == 0);
        bench.zio.tune_queues(|tunables| {
            tunables.scheduler = [Scheduler::Auto, Scheduler::On, Scheduler::Off][(seed % 3) as usize];
            tunables.max_active = 1 + below(8) as u32;
        });
        let count = 200;
        for _ in 0..count {
            bench.read(priorities[below(7) as usize], below(1500));
            while bench.device.held() > 0 && below(3) > 0 {
                bench.release(below(bench.device.held() as u64) as usize);
            }
            if below(10) == 0 {
                bench.exec.sleep_ns(below(SECOND));
            }
        }
        bench.finish(count);
        bench.assert_right();
        assert_eq!(bench.device.held(), 0, "seed {seed}");
        let state = bench.zio.queue_state(bench.leaf).expect("it has a device");
        assert_eq!((state.queued.iter().sum::<usize>(), state.active.iter().sum::<u32>()), (0, 0), "seed {seed}");
    }
}

/// A device that dies slowly shows only in these counts and events.
#[test]
fn slow_and_hung_ios_are_told() {
    for rotational in [true, false] {
        let bench = Bench::new(rotational);
        bench.read(Priority::SyncRead, 1);
        bench.exec.sleep_ns(29 * SECOND);
        assert_eq!(bench.zio.check_deadman(), 0);
        bench.release(0);
        assert_eq!((bench.zio.leaf_stats_of(bench.leaf).counts().slow_ios, bench.classes().len()), (0, 0));
        bench.read(Priority::SyncRead, 2);
        bench.exec.sleep_ns(310 * SECOND);
        assert_eq!(bench.zio.check_deadman(), 1, "it hangs for more than zfs_deadman_ziotime_ms");
        assert_eq!(bench.zio.check_deadman(), 1);
        assert_eq!(bench.classes(), ["ereport.fs.zfs.deadman"], "one a second");
        bench.release(0);
        assert_eq!(bench.zio.check_deadman(), 0);
        assert_eq!(bench.zio.leaf_stats_of(bench.leaf).counts().slow_ios, 1);
        assert_eq!(bench.classes(), ["ereport.fs.zfs.deadman", "ereport.fs.zfs.delay"]);
    }
}

/// If this fails, a device that hangs, but never when somebody looks, is never told.
#[test]
fn an_io_that_hung_between_two_looks_is_told_when_it_is_back() {
    for rotational in [true, false] {
        let bench = Bench::new(rotational);
        bench.zio.tune_queues(|tunables| tunables.set("zfs_deadman_ziotime_ms", 1000).expect("a parameter"));
        bench.exec.sleep_ns(10 * SECOND);
        assert_eq!(bench.zio.check_deadman(), 0);
        bench.read(Priority::SyncRead, 1);
        bench.exec.sleep_ns(SECOND / 2);
        bench.release(0);
        assert!(bench.classes().is_empty(), "half of that is no trouble");
        for block in 2..5 {
            bench.read(Priority::SyncRead, block);
            bench.exec.sleep_ns(2 * SECOND);
            bench.release(0);
        }
        assert_eq!(bench.classes(), ["ereport.fs.zfs.deadman"; 3], "one a second at most");
    }
}

/// If this fails, one disk that neither works nor fails stops a mirror for good, or answers twice when it comes back.
#[test]
fn hung_ios_are_given_up_where_that_was_asked_for() {
    for rotational in [true, false] {
        let bench = Bench::new(rotational);
        bench.zio.tune_queues(|tunables| tunables.set("zfs_vdev_async_read_max_active", 1).expect("a parameter"));
        bench.zio.set_deadman_fail_mode(DeadmanFailMode::Continue);
        bench.read(Priority::SyncRead, 0);
        [2, 3, 4].into_iter().for_each(|block| bench.read(Priority::AsyncRead, block));
        let device: Arc<dyn BlockDevice> = bench.device.clone();
        let answers = bench.answers.clone();
        let label = DeviceIo::new(DeviceOp::read(BLOCK as usize), 0, move |reply| answers.lock().push((0, reply.into_abd())));
        bench.zio.hand_to(bench.leaf, &device, label);
        bench.exec.sleep_ns(290 * SECOND);
        assert_eq!((bench.zio.check_deadman(), bench.answers.lock().len()), (0, 0));
        bench.exec.sleep_ns(20 * SECOND);
        // On a rotational device two reads wait for the third and come to the device as one when that is given up.
        while bench.answers.lock().len() < 5 {
            assert_eq!(bench.zio.check_deadman(), 1, "one leaf");
            bench.inline.run_ready();
            bench.exec.sleep_ns(310 * SECOND);
        }
        assert!(bench.answers.lock().iter().all(|(_, result)| *result == Err(DeviceError::TimedOut)));
        let stats = bench.zio.leaf_stats_of(bench.leaf);
        assert_eq!((stats.counts().errors[IoKind::Read as usize], stats.in_flight_bytes()), (4, 0), "errors as any others");
        while bench.device.held() > 0 {
            bench.release(0);
        }
        assert_eq!((bench.answers.lock().len(), stats.in_flight_bytes()), (5, 0), "what comes too late is thrown away");
        bench.read(Priority::SyncRead, 9);
        bench.release(0);
        assert!(bench.answers.lock()[5].1.is_ok(), "a device that works again is used");
    }
}

/// Devices that are replaced take their queues with them; I/O on the old ones still comes back.
#[test]
fn a_new_view_keeps_what_is_under_way() {
    let bench = Bench::new(true);
    (0..20).for_each(|block| bench.read(Priority::SyncRead, block * 9));
    bench.zio.set_view(bench.zio.view());
    assert_eq!(bench.zio.queue_state(bench.leaf).expect("the same device").queued[0], 10);
    let view = bench.zio.view();
    bench.zio.set_view(PoolView { devices: vec![None], ..view });
    assert!(bench.zio.queue_state(bench.leaf).is_none());
    bench.finish(20);
    bench.assert_right();
}

/// The rig of other tests goes straight through, and counts as ever.
#[test]
fn a_pool_of_memory_counts_what_it_did() {
    let rig = Rig::new(crate::common::inline(), &[(TopKind::Leaf, 1)], 9);
    let bp = rig.write(crate::common::request(noise(3, 16384), 1)).expect("written");
    rig.read(&bp).expect("read");
    let counts = rig.zio.leaf_stats(LeafId(0)).counts();
    assert_eq!((counts.ops[0], counts.ops[1]), (1, 1));
}
