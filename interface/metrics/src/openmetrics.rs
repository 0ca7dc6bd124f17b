//! The same numbers as OpenMetrics text (`application/openmetrics-text; version=1.0.0`), for Prometheus.

use crate::memory::memory;
use crate::names::is_gauge;
use crate::tree::own;
use crate::{AcceleratorView, DirectRow, PoolView, Tree};
use control_api::IostatVdev;
use kstat::Value;
use std::fmt::Write;

/// Powers of two in nanoseconds between which waits are told: about 1 µs to 34 s.
const WAIT_SHIFTS: std::ops::RangeInclusive<usize> = 10..=35;
/// States of a pool that are told one by one, as node_exporter does.
const STATES: [&str; 7] = ["DEGRADED", "FAULTED", "OFFLINE", "ONLINE", "REMOVED", "SUSPENDED", "UNAVAIL"];

/// Metric of a vdev: its name, its help text, and the value.
type VdevCount = (&'static str, &'static str, fn(&IostatVdev) -> Option<u64>);

const VDEV_COUNTS: [VdevCount; 4] = [
    ("zfs_vdev_read_operations", "Reads done by the vdev's leaves", |vdev| Some(vdev.read_operations)),
    ("zfs_vdev_write_operations", "Writes done by the vdev's leaves", |vdev| Some(vdev.write_operations)),
    ("zfs_vdev_read_bytes", "Bytes read from the vdev's leaves", |vdev| Some(vdev.read_bytes)),
    ("zfs_vdev_written_bytes", "Bytes written to the vdev's leaves", |vdev| Some(vdev.written_bytes)),
];
const VDEV_SIZES: [VdevCount; 2] = [
    ("zfs_vdev_allocated_bytes", "Bytes allocated", |vdev| vdev.allocated_bytes),
    ("zfs_vdev_free_bytes", "Bytes free", |vdev| vdev.free_bytes),
];
const WAITS: [(&str, &str, &str); 4] = [
    ("zfs_vdev_total_wait_seconds", "read", "vdev_tot_r_lat_histo"),
    ("zfs_vdev_total_wait_seconds", "write", "vdev_tot_w_lat_histo"),
    ("zfs_vdev_disk_wait_seconds", "read", "vdev_disk_r_lat_histo"),
    ("zfs_vdev_disk_wait_seconds", "write", "vdev_disk_w_lat_histo"),
];

/// Text of the exposition; `vdevs` are the roots of the open pools.
pub fn openmetrics(tree: &Tree, vdevs: &[IostatVdev]) -> String {
    let pools = tree.source().pools();
    let mut out = String::new();
    for (name, value) in tree.arcstats(&pools) {
        plain(&mut out, &format!("zfs_arc_{name}"), is_gauge(name), &value);
    }
    for (name, value) in own() {
        plain(&mut out, &format!("zirconia_{name}"), name.ends_with("_bytes") && name != "abd_copied_bytes", &value);
    }
    head(&mut out, "zirconia_memory_bytes", "gauge", "Memory by who holds it; the consumers before total share nothing");
    for (consumer, bytes) in memory(&pools) {
        let _ = writeln!(out, "zirconia_memory_bytes{{consumer=\"{consumer}\"}} {bytes}");
    }
    of_pools(&mut out, &pools);
    of_direct(&mut out, &pools);
    of_accelerators(&mut out, &pools);
    of_vdevs(&mut out, vdevs);
    out.push_str("# EOF\n");
    out
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# TYPE {name} {kind}\n# HELP {name} {help}.");
}

fn plain(out: &mut String, name: &str, is_gauge: bool, value: &Value) {
    let (kind, suffix) = if is_gauge { ("gauge", "") } else { ("counter", "_total") };
    head(out, name, kind, "OpenZFS's statistic of this name");
    let _ = writeln!(out, "{name}{suffix} {value}");
}

/// Value of a label with what OpenMetrics wants escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn of_pools(out: &mut String, pools: &[PoolView]) {
    head(out, "zfs_pool_state", "gauge", "1 for the state that the pool is in");
    for pool in pools {
        for state in STATES {
            let is_it = u8::from(pool.state == state);
            let _ = writeln!(out, "zfs_pool_state{{pool=\"{}\",state=\"{}\"}} {is_it}", escaped(&pool.name), state.to_lowercase());
        }
    }
    let rows: Vec<(String, Vec<(String, u64)>)> = pools.iter().map(|pool| (escaped(&pool.name), pool.iostats())).collect();
    for (index, (name, _)) in rows.first().map(|(_, rows)| rows.clone()).unwrap_or_default().iter().enumerate() {
        head(out, &format!("zfs_pool_{name}"), "counter", "The pool's iostats row of this name");
        for (pool, rows) in &rows {
            let _ = writeln!(out, "zfs_pool_{name}_total{{pool=\"{pool}\"}} {}", rows[index].1);
        }
    }
    for (index, name) in ["writes", "nwritten", "reads", "nread", "nunlinks", "nunlinked"].into_iter().enumerate() {
        head(out, &format!("zfs_dataset_{name}"), "counter", "The dataset's statistic of this name");
        for (pool, dataset) in pools.iter().flat_map(|pool| pool.datasets.iter().map(move |dataset| (pool, dataset))) {
            let (pool, name_of) = (escaped(&pool.name), escaped(&dataset.name));
            let _ = writeln!(out, "zfs_dataset_{name}_total{{pool=\"{pool}\",dataset=\"{name_of}\"}} {}", dataset.counts[index]);
        }
    }
}

/// Tells direct I/O by pool and by file system: requests and bytes of each part, or of each reason why a part was not direct.
fn of_direct(out: &mut String, pools: &[PoolView]) {
    let of_pool = |pool: &PoolView| (format!("pool=\"{}\"", escaped(&pool.name)), pool.direct.clone());
    let of_dataset = |pool: &PoolView| {
        let labels = |name: &str| format!("pool=\"{}\",dataset=\"{}\"", escaped(&pool.name), escaped(name));
        pool.datasets.iter().map(|dataset| (labels(&dataset.name), dataset.direct.clone())).collect::<Vec<_>>()
    };
    let (by_pool, by_dataset): (Vec<_>, Vec<_>) = (pools.iter().map(of_pool).collect(), pools.iter().flat_map(of_dataset).collect());
    for (scope, owners) in [("pool", by_pool), ("dataset", by_dataset)] {
        for (unit, value) in [("requests", (|row: &DirectRow| row.requests) as fn(&DirectRow) -> u64), ("bytes", |row| row.bytes)] {
            let name = format!("zirconia_{scope}_direct_{unit}");
            head(out, &name, "counter", "Direct I/O by part, or by the reason why it was not direct");
            for (labels, rows) in &owners {
                for row in rows {
                    let _ = writeln!(out, "{name}_total{{{labels},part=\"{}\"}} {}", row.name, value(row));
                }
            }
        }
    }
}

/// States of a provider that are told one by one.
const PROVIDER_STATES: [&str; 5] = ["active", "starting", "down", "distrusted", "absent"];

/// Tells which pools use which provider, and the counters of each provider once.
fn of_accelerators(out: &mut String, pools: &[PoolView]) {
    head(out, "zirconia_zia_provider_state", "gauge", "1 for the state that the pool's provider is in");
    let mut providers: Vec<&AcceleratorView> = Vec::new();
    for (pool, own) in pools.iter().filter_map(|pool| Some((pool, pool.accelerator.as_ref()?))) {
        for state in PROVIDER_STATES {
            let labels = format!("pool=\"{}\",provider=\"{}\",state=\"{state}\"", escaped(&pool.name), escaped(&own.provider));
            let _ = writeln!(out, "zirconia_zia_provider_state{{{labels}}} {}", u8::from(own.state == state));
        }
        if !providers.iter().any(|known| known.provider == own.provider) {
            providers.push(own);
        }
    }
    head(out, "zirconia_zia", "counter", "The provider's statistic of this name, over all pools that use it");
    for own in &providers {
        for (name, count) in own.counters.iter().filter(|(_, count)| *count > 0) {
            let _ = writeln!(out, "zirconia_zia_total{{provider=\"{}\",counter=\"{name}\"}} {count}", escaped(&own.provider));
        }
    }
    head(out, "zirconia_zia_breaker_trips", "counter", "How often the operation was switched off after failures");
    for (own, (operation, _, trips)) in providers.iter().flat_map(|own| own.breakers.iter().map(move |breaker| (own, breaker))) {
        let provider = escaped(&own.provider);
        let _ = writeln!(out, "zirconia_zia_breaker_trips_total{{provider=\"{provider}\",operation=\"{operation}\"}} {trips}");
    }
    head(out, "zirconia_zia_breaker_open", "gauge", "1 while the operation is switched off or being probed");
    for (own, (operation, state, _)) in providers.iter().flat_map(|own| own.breakers.iter().map(move |breaker| (own, breaker))) {
        let (provider, is_open) = (escaped(&own.provider), u8::from(*state != "closed"));
        let _ = writeln!(out, "zirconia_zia_breaker_open{{provider=\"{provider}\",operation=\"{operation}\"}} {is_open}");
    }
}

/// Vdevs of every pool with their labels.
fn flat(vdevs: &[IostatVdev]) -> Vec<(String, &IostatVdev)> {
    fn walk<'a>(pool: &str, vdev: &'a IostatVdev, all: &mut Vec<(String, &'a IostatVdev)>) {
        all.push((format!("pool=\"{pool}\",vdev=\"{}\",type=\"{}\"", escaped(&vdev.name), vdev.kind), vdev));
        vdev.children.iter().for_each(|child| walk(pool, child, all));
    }
    let mut all = Vec::new();
    vdevs.iter().for_each(|root| walk(&escaped(&root.name), root, &mut all));
    all
}

fn of_vdevs(out: &mut String, vdevs: &[IostatVdev]) {
    let all = flat(vdevs);
    let both = VDEV_COUNTS.iter().map(|metric| (metric, "counter", "_total")).chain(VDEV_SIZES.iter().map(|metric| (metric, "gauge", "")));
    for ((name, help, value), kind, suffix) in both {
        head(out, name, kind, help);
        for (labels, vdev) in &all {
            if let Some(value) = value(vdev) {
                let _ = writeln!(out, "{name}{suffix}{{{labels}}} {value}");
            }
        }
    }
    let mut last = "";
    for (name, direction, source) in WAITS {
        if name != last {
            head(out, name, "histogram", "Time that I/Os took");
            last = name;
        }
        for (labels, vdev) in &all {
            let counts = vdev.extended.get(source).map(Vec::as_slice).unwrap_or_default();
            let labels = format!("{labels},direction=\"{direction}\"");
            for shift in WAIT_SHIFTS {
                let below: u64 = counts.iter().take(shift).sum();
                let seconds = (1u64 << shift) as f64 / 1e9;
                let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{seconds}\"}} {below}");
            }
            let all: u64 = counts.iter().sum();
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {all}\n{name}_count{{{labels}}} {all}");
        }
    }
}
