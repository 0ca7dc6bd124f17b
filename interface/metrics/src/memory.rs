//! Who holds the memory of the process: one row per consumer, and their sum.
//!
//! The rows up to `total` share nothing. Those of buffers add up to what is mapped for buffers: in the cache, dirty, in the hands of
//! somebody else (an I/O, a transformation, a reader), and not in use. A block that was written and is in the cache although its
//! txg is not over counts as both; then less is left for the others. The rows after `total` tell the same memory from other sides.

use crate::PoolView;
use arc::Cache;
use kstat::Value;

/// Names of the rows: those that share nothing, their sum, and views of the same memory.
pub(crate) const MEMORY: [&str; 21] = [
    "arc_data",
    "arc_metadata",
    "arc_headers",
    "dirty_data",
    "buffers_in_use",
    "buffers_slab_waste",
    "buffers_spare",
    "dbufs",
    "dnodes",
    "bonuses",
    "range_trees",
    "total",
    "arc_budget",
    "arc_compressed",
    "arc_decompressed_copies",
    "indirects_remembered",
    "direct_read_windows",
    "io_in_flight",
    "dirty_data_max",
    "ring_registered",
    "resident",
];
/// Number of rows that the sum has.
const ADDENDS: usize = 11;

/// Sum of a counter over the caches.
pub(crate) fn of_caches(caches: &[Cache], name: &str) -> u64 {
    let one = |cache: &Cache| {
        let kstat = cache.kstat();
        let found = kstat.values().into_iter().find(|(known, _)| *known == name);
        if let Some((_, Value::U64(value))) = found { value } else { 0 }
    };
    caches.iter().map(one).sum()
}

/// Bytes of the process that are in memory; zero where `/proc` does not tell.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Rows of `zfs/memory`, in bytes.
pub(crate) fn memory(pools: &[PoolView]) -> Vec<(&'static str, u64)> {
    let caches: Vec<Cache> = pools.iter().map(|pool| pool.cache.clone()).collect();
    let sum = |of: &dyn Fn(&PoolView) -> u64| pools.iter().map(of).sum::<u64>();
    let (buffers, objects) = (abd::memory_stats(), dmu::memory_use());
    let [data, metadata] = ["data_size", "metadata_size"].map(|name| of_caches(&caches, name));
    let dirty = sum(&|pool| pool.txgs.dirty_bytes());
    let addends: [u64; ADDENDS] = [
        data,
        metadata,
        of_caches(&caches, "hdr_size"),
        dirty,
        buffers.live_bytes.saturating_sub(data + metadata + dirty),
        buffers.mapped_bytes.saturating_sub(buffers.live_bytes + buffers.cached_bytes),
        buffers.cached_bytes,
        objects.dbuf_bytes,
        objects.dnode_bytes,
        objects.bonus_bytes,
        sum(&|pool| pool.cache.zio().view().allocator.memory_bytes()),
    ];
    let in_flight = |pool: &PoolView| {
        let leaves = pool.cache.zio().view().tree.leaves.len() as u32;
        (0..leaves).map(|leaf| pool.cache.zio().leaf_stats(vdev::LeafId(leaf)).in_flight_bytes()).sum()
    };
    let views = [
        sum(&|pool| pool.cache.max()),
        of_caches(&caches, "compressed_size"),
        of_caches(&caches, "overhead_size"),
        objects.indirect_bytes,
        objects.direct_window_bytes,
        sum(&in_flight),
        sum(&|pool| pool.txgs.config().dirty_data_max),
        device::ring_stats().registered_bytes,
        resident_bytes(),
    ];
    let values = addends.into_iter().chain([addends.iter().sum()]).chain(views);
    MEMORY.into_iter().zip(values).collect()
}
