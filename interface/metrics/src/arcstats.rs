//! `arcstats` of the process: the sums over the pools' caches under OpenZFS's names and in its order.

use crate::names::{ARCSTATS, words};
use arc::Cache;
use kstat::Value;
use std::collections::BTreeMap;

/// One in the fixed-point numbers of the balance between lists (`meta`, `pd`, `pm`).
const BALANCED: u64 = 1 << 31;

/// Averages, of which a sum says nothing.
const MEANS: [&str; 2] = ["l2_log_blk_avg_asize", "l2_data_to_meta_ratio"];

/// Names of the statistic with their values. `idle_max` is the budget in bytes that a pool would get, shown when there is none; `past` are the counters
/// of caches that are gone.
pub(crate) fn arcstats(caches: &[Cache], idle_max: u64, past: BTreeMap<String, u64>) -> Vec<(&'static str, Value)> {
    let mut sums = sums(caches, past);
    let count = caches.len() as u64;
    for name in ["meta", "pd", "pm"] {
        let sum = sums.get(name).copied().unwrap_or(0);
        sums.insert(name.to_string(), sum.checked_div(count).unwrap_or(BALANCED));
    }
    if caches.is_empty() {
        sums.extend([("c".to_string(), idle_max), ("c_max".to_string(), idle_max)]);
    }
    let get = |sums: &BTreeMap<String, u64>, name: &str| sums.get(name).copied().unwrap_or(0);
    let dnode_limit = get(&sums, "c_max") / 10;
    let prefetched = ["prefetch_data_hits", "prefetch_data_misses", "prefetch_metadata_hits", "prefetch_metadata_misses"];
    let predicted = prefetched.iter().map(|name| get(&sums, name)).sum();
    for (name, value) in [("arc_dnode_limit", dnode_limit), ("predictive_prefetch", predicted)] {
        sums.entry(name.to_string()).or_insert(value);
    }
    let (objects, buffers) = (dmu::memory_use(), abd::memory_stats());
    sums.extend([
        ("dbuf_size".to_string(), objects.dbuf_bytes),
        ("dnode_size".to_string(), objects.dnode_bytes),
        ("bonus_size".to_string(), objects.bonus_bytes),
        ("other_size".to_string(), objects.dbuf_bytes + objects.dnode_bytes + objects.bonus_bytes),
        ("abd_chunk_waste_size".to_string(), buffers.mapped_bytes.saturating_sub(buffers.live_bytes + buffers.cached_bytes)),
    ]);
    sums.extend(machine_memory().map(|(name, value)| (name.to_string(), value)));
    words(ARCSTATS).map(|name| (name, Value::U64(get(&sums, name)))).collect()
}

fn sums(caches: &[Cache], mut sums: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut counts = [0; MEANS.len()];
    for cache in caches {
        for (name, value) in cache.kstat().values() {
            if let Value::U64(value) = value {
                let sum = sums.entry(name.to_string()).or_default();
                *sum = sum.wrapping_add(value);
                let mean = MEANS.iter().position(|mean| *mean == name);
                mean.into_iter().for_each(|index| counts[index] += u64::from(value > 0));
            }
        }
    }
    for (name, count) in MEANS.iter().zip(counts) {
        sums.get_mut(*name).into_iter().for_each(|sum| *sum = sum.checked_div(count).unwrap_or(0));
    }
    sums
}

/// Memory of the machine by `/proc/meminfo`; zeros where there is none.
fn machine_memory() -> [(&'static str, u64); 3] {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
    };
    [("memory_all_bytes", bytes("MemTotal")), ("memory_free_bytes", bytes("MemFree")), ("memory_available_bytes", bytes("MemAvailable"))]
}
