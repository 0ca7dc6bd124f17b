//! Many counters that are bumped together: a row of cells per thread group, so that one event touches few cache lines, all of
//! them (nearly) this thread's own. Histograms over powers of two are runs of such cells.

use crate::counter::{shard, shards};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Cells of a cache line.
const LINE_CELLS: usize = 8;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; LINE_CELLS]);

/// A fixed number of counters, summed over the rows when somebody looks.
#[derive(Debug)]
pub struct Sheet {
    lines: Box<[Line]>,
    lines_per_row: usize,
}

/// Row of a [`Sheet`] that is this thread's.
#[derive(Clone, Copy, Debug)]
pub struct Row<'sheet>(&'sheet [Line]);

impl Row<'_> {
    /// Adds `amount` to a cell.
    pub fn add(&self, cell: usize, amount: u64) {
        self.0[cell / LINE_CELLS].0[cell % LINE_CELLS].fetch_add(amount, Ordering::Relaxed);
    }

    /// Takes `amount` off a cell; the caller sees to it that the sum over the rows stays at or above zero.
    pub fn sub(&self, cell: usize, amount: u64) {
        self.0[cell / LINE_CELLS].0[cell % LINE_CELLS].fetch_sub(amount, Ordering::Relaxed);
    }
}

impl Sheet {
    /// `cells` counters at zero.
    pub fn new(cells: usize) -> Sheet {
        let lines_per_row = cells.div_ceil(LINE_CELLS).max(1);
        Sheet { lines: (0..lines_per_row * shards()).map(|_| Line::default()).collect(), lines_per_row }
    }

    /// The row that this thread adds to.
    pub fn row(&self) -> Row<'_> {
        let start = shard() * self.lines_per_row;
        Row(&self.lines[start..start + self.lines_per_row])
    }

    /// The sum of one cell.
    pub fn get(&self, cell: usize) -> u64 {
        let rows = self.lines.chunks(self.lines_per_row);
        rows.fold(0, |sum, row| sum.wrapping_add(row[cell / LINE_CELLS].0[cell % LINE_CELLS].load(Ordering::Relaxed)))
    }

    /// The sums of consecutive cells.
    pub fn sums(&self, cells: Range<usize>) -> Vec<u64> {
        cells.map(|cell| self.get(cell)).collect()
    }

    /// Sets every cell to zero; additions at the same time may survive or not.
    pub fn reset(&self) {
        self.lines.iter().flat_map(|line| &line.0).for_each(|cell| cell.store(0, Ordering::Relaxed));
    }
}

/// The bucket of `value` among `buckets` power-of-two ones: `i` for values in `2^i .. 2^(i+1)`, 0 for zero, the last one for
/// values too large (OpenZFS: `HISTO` in `sys/fs/zfs.h`).
pub fn bucket(value: u64, buckets: usize) -> usize {
    (value.checked_ilog2().unwrap_or(0) as usize).min(buckets.saturating_sub(1))
}

/// Numbers of values that fell into each power-of-two [`bucket`] (`zpool iostat -w -r`; OpenZFS: `vdev_stat_ex_t`).
#[derive(Debug)]
pub struct Histogram {
    sheet: Sheet,
    buckets: usize,
}

impl Histogram {
    /// Buckets of OpenZFS's latency histograms, in nanoseconds (`VDEV_L_HISTO_BUCKETS`).
    pub const LATENCY_BUCKETS: usize = 37;
    /// Buckets of OpenZFS's request-size histograms, in bytes (`VDEV_RQ_HISTO_BUCKETS`).
    pub const SIZE_BUCKETS: usize = 25;

    /// A histogram of `buckets` buckets (1 to 64).
    pub fn new(buckets: usize) -> Histogram {
        let buckets = buckets.clamp(1, 64);
        Histogram { sheet: Sheet::new(buckets), buckets }
    }

    /// Counts `value`.
    pub fn add(&self, value: u64) {
        self.sheet.row().add(bucket(value, self.buckets), 1);
    }

    /// The counts, bucket by bucket.
    pub fn counts(&self) -> Vec<u64> {
        self.sheet.sums(0..self.buckets)
    }

    /// Sets every bucket to zero.
    pub fn reset(&self) {
        self.sheet.reset();
    }
}
