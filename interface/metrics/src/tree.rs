//! The tree: which files there are, what they say, what writing to them does.

use crate::arcstats::arcstats;
use crate::dbufs::{dbufs, dbufstats};
use crate::memory::memory;
use crate::names::{ABDSTATS, DMU_TX, DNODESTATS, FM, VDEV_MIRROR_STATS, ZFETCHSTATS, ZIL, words};
use crate::{PARAMETERS, ParameterError, Parameters, Past, When};
use arc::Cache;
use dmu::{Objset, TxgManager};
use kstat::{Cursor, DebugLog, Listing, Stamp, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Version of OpenZFS whose behaviour this follows, as `sys/module/zfs/version` tells it.
const VERSION: &str = "2.3.2-zirconia";
/// Budget in bytes of a pool's cache unless told otherwise.
const ARC_MAX_DEFAULT: u64 = 256 << 20;

/// Count of direct I/O under one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectRow {
    /// Name of the count: `asked`, `direct_read`, …, or the reason why something was not direct.
    pub name: &'static str,
    /// Number of requests, or of parts of requests.
    pub requests: u64,
    /// Bytes of the requests.
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

/// View of a mounted file system with its counters (OpenZFS: `dataset_kstats.c`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatasetView {
    /// Full name of the dataset.
    pub name: String,
    /// Number of the dataset's object set.
    pub objset: u64,
    /// Counters `writes nwritten reads nread nunlinks nunlinked`, in this order.
    pub counts: [u64; 6],
    /// Counters of its intent log by their names; those that are not there are 0.
    pub log: Vec<(&'static str, u64)>,
    /// Counts of the file system's direct I/O.
    pub direct: Vec<DirectRow>,
}

/// View of a pool's provider (Z.I.A.); the numbers are the provider's, over all pools that use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceleratorView {
    /// Name of the provider.
    pub provider: String,
    /// State of the provider: `active`, `starting`, `down`, `distrusted` or `absent`.
    pub state: &'static str,
    /// Counters per operation: `compress_blocks`, `compress_fallback_full` ….
    pub counters: Vec<(String, u64)>,
    /// Names of operations, the states of their breakers, and how often these opened.
    pub breakers: Vec<(&'static str, &'static str, u64)>,
}

/// View of an open pool.
#[derive(Clone)]
pub struct PoolView {
    /// Name of the pool.
    pub name: String,
    /// Guid of the pool.
    pub guid: u64,
    /// State of the pool: ONLINE, DEGRADED, SUSPENDED, …
    pub state: String,
    /// Cache of the pool, and through it the I/O pipeline.
    pub cache: Cache,
    /// Object sets whose dnodes can be looked up: the pool's meta object set, and those of mounted file systems.
    pub objsets: Vec<Arc<Objset>>,
    /// Transaction groups of the pool.
    pub txgs: Arc<TxgManager>,
    /// Newest heartbeats of the pool (OpenZFS: `spa_mmp_history`).
    pub heartbeats: Arc<dyn Listing>,
    /// Provider of accelerated stages, if the pool names one.
    pub accelerator: Option<AcceleratorView>,
    /// Mounted file systems of the pool.
    pub datasets: Vec<DatasetView>,
    /// Counts of the pool's direct I/O.
    pub direct: Vec<DirectRow>,
}

/// Port to what there is to show.
pub trait Source: Send + Sync {
    /// Monotonic time in nanoseconds.
    fn now_ns(&self) -> u64;
    /// Views of the open pools.
    fn pools(&self) -> Vec<PoolView>;
    /// Counters of caches whose pools were closed; None where nobody keeps them.
    fn past(&self) -> Option<&Past> {
        None
    }
    /// Parameters of the process.
    fn parameters(&self) -> &Parameters;
    /// Files of the module's folder that never change, by their paths in it, with their texts (OpenZFS: `zfs_sysfs.c`); None where nobody tells.
    fn module_facts(&self) -> Option<&BTreeMap<String, String>> {
        None
    }
    /// Makes what runs follow a parameter that was set.
    fn parameter_changed(&self, name: &str, value: u64);
}

/// Reason why writing to a file changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// Path of no file.
    NotFound,
    /// File cannot be written.
    ReadOnly,
    /// Text makes no sense.
    Invalid,
}

/// Tree of files by path: `spl/kstat/zfs/…` and `module/zfs/…`.
#[derive(Clone)]
pub struct Tree(Arc<dyn Source>);

/// Path below which the statistics lie.
pub(crate) const KSTAT: &str = "spl/kstat/zfs";
/// Path below which version, parameters and facts lie.
pub(crate) const MODULE: &str = "module/zfs";
const POOL_FILES: [&str; 6] = ["direct", "guid", "iostats", "multihost", "state", "txgs"];
const OWN: &str = "zirconia";
const DEBUG: &str = "dbgmsg";
const IMPORTS: &str = "import_progress";
/// Names of the statistics of the process.
const GLOBALS: [&str; 14] = [
    "abdstats",
    "arcstats",
    DEBUG,
    "dbufs",
    "dbufstats",
    "dmu_tx",
    "dnodestats",
    "fm",
    IMPORTS,
    "memory",
    "vdev_mirror_stats",
    "zfetchstats",
    "zil",
    OWN,
];

impl Tree {
    /// Makes the tree of `source`.
    pub fn new(source: Arc<dyn Source>) -> Tree {
        Tree(source)
    }

    /// Paths of all files.
    pub fn paths(&self) -> Vec<String> {
        [self.module_paths(), self.kstat_paths()].concat()
    }

    /// Paths of the files below `root`, and perhaps of others.
    pub(crate) fn paths_below(&self, root: &str) -> Vec<String> {
        if root.starts_with(MODULE) { self.module_paths() } else { self.kstat_paths() }
    }

    /// Paths of version, parameters and facts.
    fn module_paths(&self) -> Vec<String> {
        let parameters = PARAMETERS.iter().map(|parameter| format!("parameters/{}", parameter.name));
        let facts = self.0.module_facts().into_iter().flat_map(BTreeMap::keys).cloned();
        let mut paths: Vec<String> = parameters.chain(facts).map(|path| format!("{MODULE}/{path}")).collect();
        paths.push(format!("{MODULE}/version"));
        paths.sort();
        paths
    }

    /// Paths of the statistics.
    fn kstat_paths(&self) -> Vec<String> {
        let globals = GLOBALS.iter().filter(|name| **name != DEBUG || DebugLog::get().is_some());
        let mut paths: Vec<String> = globals.map(|name| format!("{KSTAT}/{name}")).collect();
        for pool in self.0.pools() {
            paths.extend(POOL_FILES.map(|file| format!("{KSTAT}/{}/{file}", pool.name)));
            paths.extend(pool.accelerator.iter().map(|_| format!("{KSTAT}/{}/zia", pool.name)));
            for kind in ["objset", "direct"] {
                paths.extend(pool.datasets.iter().map(|dataset| format!("{KSTAT}/{}/{kind}-{:#x}", pool.name, dataset.objset)));
            }
        }
        paths.sort();
        paths
    }

    /// Text that a file shows now; None when there is no such file.
    pub fn read(&self, path: &str) -> Option<String> {
        if let Some(listing) = self.listing(path) {
            // Nobody can have missed anything of what is read in one go.
            let text = Cursor::new(listing).read(0, usize::MAX).unwrap_or_default();
            return String::from_utf8(text).ok();
        }
        if let Some(name) = path.strip_prefix(KSTAT).and_then(|rest| rest.strip_prefix('/')) {
            return self.kstat(name);
        }
        match path.strip_prefix(MODULE)?.strip_prefix('/')? {
            "version" => Some(format!("{VERSION}\n")),
            rest => match rest.strip_prefix("parameters/") {
                Some(name) => self.0.parameters().text(name).map(|value| format!("{value}\n")),
                None => self.0.module_facts()?.get(rest).cloned(),
            },
        }
    }

    /// Records of a file that is a list.
    pub fn listing(&self, path: &str) -> Option<Arc<dyn Listing>> {
        let name = path.strip_prefix(KSTAT)?.strip_prefix('/')?;
        if name == DEBUG {
            return DebugLog::get().map(|log| log.messages() as Arc<dyn Listing>);
        }
        let (pool, list) = name.split_once('/')?;
        let pools = self.0.pools();
        let pool = pools.iter().find(|known| known.name == pool)?;
        match list {
            "txgs" => Some(pool.txgs.history().clone()),
            "multihost" => Some(pool.heartbeats.clone()),
            _ => None,
        }
    }

    fn kstat(&self, name: &str) -> Option<String> {
        let stamp = Stamp { id: 1, created_ns: 0, now_ns: self.0.now_ns() };
        if let Some((pool, file)) = name.split_once('/') {
            let pools = self.0.pools();
            return pools.iter().find(|known| known.name == pool)?.file(file, stamp);
        }
        let counted = |list: &'static str, counts: &[(&str, u64)]| stamp.named(of_list(list, counts));
        match name {
            "arcstats" => Some(stamp.named(self.arcstats(&self.0.pools()))),
            "abdstats" => Some(stamp.named(abdstats())),
            "zfetchstats" => Some(stamp.named(zfetchstats())),
            "memory" => Some(stamp.named(memory(&self.0.pools()).into_iter().map(|(name, bytes)| (name, Value::U64(bytes))))),
            "dbufs" => Some(stamp.raw(&dbufs(&self.0.pools()))),
            "dbufstats" => Some(stamp.named(dbufstats(&self.0.pools()).iter().map(|(name, value)| (name.as_str(), value.clone())))),
            OWN => Some(stamp.named(own())),
            // A list without the header of a statistic, as there.
            IMPORTS => Some(kstat::imports_text()),
            "dmu_tx" => Some(counted(DMU_TX, &dmu::tx_counts())),
            "dnodestats" => Some(counted(DNODESTATS, &dmu::dnode_counts())),
            "fm" => {
                let [dropped, known] = zio::untold_errors();
                Some(counted(FM, &[("erpt-dropped", dropped), ("erpt-duplicates", known)]))
            }
            "vdev_mirror_stats" => {
                let [found, not_found] = vdev::mirror_choices();
                Some(counted(VDEV_MIRROR_STATS, &[("preferred_found", found), ("preferred_not_found", not_found)]))
            }
            "zil" => Some(counted(ZIL, &zil::zil_counts())),
            _ => None,
        }
    }

    /// True when a file takes writes.
    pub fn is_writable(&self, path: &str) -> bool {
        if let Some(name) = path.strip_prefix(MODULE).and_then(|rest| rest.strip_prefix("/parameters/")) {
            return PARAMETERS.iter().any(|parameter| parameter.name == name && parameter.when != When::Fixed);
        }
        let name = path.strip_prefix(KSTAT).unwrap_or_default();
        ["/iostats", "/multihost", "/txgs", "/dbgmsg"].iter().any(|end| name.ends_with(end))
    }

    /// True when only the owner may read a file: messages have names of files and commands of everybody in them.
    pub fn is_private(&self, path: &str) -> bool {
        path.strip_prefix(KSTAT) == Some("/dbgmsg")
    }

    /// Writes to a file: sets a parameter, forgets the records of a list, or zeroes a pool's `iostats`.
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
        if let Some(listing) = self.listing(path) {
            listing.clear();
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

    /// Values of `arcstats`.
    pub(crate) fn arcstats(&self, pools: &[PoolView]) -> Vec<(&'static str, Value)> {
        let caches: Vec<Cache> = pools.iter().map(|pool| pool.cache.clone()).collect();
        let set = self.0.parameters().get("zfs_arc_max").unwrap_or(0);
        let past = self.0.past().map(Past::sums).unwrap_or_default();
        arcstats(&caches, if set == 0 { ARC_MAX_DEFAULT } else { set }, past)
    }
}

/// Names of a list in its order, with their counts; what is not counted is 0.
fn of_list(list: &'static str, counts: &[(&str, u64)]) -> Vec<(&'static str, Value)> {
    let value = |name: &str| counts.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count);
    words(list).map(|name| (name, Value::U64(value(name)))).collect()
}

/// Values of `abdstats`: all buffers are linear here.
fn abdstats() -> Vec<(&'static str, Value)> {
    let memory = abd::memory_stats();
    let value = |name| match name {
        "linear_data_size" => memory.live_bytes,
        "scatter_chunk_waste" => memory.mapped_bytes.saturating_sub(memory.live_bytes + memory.cached_bytes),
        _ => 0,
    };
    words(ABDSTATS).map(|name| (name, Value::U64(value(name)))).collect()
}

/// Values of `zfetchstats`: reads ahead are not counted while under way.
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

/// Values that only this program counts.
pub(crate) fn own() -> [(&'static str, Value); 10] {
    let (ring, memory, requests) = (device::ring_stats(), abd::memory_stats(), fuse::request_counts());
    [
        ("uring_fixed_ios", ring.fixed_ios),
        ("uring_plain_ios", ring.plain_ios),
        ("uring_registered_bytes", ring.registered_bytes),
        ("uring_refused_registrations", ring.refused_registrations),
        ("abd_live_bytes", memory.live_bytes),
        ("abd_mapped_bytes", memory.mapped_bytes),
        ("abd_cached_bytes", memory.cached_bytes),
        ("abd_copied_bytes", memory.copied_bytes),
        ("fuse_requests_read", requests.by_read),
        ("fuse_requests_uring", requests.by_ring),
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

    /// Rows of `iostats`.
    pub(crate) fn iostats(&self) -> Vec<(String, u64)> {
        self.cache.zio().iostats().rows()
    }
}

impl AcceleratorView {
    /// Text of `zia`: provider and state, its counters, its breakers. OpenZFS has no such statistic.
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
    /// Rows of `objset-…`.
    fn rows(&self) -> Vec<(&str, Value)> {
        let names = ["writes", "nwritten", "reads", "nread", "nunlinks", "nunlinked"];
        let mut rows = vec![("dataset_name", Value::Text(self.name.clone()))];
        rows.extend(names.into_iter().zip(self.counts.map(Value::U64)));
        let counted = |name: &str| self.log.iter().find(|(of, _)| *of == name).map_or(0, |(_, count)| *count);
        rows.extend(words(ZIL).map(|name| (name, Value::U64(counted(name)))));
        rows
    }
}
