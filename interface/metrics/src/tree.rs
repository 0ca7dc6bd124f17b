//! The tree: which files there are, what they say, what writing to them does.

use crate::arcstats::arcstats;
use crate::memory::memory;
use crate::names::{ABDSTATS, ZEROS, ZFETCHSTATS, ZIL, words};
use crate::{PARAMETERS, ParameterError, Parameters, When};
use arc::Cache;
use dmu::TxgManager;
use kstat::{Stamp, Value};
use std::sync::Arc;

/// Version of OpenZFS whose behaviour this follows, as `sys/module/zfs/version` tells it.
const VERSION: &str = "2.3.2-zirconia";
/// Budget of a pool's cache unless told otherwise.
const ARC_MAX_DEFAULT: u64 = 256 << 20;

/// One count of direct I/O.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectRow {
    /// What: `asked`, `direct_read`, …, or the reason why something was not direct.
    pub name: &'static str,
    /// Requests, or parts of requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Rows of direct I/O as a statistic shows them; OpenZFS has no such statistic.
fn direct_rows(stamp: Stamp, dataset: Option<&str>, rows: &[DirectRow]) -> String {
    let both =
        |row: &DirectRow| [("requests", row.requests), ("bytes", row.bytes)].map(|(unit, value)| (format!("{}_{unit}", row.name), value));
    let rows: Vec<(String, u64)> = rows.iter().flat_map(both).collect();
    let name = dataset.map(|name| ("dataset_name", Value::Text(name.to_string())));
    stamp.named(name.into_iter().chain(rows.iter().map(|(name, value)| (name.as_str(), Value::U64(*value)))))
}

/// A mounted file system with its counters (OpenZFS: `dataset_kstats.c`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatasetView {
    /// Full name.
    pub name: String,
    /// Number of its object set.
    pub objset: u64,
    /// `writes nwritten reads nread nunlinks nunlinked`, in this order.
    pub counts: [u64; 6],
    /// Its direct I/O.
    pub direct: Vec<DirectRow>,
}

/// A pool's provider (Z.I.A.); the numbers are the provider's, over all pools that use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceleratorView {
    /// Its name.
    pub provider: String,
    /// `active`, `down` or `absent`.
    pub state: &'static str,
    /// Counters per operation: `compress_blocks`, `compress_fallback_full` ….
    pub counters: Vec<(String, u64)>,
    /// Operations, the states of their breakers, and how often these opened.
    pub breakers: Vec<(&'static str, &'static str, u64)>,
}

/// An open pool.
#[derive(Clone)]
pub struct PoolView {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: u64,
    /// ONLINE, DEGRADED, SUSPENDED, …
    pub state: String,
    /// Its cache, and through it its I/O pipeline.
    pub cache: Cache,
    /// Its transaction groups.
    pub txgs: Arc<TxgManager>,
    /// Its provider of accelerated stages, if it names one.
    pub accelerator: Option<AcceleratorView>,
    /// Its mounted file systems.
    pub datasets: Vec<DatasetView>,
    /// Its direct I/O.
    pub direct: Vec<DirectRow>,
}

/// Port: what there is to show.
pub trait Source: Send + Sync {
    /// Monotonic time.
    fn now_ns(&self) -> u64;
    /// The open pools.
    fn pools(&self) -> Vec<PoolView>;
    /// The parameters.
    fn parameters(&self) -> &Parameters;
    /// A parameter was set: makes what runs follow.
    fn parameter_changed(&self, name: &str, value: u64);
}

/// Why writing to a file changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// No such file.
    NotFound,
    /// The file cannot be written.
    ReadOnly,
    /// The text makes no sense.
    Invalid,
}

/// Files by path: `spl/kstat/zfs/…` and `module/zfs/…`.
#[derive(Clone)]
pub struct Tree(Arc<dyn Source>);

/// Below this path lie the statistics.
pub(crate) const KSTAT: &str = "spl/kstat/zfs";
/// Below this path lie version and parameters.
pub(crate) const MODULE: &str = "module/zfs";
const POOL_FILES: [&str; 5] = ["direct", "guid", "iostats", "state", "txgs"];
const OWN: &str = "zirconia";

impl Tree {
    /// The tree of `source`.
    pub fn new(source: Arc<dyn Source>) -> Tree {
        Tree(source)
    }

    /// Paths of all files.
    pub fn paths(&self) -> Vec<String> {
        let globals = ["arcstats", "abdstats", "zfetchstats", "memory", OWN].into_iter().chain(ZEROS.iter().map(|(name, _)| *name));
        let mut paths: Vec<String> = globals.map(|name| format!("{KSTAT}/{name}")).collect();
        for pool in self.0.pools() {
            paths.extend(POOL_FILES.map(|file| format!("{KSTAT}/{}/{file}", pool.name)));
            paths.extend(pool.accelerator.iter().map(|_| format!("{KSTAT}/{}/zia", pool.name)));
            for kind in ["objset", "direct"] {
                paths.extend(pool.datasets.iter().map(|dataset| format!("{KSTAT}/{}/{kind}-{:#x}", pool.name, dataset.objset)));
            }
        }
        paths.push(format!("{MODULE}/version"));
        paths.extend(PARAMETERS.iter().map(|parameter| format!("{MODULE}/parameters/{}", parameter.name)));
        paths.sort();
        paths
    }

    /// What a file says now; None when there is no such file.
    pub fn read(&self, path: &str) -> Option<String> {
        if let Some(name) = path.strip_prefix(KSTAT).and_then(|rest| rest.strip_prefix('/')) {
            return self.kstat(name);
        }
        match path.strip_prefix(MODULE)?.strip_prefix('/')? {
            "version" => Some(format!("{VERSION}\n")),
            rest => self.0.parameters().text(rest.strip_prefix("parameters/")?).map(|value| format!("{value}\n")),
        }
    }

    fn kstat(&self, name: &str) -> Option<String> {
        let stamp = Stamp { id: 1, created_ns: 0, now_ns: self.0.now_ns() };
        if let Some((pool, file)) = name.split_once('/') {
            let pools = self.0.pools();
            return pools.iter().find(|known| known.name == pool)?.file(file, stamp);
        }
        let zeros = |list: &'static str| stamp.named(words(list).map(|name| (name, Value::U64(0))));
        match name {
            "arcstats" => Some(stamp.named(self.arcstats(&self.0.pools()))),
            "abdstats" => Some(stamp.named(abdstats())),
            "zfetchstats" => Some(stamp.named(zfetchstats())),
            "memory" => Some(stamp.named(memory(&self.0.pools()).into_iter().map(|(name, bytes)| (name, Value::U64(bytes))))),
            OWN => Some(stamp.named(own())),
            other => ZEROS.iter().find(|(known, _)| *known == other).map(|(_, list)| zeros(list)),
        }
    }

    /// True when a file takes writes.
    pub fn is_writable(&self, path: &str) -> bool {
        if let Some(name) = path.strip_prefix(MODULE).and_then(|rest| rest.strip_prefix("/parameters/")) {
            return PARAMETERS.iter().any(|parameter| parameter.name == name && parameter.when != When::Fixed);
        }
        path.strip_prefix(KSTAT).is_some_and(|rest| rest.ends_with("/iostats"))
    }

    /// Writes to a file: sets a parameter, or zeroes a pool's `iostats`.
    pub fn write(&self, path: &str, text: &str) -> Result<(), WriteError> {
        if let Some(name) = path.strip_prefix(MODULE).and_then(|rest| rest.strip_prefix("/parameters/")) {
            let value = self.0.parameters().set(name, text).map_err(|error| match error {
                ParameterError::Unknown => WriteError::NotFound,
                ParameterError::Invalid => WriteError::Invalid,
                ParameterError::Fixed => WriteError::ReadOnly,
            })?;
            self.0.parameter_changed(name, value);
            return Ok(());
        }
        let pool =
            path.strip_prefix(KSTAT).and_then(|rest| rest.strip_prefix('/')?.strip_suffix("/iostats")).ok_or(WriteError::ReadOnly)?;
        let pools = self.0.pools();
        let pool = pools.iter().find(|known| known.name == pool).ok_or(WriteError::NotFound)?;
        pool.cache.zio().iostats().reset();
        Ok(())
    }

    pub(crate) fn source(&self) -> &dyn Source {
        &*self.0
    }

    /// `arcstats`.
    pub(crate) fn arcstats(&self, pools: &[PoolView]) -> Vec<(&'static str, Value)> {
        let caches: Vec<Cache> = pools.iter().map(|pool| pool.cache.clone()).collect();
        let set = self.0.parameters().get("zfs_arc_max").unwrap_or(0);
        arcstats(&caches, if set == 0 { ARC_MAX_DEFAULT } else { set })
    }
}

/// `abdstats`: all buffers are linear here.
fn abdstats() -> Vec<(&'static str, Value)> {
    let memory = abd::memory_stats();
    let value = |name| match name {
        "linear_data_size" => memory.live_bytes,
        "scatter_chunk_waste" => memory.mapped_bytes.saturating_sub(memory.live_bytes + memory.cached_bytes),
        _ => 0,
    };
    words(ABDSTATS).map(|name| (name, Value::U64(value(name)))).collect()
}

/// `zfetchstats`: reads ahead are not counted while under way.
fn zfetchstats() -> Vec<(&'static str, Value)> {
    let stats = dmu::zfetch_stats();
    let value = |name| match name {
        "hits" => stats.hits,
        "future" => stats.future,
        "stride" => stats.stride,
        "past" => stats.past,
        "misses" => stats.misses,
        "max_streams" => stats.max_streams,
        "io_issued" => stats.io_issued,
        _ => 0,
    };
    words(ZFETCHSTATS).map(|name| (name, Value::U64(value(name)))).collect()
}

/// What only this program counts.
pub(crate) fn own() -> [(&'static str, Value); 8] {
    let (ring, memory) = (device::ring_stats(), abd::memory_stats());
    [
        ("uring_fixed_ios", ring.fixed_ios),
        ("uring_plain_ios", ring.plain_ios),
        ("uring_registered_bytes", ring.registered_bytes),
        ("uring_refused_registrations", ring.refused_registrations),
        ("abd_live_bytes", memory.live_bytes),
        ("abd_mapped_bytes", memory.mapped_bytes),
        ("abd_cached_bytes", memory.cached_bytes),
        ("abd_copied_bytes", memory.copied_bytes),
    ]
    .map(|(name, value)| (name, Value::U64(value)))
}

impl PoolView {
    fn file(&self, file: &str, stamp: Stamp) -> Option<String> {
        match file {
            // These two are printed without a header (`KSTAT_FLAG_NO_HEADERS`).
            "state" => Some(format!("{}\n", self.state)),
            "guid" => Some(format!("{}\n", self.guid)),
            "iostats" => Some(stamp.named(self.iostats().iter().map(|(name, value)| (name.as_str(), Value::U64(*value))))),
            "txgs" => Some(stamp.raw(&self.txgs_table())),
            "direct" => Some(direct_rows(stamp, None, &self.direct)),
            "zia" => self.accelerator.as_ref().map(|accelerator| accelerator.file(stamp)),
            objset => {
                let (kind, id) = objset.split_once("-0x")?;
                let id = u64::from_str_radix(id, 16).ok()?;
                let dataset = self.datasets.iter().find(|dataset| dataset.objset == id)?;
                match kind {
                    "objset" => Some(stamp.named(dataset.rows())),
                    "direct" => Some(direct_rows(stamp, Some(&dataset.name), &dataset.direct)),
                    _ => None,
                }
            }
        }
    }

    /// The rows of `iostats`.
    pub(crate) fn iostats(&self) -> Vec<(String, u64)> {
        self.cache.zio().iostats().rows()
    }

    /// The last synced and the open transaction group (OpenZFS: `spa_txg_history_show`); their times are not kept.
    fn txgs_table(&self) -> String {
        let line = |cells: [String; 12]| {
            let widths = [8, 16, 5, 12, 12, 12, 8, 8, 12, 12, 12, 12];
            let cells: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            cells.join(" ") + "\n"
        };
        let head = ["txg", "birth", "state", "ndirty", "nread", "nwritten", "reads", "writes", "otime", "qtime", "wtime", "stime"];
        let row = |txg: u64, state: &str, dirty: u64| {
            let zeros = |_: usize| "0".to_string();
            let mut cells: [String; 12] = std::array::from_fn(zeros);
            (cells[0], cells[2], cells[3]) = (txg.to_string(), state.to_string(), dirty.to_string());
            line(cells)
        };
        let (synced, open) = (self.txgs.synced_txg().0, self.txgs.open_txg().0);
        line(head.map(String::from)) + &row(synced, "C", 0) + &row(open, "O", self.txgs.dirty_bytes())
    }
}

impl AcceleratorView {
    /// `zia`: provider and state, its counters, its breakers. OpenZFS has no such statistic.
    fn file(&self, stamp: Stamp) -> String {
        let text = |text: &str| Value::Text(text.to_string());
        let mut rows = vec![("provider".to_string(), text(&self.provider)), ("state".to_string(), text(self.state))];
        rows.extend(self.counters.iter().map(|(name, count)| (name.clone(), Value::U64(*count))));
        for (operation, state, trips) in &self.breakers {
            rows.push((format!("{operation}_breaker"), text(state)));
            rows.push((format!("{operation}_breaker_trips"), Value::U64(*trips)));
        }
        stamp.named(rows.iter().map(|(name, value)| (name.as_str(), value.clone())))
    }
}

impl DatasetView {
    /// The rows of `objset-…`; there is no intent log yet.
    fn rows(&self) -> Vec<(&str, Value)> {
        let names = ["writes", "nwritten", "reads", "nread", "nunlinks", "nunlinked"];
        let mut rows = vec![("dataset_name", Value::Text(self.name.clone()))];
        rows.extend(names.into_iter().zip(self.counts.map(Value::U64)));
        rows.extend(words(ZIL).map(|name| (name, Value::U64(0))));
        rows
    }
}
