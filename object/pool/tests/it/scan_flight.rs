//! Scans have no more in flight than they may. What the user loses when this fails: everybody else waits behind a scrub for a device that is slow.
use crate::scan_pools::*;
use device::{BlockDevice, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use exec::{Exec, Inline, Mutex, TaskClass};
use pool::{ImportOptions, Pool, Runtime, ScanTunables};
use std::sync::Arc;
use vdev::TopKind;
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
