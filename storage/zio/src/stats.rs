//! What the pipeline counts in total, and how it is shown with the sums over the leaves.

use kstat::{Counter, Kstat, Value};
use leaf::LeafCounts;
use vdev_queue::IoKind;

/// Totals of one pool.
#[derive(Debug, Default)]
pub struct ZioStats {
    /// Gang blocks written (OpenZFS: `ziostat_gang_writes`).
    pub gang_writes: Counter,
    /// Blocks stored in their pointers.
    pub embedded_writes: Counter,
    /// Blocks of zeros that became holes.
    pub hole_writes: Counter,
    /// Blocks that were not written, as they are there already.
    pub nop_writes: Counter,
    /// Blocks that were not written, as tables of deduplication have equal ones.
    pub dedup_writes: Counter,
    /// Blocks rewritten in place.
    pub rewrites: Counter,
    /// Bytes that degraded reads brought to leaves that are being resilvered.
    pub fed_bytes: Counter,
    /// Reads of blocks of which leaves that sit out have copies or columns.
    pub sat_out_reads: Counter,
    /// Logical reads that failed.
    pub read_failures: Counter,
    /// Logical writes that failed.
    pub write_failures: Counter,
}

/// A total of the pool by name.
type Total = (&'static str, fn(&ZioStats) -> &Counter);
/// A count of a leaf by name.
type LeafCount = (&'static str, fn(&LeafCounts) -> u64);

const TOTALS: [Total; 10] = [
    ("gang_writes", |stats| &stats.gang_writes),
    ("embedded_writes", |stats| &stats.embedded_writes),
    ("hole_writes", |stats| &stats.hole_writes),
    ("nop_writes", |stats| &stats.nop_writes),
    ("dedup_writes", |stats| &stats.dedup_writes),
    ("rewrites", |stats| &stats.rewrites),
    ("fed_bytes", |stats| &stats.fed_bytes),
    ("sat_out_reads", |stats| &stats.sat_out_reads),
    ("read_failures", |stats| &stats.read_failures),
    ("write_failures", |stats| &stats.write_failures),
];

const LEAF_SUMS: [LeafCount; 7] = [
    ("read_errors", |counts| counts.errors[IoKind::Read as usize]),
    ("write_errors", |counts| counts.errors[IoKind::Write as usize]),
    ("flush_errors", |counts| counts.errors[IoKind::Flush as usize]),
    ("checksum_errors", |counts| counts.checksum_errors),
    ("slow_ios", |counts| counts.slow_ios),
    ("repaired_bytes", |counts| counts.repaired_bytes),
    ("sit_outs", |counts| counts.sit_outs),
];

/// The totals, and the sums over the leaves, as a statistic; every look asks for them.
pub(crate) fn kstat<T, L>(totals: T, leaves: L) -> Kstat
where
    T: Fn(fn(&ZioStats) -> &Counter) -> u64 + Clone + Send + Sync + 'static,
    L: Fn(fn(&LeafCounts) -> u64) -> u64 + Clone + Send + Sync + 'static,
{
    let mut kstat = Kstat::named();
    for (name, counter) in TOTALS {
        let totals = totals.clone();
        kstat.computed(name, move || Value::U64(totals(counter)));
    }
    for (name, count) in LEAF_SUMS {
        let leaves = leaves.clone();
        kstat.computed(name, move || Value::U64(leaves(count)));
    }
    kstat
}
