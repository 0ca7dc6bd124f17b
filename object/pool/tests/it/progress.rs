//! What is shown of a scan's progress, in virtual time: never falls, never above 100 %, true to what is to come. What the user loses
//! when these fail: the only way to tell whether to wait for a scan.
use crate::common::Random;
use crate::scan_pools::*;
use device::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use exec::{Exec, Inline, Mutex, TaskClass};
use ondisk::ObjectId;
use pool::{ImportOptions, Pool, Runtime, ScanState, ScanStatus};
use std::sync::Arc;
use vdev::{LeafState, TopKind};

/// Bytes per second of each device.
const RATE: u64 = 100_000;
const SECOND: u64 = 1_000_000_000;

/// A device that moves so many bytes per second, one request after the other.
struct Paced {
    inner: Arc<MemDevice>,
    exec: Exec,
    free_at_ns: Mutex<u64>,
}

impl std::fmt::Debug for Paced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Paced").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl BlockDevice for Paced {
    fn submit(&self, io: DeviceIo) {
        let bytes = match &io.op {
            DeviceOp::Read(_) | DeviceOp::Write(_) => io.op.length_bytes(),
            DeviceOp::Flush | DeviceOp::Trim { .. } => 0,
        };
        let now = self.exec.now_ns();
        let done = {
            let mut free = self.free_at_ns.lock();
            *free = (*free).max(now) + bytes * SECOND / RATE;
            *free
        };
        let inner = self.inner.clone();
        self.exec.spawn_after(done - now, TaskClass::Interrupt, Box::new(move || inner.submit(io)));
    }
    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
}

fn import_paced(exec: &Exec, devices: &[Arc<MemDevice>]) -> Pool {
    let paced = |inner: &Arc<MemDevice>| -> Arc<dyn BlockDevice> {
        Arc::new(Paced { inner: inner.clone(), exec: exec.clone(), free_at_ns: Mutex::new(0) })
    };
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    Pool::import(exec, devices.iter().map(paced).collect(), &options, &Runtime::new()).expect("imported")
}

/// A pool with one large file, exported; with a device that lacks a part of it when `lacking`.
fn large(devices: &[Arc<MemDevice>], kind: TopKind, lacking: bool) -> ObjectId {
    let exec: Exec = Arc::new(Inline::new(7));
    let pool = create(&exec, devices, kind);
    let object = write(&pool, "tank", None, 0..1, 1);
    pool.sync().expect("synced");
    let leaf = pool.tree().leaves[1].guid;
    if lacking {
        pool.offline(leaf, false).expect("offline");
    }
    for part in 0..4 {
        write(&pool, "tank", Some(object), part * 60..(part + 1) * 60, part + 2);
        pool.sync().expect("synced");
    }
    pool.export().expect("exported");
    object
}

/// Begins the scan: a scrub, or the resilver of the device that was offline.
fn begin(pool: &Pool, devices: &[Arc<MemDevice>], exec: &Exec) {
    let leaf = pool.tree().leaves[1].clone();
    if leaf.state == LeafState::Offline {
        let device = Arc::new(Paced { inner: devices[1].clone(), exec: exec.clone(), free_at_ns: Mutex::new(0) });
        assert_eq!(pool.online(leaf.guid, Some(device)), Ok(LeafState::Online));
    } else {
        pool.scrub_start().expect("started");
    }
}

fn check(status: &ScanStatus, last: &ScanStatus, what: &str) {
    assert!((0.0..=100.0).contains(&status.percent()), "{what}: {status:?}");
    assert!(status.percent() >= last.percent(), "{what}: {last:?} {status:?}");
    let counts = |status: &ScanStatus| [status.examined, status.issued, status.skipped, status.repaired];
    assert!(counts(status).iter().zip(counts(last)).all(|(now, before)| *now >= before), "{what}: {last:?} {status:?}");
    assert!(status.issued <= status.to_issue() && status.examined <= status.to_examine, "{what}: {status:?}");
}

/// If this fails, progress runs backwards or beyond its end, or starts again with an import.
#[test]
fn progress_never_falls_whatever_happens_to_the_scan() {
    for seed in 0..12u64 {
        let (kind, count, lacking) =
            [(TopKind::Mirror, 2, false), (TopKind::Raidz(1), 3, true), (TopKind::Mirror, 2, true)][seed as usize % 3];
        let what = format!("{kind:?}, seed {seed}");
        let devices = devices(count);
        let object = large(&devices, kind, lacking);
        let mut random = Random(seed);
        let exec: Exec = Arc::new(Inline::new(seed));
        let mut pool = import_paced(&exec, &devices);
        begin(&pool, &devices, &exec);
        let mut last = pool.scan_status().expect("a scan");
        for step in 0..400u64 {
            // A scan that must begin again and again at its last checkpoint comes to no end: the last crash is early enough.
            let crashes = step < 40;
            pool.scrub_queue_max([0, 20, 60][random.below(3) as usize]);
            if random.below(4) == 0 {
                pool.scrub_drive_part(1 + random.below(20) as usize).expect("driven");
            } else {
                pool.scrub_drive_reads(1 + random.below(20) as usize).expect("driven");
            }
            let status = pool.scan_status().expect("a scan");
            if status.state == ScanState::Finished {
                break;
            }
            check(&status, &last, &what);
            last = status;
            match random.below(6) {
                0 => write(&pool, "tank", Some(object), random.below(200)..random.below(200), 100 + step),
                1 if crashes => {
                    pool.sync().expect("synced");
                    drop(pool);
                    pool = import_paced(&exec, &devices);
                    object
                }
                2 if crashes => {
                    pool.export().expect("exported");
                    pool = import_paced(&exec, &devices);
                    object
                }
                3 => {
                    pool.sync().expect("synced");
                    object
                }
                _ => object,
            };
            let status = pool.scan_status().expect("a scan");
            if status.state == ScanState::Finished {
                break;
            }
            check(&status, &last, &what);
            last = status;
        }
        pool.scrub_drive().expect("driven");
        assert_eq!(pool.scan_status().map(|status| (status.state, status.errors)), Some((ScanState::Finished, 0)), "{what}");
    }
}

/// If this fails, "to go" says nothing of when a scan will end (openzfs issue 11779: seven minutes for five terabytes).
#[test]
fn half_way_the_estimate_is_right_within_a_fifth() {
    for (seed, (kind, count, lacking)) in
        [(TopKind::Mirror, 2, false), (TopKind::Raidz(1), 3, false), (TopKind::Raidz(1), 3, true), (TopKind::Mirror, 3, true)]
            .into_iter()
            .enumerate()
    {
        for memory in [0, 50] {
            let what = format!("{kind:?}, lacking: {lacking}, memory for {memory}");
            let devices = devices(count);
            large(&devices, kind, lacking);
            let exec: Exec = Arc::new(Inline::new(seed as u64));
            let pool = import_paced(&exec, &devices);
            begin(&pool, &devices, &exec);
            pool.scrub_queue_max(memory);
            let mut half_way = None;
            let ended = loop {
                pool.scrub_drive_reads(4).expect("driven");
                let status = pool.scan_status().expect("a scan");
                if status.state == ScanState::Finished {
                    break exec.now_ns();
                }
                if half_way.is_none() && status.percent() >= 50.0 {
                    half_way = Some((exec.now_ns(), status.seconds_left.expect("a rate")));
                }
            };
            let (then, estimate) = half_way.expect("it was half-way once");
            let truth = (ended - then) as f64 / SECOND as f64;
            let error = (estimate as f64 - truth).abs() / truth;
            assert!(error <= 0.2, "{what}: {estimate} s estimated, {truth} s it took");
        }
    }
}
