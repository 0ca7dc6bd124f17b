//! The layout of a leaf's statistics: which cell of its sheet counts what, and OpenZFS's names for the runs of cells.
//!
//! OpenZFS: `vdev_stat_ex_t`, `vdev_stat_update` (`vdev.c`), names in `sys/fs/zfs.h`. An I/O that serves several queued ones counts once, as
//! aggregated. The wait in a queue is the time from planning a set of leaf I/Os to handing this one to its device.

use kstat::{Histogram, bucket};
use std::ops::Range;
use vdev_queue::{CLASSES, Class, IoKind};

const LATENCY: usize = Histogram::LATENCY_BUCKETS;
const SIZES: usize = Histogram::SIZE_BUCKETS;

/// Facts of an I/O that came back from a device.
#[derive(Clone, Copy, Debug)]
pub struct LeafTiming {
    /// Kind of operation that was done.
    pub kind: IoKind,
    /// Urgency of the I/O.
    pub class: Class,
    /// First byte on the device.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// True when it served several that were queued.
    pub merged: bool,
    /// Nanoseconds from planning it to handing it to the device.
    pub queued_ns: u64,
    /// Time at which the device got it, in nanoseconds.
    pub issued_ns: u64,
    /// Nanoseconds in the device.
    pub disk_ns: u64,
}

// The cells: operations and bytes by kind, then the runs of the table below.
const OPS: usize = 0;
const BYTES: usize = 4;
const TOTAL: usize = 8;
const DISK: usize = TOTAL + 2 * LATENCY;
const QUEUE: usize = DISK + 2 * LATENCY;
const INDIVIDUAL: usize = QUEUE + CLASSES * LATENCY;
const AGGREGATED: usize = INDIVIDUAL + CLASSES * SIZES;
const ACTIVE: usize = AGGREGATED + CLASSES * SIZES;
const PENDING: usize = ACTIVE + CLASSES;

/// Bytes of the I/Os that a device has.
pub(crate) const IN_FLIGHT_BYTES: usize = PENDING + CLASSES;

/// I/Os that the device has, by when it got them: in a ring of [`SPANS`] spans of time.
const SINCE: usize = IN_FLIGHT_BYTES + 1;
/// A span is 2^30 ns long: `zfs_deadman_synctime_ms` may be a few seconds.
const SPAN_SHIFT: u32 = 30;
const SPANS: usize = 512;

/// Cells of a leaf's sheet.
pub(crate) const CELLS: usize = SINCE + SPANS;

pub(crate) fn ops(kind: IoKind) -> usize {
    OPS + kind as usize
}
pub(crate) fn bytes(kind: IoKind) -> usize {
    BYTES + kind as usize
}
/// Cell of the whole time of a read or a write.
pub(crate) fn total_wait(kind: IoKind, nanoseconds: u64) -> usize {
    TOTAL + (kind as usize & 1) * LATENCY + bucket(nanoseconds, LATENCY)
}
/// Cell of the device's time of a read or a write.
pub(crate) fn disk_wait(kind: IoKind, nanoseconds: u64) -> usize {
    DISK + (kind as usize & 1) * LATENCY + bucket(nanoseconds, LATENCY)
}
pub(crate) fn queue_wait(io: &LeafTiming) -> usize {
    QUEUE + shown(io) as usize * LATENCY + bucket(io.queued_ns, LATENCY)
}
pub(crate) fn size(io: &LeafTiming) -> usize {
    (if io.merged { AGGREGATED } else { INDIVIDUAL }) + shown(io) as usize * SIZES + bucket(io.bytes, SIZES)
}
pub(crate) fn active(class: Class) -> usize {
    ACTIVE + class as usize
}
pub(crate) fn pending(class: Class) -> usize {
    PENDING + class as usize
}
/// Cell of an I/O that the device got at this time.
pub(crate) fn since(issued_ns: u64) -> usize {
    SINCE + (issued_ns >> SPAN_SHIFT) as usize % SPANS
}
/// Every span that has not come around yet: its cell, and the least age of what the device got in it; the oldest first.
pub(crate) fn spans(now_ns: u64) -> impl Iterator<Item = (usize, u64)> {
    let now = now_ns >> SPAN_SHIFT;
    let ages = (0..SPANS as u64).rev().filter(move |age| *age <= now);
    ages.map(move |age| ((now - age) << SPAN_SHIFT, now_ns)).map(|(start, now_ns)| {
        let end = start | ((1 << SPAN_SHIFT) - 1);
        (since(start), now_ns.saturating_sub(end))
    })
}

/// The class that an I/O is shown as in histograms.
fn shown(io: &LeafTiming) -> Class {
    match (io.class, io.kind) {
        (Class::Initializing, _) | (Class::Removal, IoKind::Write) => Class::AsyncWrite,
        (Class::Removal, _) => Class::AsyncRead,
        (class, _) => class,
    }
}

/// One statistic of [`EXTENDED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedStat {
    /// OpenZFS's name in the vdev's `vdev_stats_ex`.
    pub name: &'static str,
    first: usize,
    count: usize,
}

impl ExtendedStat {
    pub(crate) fn cells(&self) -> Range<usize> {
        self.first..self.first + self.count
    }
}

const fn one(name: &'static str, first: usize, class: Class) -> ExtendedStat {
    ExtendedStat { name, first: first + class as usize, count: 1 }
}
const fn latency(name: &'static str, first: usize, index: usize) -> ExtendedStat {
    ExtendedStat { name, first: first + index * LATENCY, count: LATENCY }
}
const fn sizes(name: &'static str, first: usize, index: usize) -> ExtendedStat {
    ExtendedStat { name, first: first + index * SIZES, count: SIZES }
}

/// Every extended statistic, in the order of `vdev_config_generate_stats`; as there, removal and initializing have none of their own.
pub const EXTENDED: [ExtendedStat; 39] = [
    one("vdev_sync_r_active_queue", ACTIVE, Class::SyncRead),
    one("vdev_sync_w_active_queue", ACTIVE, Class::SyncWrite),
    one("vdev_async_r_active_queue", ACTIVE, Class::AsyncRead),
    one("vdev_async_w_active_queue", ACTIVE, Class::AsyncWrite),
    one("vdev_async_scrub_active_queue", ACTIVE, Class::Scrub),
    one("vdev_async_trim_active_queue", ACTIVE, Class::Trim),
    one("vdev_rebuild_active_queue", ACTIVE, Class::Rebuild),
    one("vdev_sync_r_pend_queue", PENDING, Class::SyncRead),
    one("vdev_sync_w_pend_queue", PENDING, Class::SyncWrite),
    one("vdev_async_r_pend_queue", PENDING, Class::AsyncRead),
    one("vdev_async_w_pend_queue", PENDING, Class::AsyncWrite),
    one("vdev_async_scrub_pend_queue", PENDING, Class::Scrub),
    one("vdev_async_trim_pend_queue", PENDING, Class::Trim),
    one("vdev_rebuild_pend_queue", PENDING, Class::Rebuild),
    latency("vdev_tot_r_lat_histo", TOTAL, 0),
    latency("vdev_tot_w_lat_histo", TOTAL, 1),
    latency("vdev_disk_r_lat_histo", DISK, 0),
    latency("vdev_disk_w_lat_histo", DISK, 1),
    latency("vdev_sync_r_lat_histo", QUEUE, Class::SyncRead as usize),
    latency("vdev_sync_w_lat_histo", QUEUE, Class::SyncWrite as usize),
    latency("vdev_async_r_lat_histo", QUEUE, Class::AsyncRead as usize),
    latency("vdev_async_w_lat_histo", QUEUE, Class::AsyncWrite as usize),
    latency("vdev_scrub_histo", QUEUE, Class::Scrub as usize),
    latency("vdev_trim_histo", QUEUE, Class::Trim as usize),
    latency("vdev_rebuild_histo", QUEUE, Class::Rebuild as usize),
    sizes("vdev_sync_ind_r_histo", INDIVIDUAL, Class::SyncRead as usize),
    sizes("vdev_sync_ind_w_histo", INDIVIDUAL, Class::SyncWrite as usize),
    sizes("vdev_async_ind_r_histo", INDIVIDUAL, Class::AsyncRead as usize),
    sizes("vdev_async_ind_w_histo", INDIVIDUAL, Class::AsyncWrite as usize),
    sizes("vdev_ind_scrub_histo", INDIVIDUAL, Class::Scrub as usize),
    sizes("vdev_ind_trim_histo", INDIVIDUAL, Class::Trim as usize),
    sizes("vdev_ind_rebuild_histo", INDIVIDUAL, Class::Rebuild as usize),
    sizes("vdev_sync_agg_r_histo", AGGREGATED, Class::SyncRead as usize),
    sizes("vdev_sync_agg_w_histo", AGGREGATED, Class::SyncWrite as usize),
    sizes("vdev_async_agg_r_histo", AGGREGATED, Class::AsyncRead as usize),
    sizes("vdev_async_agg_w_histo", AGGREGATED, Class::AsyncWrite as usize),
    sizes("vdev_agg_scrub_histo", AGGREGATED, Class::Scrub as usize),
    sizes("vdev_agg_trim_histo", AGGREGATED, Class::Trim as usize),
    sizes("vdev_agg_rebuild_histo", AGGREGATED, Class::Rebuild as usize),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LeafStats, Priority};

    /// A cell counted under two names would show latencies as sizes.
    #[test]
    fn every_cell_has_one_name() {
        let mut owners = vec![0; CELLS];
        EXTENDED.iter().flat_map(ExtendedStat::cells).for_each(|cell| owners[cell] += 1);
        for class in [Class::Removal, Class::Initializing] {
            let cells = [ACTIVE, PENDING].map(|run| run + class as usize);
            let latency = QUEUE + class as usize * LATENCY;
            let sizes = [INDIVIDUAL, AGGREGATED].map(|run| run + class as usize * SIZES);
            cells.into_iter().chain(latency..latency + LATENCY).for_each(|cell| owners[cell] += 1);
            sizes.into_iter().flat_map(|first| first..first + SIZES).for_each(|cell| owners[cell] += 1);
        }
        assert!(owners[TOTAL..IN_FLIGHT_BYTES].iter().all(|&count| count == 1));
        assert!(owners[..TOTAL].iter().chain(&owners[IN_FLIGHT_BYTES..]).all(|&count| count == 0));
    }

    /// A device that hangs for ten seconds was told of at five or only at nine, by chance, where `zfs_deadman_synctime_ms` says five.
    #[test]
    fn an_io_that_hangs_is_known_to_a_second_whenever_it_began() {
        const SECOND: u64 = 1_000_000_000;
        for issued_ns in (0..10 * SECOND).step_by(250_000_000) {
            let stats = LeafStats::default();
            let class = Priority::AsyncWrite.class(IoKind::Write);
            stats.issued(&LeafTiming {
                kind: IoKind::Write,
                class,
                offset: 0,
                bytes: 4096,
                merged: false,
                queued_ns: 0,
                issued_ns,
                disk_ns: 0,
            });
            for age_ns in [6 * SECOND + SECOND / 5, 500 * SECOND] {
                let told = stats.oldest_io_ns(issued_ns + age_ns).unwrap_or(0);
                assert!(told <= age_ns && age_ns - told < SECOND + SECOND / 10, "{told} ns of {age_ns}, begun at {issued_ns}");
            }
        }
    }

    #[test]
    fn an_io_shows_up_where_zpool_iostat_looks() {
        let stats = LeafStats::default();
        let class = Priority::AsyncWrite.class(IoKind::Write);
        let at = |kind, bytes, disk_ns| LeafTiming { kind, class, offset: 0, bytes, merged: false, queued_ns: 0, issued_ns: 0, disk_ns };
        let io = |class| LeafTiming { class, ..at(IoKind::Read, 4096, 0) };
        stats.issued(&io(class));
        stats.issued(&io(class));
        stats.returned(&io(class));
        stats.done(&at(IoKind::Write, 131_072, 70_000));
        let all = stats.extended();
        let of = |name: &str| all[EXTENDED.iter().position(|stat| stat.name == name).unwrap()].clone();
        assert_eq!(of("vdev_async_w_active_queue"), [1]);
        assert_eq!((of("vdev_tot_w_lat_histo")[16], of("vdev_disk_w_lat_histo")[16], of("vdev_async_w_lat_histo")[0]), (1, 1, 1));
        assert_eq!(of("vdev_async_ind_w_histo")[17], 1);
        assert_eq!(all.iter().flatten().sum::<u64>(), 5);
        assert_eq!((stats.counts().ops, stats.counts().bytes), ([0, 1, 0, 0], [0, 131_072, 0, 0]));
    }
}
