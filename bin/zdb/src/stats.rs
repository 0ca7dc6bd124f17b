//! How much of a label's config area is used, and by what (OpenZFS: `dump_nvlist_stats` in `zdb.c`).

use nvlist::{Encoding, NvList, Value};
use std::fmt::Write;

/// Pairs of a list and its nested lists, sorted by kind.
struct Stats {
    lists: usize,
    leaves: usize,
    leaf_largest: usize,
    leaf_total: usize,
    integers: NvList,
    strings: NvList,
    booleans: NvList,
    /// Numbers of types that are not counted.
    skipped: Vec<i32>,
}

fn packed_bytes(list: &NvList) -> usize {
    list.encode(Encoding::Xdr).len()
}

fn collect(list: &NvList, stats: &mut Stats) {
    stats.lists += 1;
    for (name, value) in list.iter() {
        match value {
            Value::String(_) => drop(stats.strings.add(name.clone(), value.clone())),
            Value::Uint64(_) => drop(stats.integers.add(name.clone(), value.clone())),
            Value::Boolean => drop(stats.booleans.add(name.clone(), value.clone())),
            Value::NvList(inner) => collect(inner, stats),
            Value::NvListArray(inner) => {
                for item in inner {
                    collect(item, stats);
                    if name.as_bytes() == b"children" {
                        let bytes = packed_bytes(item);
                        stats.leaf_total += bytes;
                        stats.leaf_largest = stats.leaf_largest.max(bytes);
                        stats.leaves += 1;
                    }
                }
            }
            other => stats.skipped.push(other.type_number()),
        }
    }
}

/// Table for a config in an area of `capacity` bytes; `detailed` adds how many leaves would still fit.
pub fn dump(config: &NvList, capacity: usize, detailed: bool) -> String {
    let free = || NvList::with_flags(0);
    let mut stats = Stats {
        lists: 0,
        leaves: 0,
        leaf_largest: 0,
        leaf_total: 0,
        integers: free(),
        strings: free(),
        booleans: free(),
        skipped: Vec::new(),
    };
    collect(config, &mut stats);
    let total = packed_bytes(config);
    let empty = packed_bytes(&free());
    let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole as f64;
    let mut out = String::from("\n\nZFS Label NVList Config Stats:\n");
    let unused = capacity.saturating_sub(total);
    // Writing to a String cannot fail.
    let _ = writeln!(out, "  {total} bytes used, {unused} bytes free (using {:4.1}%)\n", percent(total, capacity));
    for kind in &stats.skipped {
        let _ = writeln!(out, "skip type {kind}!");
    }
    let mut rest = total;
    for (title, list) in [("integers:", &stats.integers), ("strings:", &stats.strings), ("booleans:", &stats.booleans)] {
        let bytes = packed_bytes(list) - empty;
        rest = rest.saturating_sub(bytes);
        let _ = writeln!(out, "{title:>12} {:4} {bytes:6} bytes ({:5.2}%)", list.len(), percent(bytes, total));
    }
    let _ = writeln!(out, "{:>12} {:4} {rest:6} bytes ({:5.2}%)\n", "nvlists:", stats.lists, percent(rest, total));
    if let Some(average) = stats.leaf_total.checked_div(stats.leaves) {
        let _ = writeln!(out, "{:>12} {:4} {average:6} bytes average", "leaf vdevs:", stats.leaves);
        let _ = writeln!(out, "{:24} bytes largest", stats.leaf_largest);
        if detailed && average > 0 {
            let _ = writeln!(out, "  space for {} additional leaf vdevs", unused / average);
        }
    }
    out.push('\n');
    out
}
