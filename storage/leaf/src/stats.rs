//! What is counted of one leaf. Counters of every I/O are sharded; those of errors need not be.

use crate::extended::{self, EXTENDED, LeafTiming};
use crate::reports::{FailedIo, Reports, Retention, WrongBytes};
use crate::sitting::Sitting;
use device::DeviceError;
use kstat::Sheet;
use std::sync::atomic::{AtomicU64, Ordering};
use vdev_queue::{Class, IoKind};

/// Counters of one leaf (OpenZFS: `vdev_stat_t`, `vdev_stat_ex_t`); they live as long as the pool is imported, whatever the tree
/// does. Interior vdevs have none: theirs are the sums of their leaves, as in OpenZFS (`vdev_get_stats_ex`).
#[derive(Debug)]
pub struct LeafStats {
    /// Counters of every I/O, by the layout of [`EXTENDED`].
    sheet: Sheet,
    errors: [AtomicU64; 4],
    checksum_errors: AtomicU64,
    slow_ios: AtomicU64,
    repaired_bytes: AtomicU64,
    gone: AtomicU64,
    pub(crate) reports: Reports,
    pub(crate) sitting: Sitting,
}

impl Default for LeafStats {
    fn default() -> LeafStats {
        LeafStats {
            sheet: Sheet::new(extended::CELLS),
            errors: Default::default(),
            checksum_errors: AtomicU64::new(0),
            slow_ios: AtomicU64::new(0),
            repaired_bytes: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            reports: Reports::default(),
            sitting: Sitting::default(),
        }
    }
}

/// A reading of [`LeafStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafCounts {
    /// Number of I/Os by [`IoKind`].
    pub ops: [u64; 4],
    /// Number of bytes by [`IoKind`].
    pub bytes: [u64; 4],
    /// Failed I/Os by [`IoKind`]; the same place counts once in a while.
    pub errors: [u64; 4],
    /// Reads that returned wrong bytes.
    pub checksum_errors: u64,
    /// I/Os that took `zio_slow_io_ms` or longer.
    pub slow_ios: u64,
    /// Bytes rewritten because they were wrong or missing.
    pub repaired_bytes: u64,
    /// I/Os that failed because the device is not there any more.
    pub gone: u64,
    /// Errors of the device that were told: the same place counts once in a while.
    pub io_reports: u64,
    /// Wrong bytes that were told, but for those that scrubs and resilvers found (OpenZFS: `zed` passes them over, so that a pool is not
    /// degraded while it is being repaired).
    pub checksum_reports: u64,
    /// Slow I/Os that were told.
    pub slow_reports: u64,
    /// Times that it began to sit out: reads passed over it.
    pub sit_outs: u64,
}

impl LeafStats {
    /// One I/O was handed to the device.
    pub(crate) fn issued(&self, io: &LeafTiming) {
        let row = self.sheet.row();
        row.add(extended::active(io.class), 1);
        row.add(extended::IN_FLIGHT_BYTES, io.bytes);
        row.add(extended::since(io.issued_ns), 1);
    }
    /// One I/O waits in the queue.
    pub(crate) fn queued(&self, class: Class) {
        self.sheet.row().add(extended::pending(class), 1);
    }
    /// Notes that so many do not wait any more.
    pub(crate) fn dequeued(&self, class: Class, count: usize) {
        self.sheet.row().sub(extended::pending(class), count as u64);
    }
    /// One I/O came back from the device, whatever its outcome.
    pub(crate) fn returned(&self, io: &LeafTiming) {
        let row = self.sheet.row();
        row.sub(extended::active(io.class), 1);
        row.sub(extended::IN_FLIGHT_BYTES, io.bytes);
        row.sub(extended::since(io.issued_ns), 1);
    }
    /// Bytes of the I/Os that the device has now.
    pub fn in_flight_bytes(&self) -> u64 {
        // Additions and subtractions come from different threads: never below zero, but perhaps for a moment.
        (self.sheet.get(extended::IN_FLIGHT_BYTES) as i64).max(0) as u64
    }
    /// Time in ns for which, at least, the device has had its oldest I/O; exact to 1.1 seconds, of the last nine minutes.
    pub fn oldest_io_ns(&self, now_ns: u64) -> Option<u64> {
        extended::spans(now_ns).find(|(cell, _)| (self.sheet.get(*cell) as i64) > 0).map(|(_, age_ns)| age_ns)
    }
    /// Counts one I/O as done.
    pub(crate) fn done(&self, io: &LeafTiming) {
        let row = self.sheet.row();
        row.add(extended::ops(io.kind), 1);
        row.add(extended::bytes(io.kind), io.bytes);
        if io.kind != IoKind::Flush {
            row.add(extended::size(io), 1);
            row.add(extended::queue_wait(io), 1);
        }
        if let IoKind::Read | IoKind::Write = io.kind {
            row.add(extended::total_wait(io.kind, io.queued_ns + io.disk_ns), 1);
            row.add(extended::disk_wait(io.kind, io.disk_ns), 1);
        }
    }
    /// One I/O took too long; says whether that is to be told.
    pub(crate) fn slow(&self, now_ns: u64, rate: u32) -> bool {
        self.slow_ios.fetch_add(1, Ordering::Relaxed);
        self.reports.slow(now_ns, rate)
    }
    /// True when an I/O that hangs is to be told.
    pub(crate) fn hangs(&self, now_ns: u64, rate: u32) -> bool {
        self.reports.deadmen.allows(now_ns, rate)
    }
    /// An I/O failed for good: counts it, unless that was told of late (OpenZFS: `zio_done`, which counts no error whose report is a
    /// duplicate), so that what `zpool status` counts is what `zpool events` has; says whether it is to be told. A device that is gone is a
    /// state, not an error of the I/O.
    pub(crate) fn failed(&self, io: &FailedIo, error: DeviceError, now_ns: u64, retention: &Retention) -> bool {
        let (counts, is_told) = self.reports.failed(io, error, now_ns, retention);
        if error == DeviceError::Gone {
            self.gone.fetch_add(1, Ordering::Relaxed);
        } else {
            self.errors[io.kind as usize].fetch_add(u64::from(counts), Ordering::Relaxed);
        }
        is_told
    }
    /// The leaf returned wrong bytes; says whether that is to be told.
    pub(crate) fn wrong_bytes(&self, place: WrongBytes, counted: bool, limits: (u64, u32), retention: &Retention) -> bool {
        self.checksum_errors.fetch_add(1, Ordering::Relaxed);
        self.reports.wrong_bytes(place, counted, limits, retention)
    }
    /// `bytes` were made right again.
    pub fn repaired(&self, bytes: u64) {
        self.repaired_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    /// Counters of the leaf, as they are now.
    pub fn counts(&self) -> LeafCounts {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let [io_reports, checksum_reports, slow_reports] = self.reports.told();
        LeafCounts {
            ops: std::array::from_fn(|kind| self.sheet.get(kind)),
            bytes: std::array::from_fn(|kind| self.sheet.get(4 + kind)),
            errors: std::array::from_fn(|kind| load(&self.errors[kind])),
            checksum_errors: load(&self.checksum_errors),
            slow_ios: load(&self.slow_ios),
            repaired_bytes: load(&self.repaired_bytes),
            gone: load(&self.gone),
            io_reports,
            checksum_reports,
            slow_reports,
            sit_outs: self.sitting.times(),
        }
    }
    /// Histograms and queue depths, in the order of [`EXTENDED`].
    pub fn extended(&self) -> Vec<Vec<u64>> {
        EXTENDED.iter().map(|stat| self.sheet.sums(stat.cells())).collect()
    }
    /// Forgets what was told: the leaf comes back, and what happens again is news.
    pub fn forget_reports(&self) {
        self.reports.clear();
    }
    /// Lets reads come to the leaf again, if they pass over it.
    pub fn end_sitting_out(&self) {
        self.sitting.end();
    }
    /// Forgets errors, and that the leaf sits out (`zpool clear`; OpenZFS: `vdev_clear`).
    pub fn clear_errors(&self) {
        for cell in self.errors.iter().chain([&self.checksum_errors, &self.slow_ios, &self.gone]) {
            cell.store(0, Ordering::Relaxed);
        }
        self.reports.clear();
        self.sitting.end();
    }
}
