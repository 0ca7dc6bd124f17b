//! Scans have no more in flight than they may, and a resilver the time that it is to have. What the user loses when this fails: everybody else waits
//! behind a scrub for a device that is slow; or redundancy, for as long as many txgs keep a resilver from its work.
use crate::scan_pools::*;
use device::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use exec::{Exec, Inline, Mutex, TaskClass};
use pool::{ImportOptions, Pool, Runtime, ScanState, ScanTunables};
use std::sync::Arc;
use vdev::{Pairing, TopKind};
use zio::LatencyTarget;

/// Time that an I/O takes.
const IO_NS: u64 = 100_000_000;

/// A device that does any number of I/Os at a time.
struct Slow {
    exec: Exec,
    mem: Arc<MemDevice>,
    /// Bytes that are being read, and the most that were at a time.
    reading: Arc<Mutex<(u64, u64)>>,
}

impl std::fmt::Debug for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slow").finish_non_exhaustive()
    }
}

impl BlockDevice for Slow {
    fn submit(&self, io: DeviceIo) {
        let bytes = if matches!(io.op, DeviceOp::Read(_)) { io.op.length_bytes() } else { 0 };
        {
            let mut reading = self.reading.lock();
            reading.0 += bytes;
            reading.1 = reading.1.max(reading.0);
        }
        let (mem, reading) = (self.mem.clone(), self.reading.clone());
        let done = move || {
            reading.lock().0 -= bytes;
            mem.submit(io);
        };
        self.exec.spawn_after(IO_NS, TaskClass::Interrupt, Box::new(done));
    }
    fn facts(&self) -> &DeviceFacts {
        self.mem.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.mem.size_bytes()
    }
}

/// If this fails, `zfs_scan_vdev_limit` does nothing.
#[test]
fn a_scrub_has_no_more_in_flight_than_it_may() {
    let exec: Exec = Arc::new(Inline::new(7));
    let devices = devices(1);
    let (pool, _) = filled(&exec, &devices, TopKind::Leaf);
    pool.export().expect("exported");
    let slow = Arc::new(Slow { exec: exec.clone(), mem: devices[0].clone(), reading: Arc::default() });
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    let pool = Pool::import(&exec, opened(std::slice::from_ref(&slow)), &options, &Runtime::new()).expect("imported");
    // What the scan asks for is what the device gets.
    pool.cache().zio().tune_queues(|tunables| {
        tunables.latency_target = LatencyTarget::Off;
        tunables.read_gap_limit = 0;
        tunables.set("zfs_vdev_scrub_min_active", 1000).expect("a parameter");
        tunables.set("zfs_vdev_scrub_max_active", 1000).expect("a parameter");
    });
    let most = |vdev_limit: u64| {
        pool.tune_scans(ScanTunables { vdev_limit, ..ScanTunables::default() });
        pool.cache().clear();
        slow.reading.lock().1 = 0;
        let status = scrub(&pool);
        assert_eq!((status.errors, status.examined), (0, status.issued), "everything is read, however slowly");
        slow.reading.lock().1
    };
    let usual = most(ScanTunables::default().vdev_limit);
    assert!(usual > 1 << 20, "{usual}: it asks for too little to show anything");
    // As of four devices.
    let few = most(128 << 10);
    assert!((64 << 10..=512 << 10).contains(&few), "{few}");
    // No less than a block for each.
    let least = most(0);
    assert!((64 << 10..=256 << 10).contains(&least) && least < few, "{least}");
}

/// A device on which every read of a block of data takes its time.
struct SlowReads {
    exec: Exec,
    mem: Arc<MemDevice>,
}

impl std::fmt::Debug for SlowReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlowReads").finish_non_exhaustive()
    }
}

impl BlockDevice for SlowReads {
    fn submit(&self, io: DeviceIo) {
        if !matches!(io.op, DeviceOp::Read(_)) || io.op.length_bytes() < BLOCK_BYTES as u64 {
            return self.mem.submit(io);
        }
        let mem = self.mem.clone();
        self.exec.spawn_after(IO_NS / 4, TaskClass::Interrupt, Box::new(move || mem.submit(io)));
    }
    fn facts(&self) -> &DeviceFacts {
        self.mem.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.mem.size_bytes()
    }
}

/// If this fails, `zfs_resilver_min_time_ms` does nothing: a pool whose txgs follow each other closely stays without redundancy.
#[test]
fn a_resilver_has_its_time_between_two_txgs() {
    let exec: Exec = Arc::new(exec::Pool::new(2));
    let devices = devices(2);
    let (pool, _) = filled(&exec, &devices[..1], TopKind::Leaf);
    pool.export().expect("exported");
    let slow = Arc::new(SlowReads { exec: exec.clone(), mem: devices[0].clone() });
    let options = ImportOptions { host: host(), ..ImportOptions::default() };
    let pool = Pool::import(&exec, opened(std::slice::from_ref(&slow)), &options, &Runtime::new()).expect("imported");
    // One block after the other, for a second and more.
    pool.tune_scans(ScanTunables { vdev_limit: 0, resilver_min_time_ms: 60_000, ..ScanTunables::default() });
    let only = pool.tree().leaves[0].guid;
    pool.attach(only, &crate::common::leaf(&devices[1]), Pairing::Mirror, false).expect("attached");
    let is_done = || pool.scan_status().is_some_and(|status| status.state == ScanState::Finished);
    let mut syncs = 0;
    while syncs < 10 && !is_done() {
        pool.sync().expect("synced");
        syncs += 1;
    }
    // It needs two to find out what there is; the third one leaves it the time for all of it, and no more than that.
    assert!(is_done() && syncs <= 5, "{syncs} txgs");
    pool.export().expect("exported");
}
