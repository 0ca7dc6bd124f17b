//! Requests and reports about pools, their vdevs, scans and history.

use crate::{NewVdevs, Property, SweepReport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `zpool create`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolCreate {
    /// Name of the pool.
    pub pool: String,
    /// What it is made of.
    #[serde(flatten)]
    pub new: NewVdevs,
    /// `-o`: pool properties, `feature@…` included.
    pub properties: BTreeMap<String, String>,
    /// `-O`: properties of the root dataset.
    pub fs_properties: BTreeMap<String, String>,
    /// `-m`.
    pub mountpoint: Option<String>,
    /// `-R`.
    pub altroot: Option<String>,
    /// `-f`.
    pub force: bool,
    /// `-n`: only check and report the layout.
    pub dry_run: bool,
    /// `-d`: enable no feature that is not asked for.
    pub no_features: bool,
    /// `-t`: a name for now; the devices get `pool`.
    #[serde(default)]
    pub temporary_name: Option<String>,
}

/// One pool and whether to force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolTarget {
    /// Name.
    pub pool: String,
    /// `-f`.
    pub force: bool,
    /// `-F`: by force, and devices and cache file say what they said, as if the machine had stopped.
    #[serde(default)]
    pub hard: bool,
}

/// `zpool reguid`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolReguid {
    /// Name.
    pub pool: String,
    /// `-g`; None: a random one.
    pub guid: Option<u64>,
}

/// `zpool sync`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolSync {
    /// Names; none means all.
    pub pools: Vec<String>,
    /// `-f`: a txg is written also when there is nothing to write.
    pub force: bool,
}

/// Some pools; none named means all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolNames {
    /// Names.
    pub pools: Vec<String>,
}

/// Where to look for pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImportSearch {
    /// `-d`: directories or devices; empty means the default directories.
    pub paths: Vec<String>,
    /// `-D`: destroyed pools instead.
    pub destroyed: bool,
    /// `-c`: only the pools that this cache file names, where it says that their devices are.
    #[serde(default)]
    pub cache_file: Option<String>,
}

/// `zpool import POOL`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolImport {
    /// Where to look.
    pub search: ImportSearch,
    /// Name or guid; None with `all`.
    pub pool: Option<String>,
    /// New name.
    pub new_name: Option<String>,
    /// `-t`: the new name is for this import only.
    #[serde(default)]
    pub temporary: bool,
    /// `-a`.
    pub all: bool,
    /// `-N`: mount nothing.
    pub no_mount: bool,
    /// `-f`.
    pub force: bool,
    /// `-R`.
    pub altroot: Option<String>,
    /// `-o`: temporary properties (`readonly=on`, …).
    pub properties: BTreeMap<String, String>,
    /// `-F`: go back to an older txg when the newest is damaged.
    pub rewind: bool,
    /// `-n` with `-F`: only say whether that would work.
    pub dry_run: bool,
    /// `-m`: without log devices that are missing.
    #[serde(default)]
    pub missing_log: bool,
}

/// A pool found on devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImportCandidate {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: u64,
    /// ONLINE, DEGRADED, UNAVAIL or FAULTED.
    pub state: String,
    /// It was destroyed.
    #[serde(default)]
    pub is_destroyed: bool,
    /// Why it cannot be imported as it is, or what to know before.
    pub status: Option<String>,
    /// What to do.
    pub action: Option<String>,
    /// Message id (`ZFS-8000-…`).
    #[serde(default)]
    pub message_id: Option<String>,
    /// What its owner wrote on it.
    #[serde(default)]
    pub comment: Option<String>,
    /// Root of its tree.
    pub vdevs: VdevReport,
    /// Features that this program lacks.
    pub unsupported_features: Vec<String>,
    /// It has top-level vdevs of which nothing was found.
    #[serde(default)]
    pub has_more_devices: bool,
}

/// Which pools, and how much of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolQuery {
    /// Names; empty means all.
    pub pools: Vec<String>,
    /// List damaged files.
    pub errors: bool,
}

/// State of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolReport {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: u64,
    /// Last synced txg.
    pub txg: u64,
    /// Health: ONLINE, DEGRADED, FAULTED, UNAVAIL, SUSPENDED.
    pub state: String,
    /// `status:` paragraph, with its line breaks.
    pub status: Option<String>,
    /// `action:` paragraph.
    pub action: Option<String>,
    /// Message id (`ZFS-8000-…`).
    pub message_id: Option<String>,
    /// The status is about what the pool could have, not about trouble.
    #[serde(default)]
    pub only_remarks: bool,
    /// Scrub or resilver.
    pub scan: Option<ScanReport>,
    /// Devices on which background work waits for others.
    #[serde(default)]
    pub throttled: Vec<Throttled>,
    /// The provider that stages of the pipeline run on, when the pool names one.
    #[serde(default)]
    pub accelerator: Option<AcceleratorReport>,
    /// Sequential rebuilds of top-level vdevs, the last or current of each.
    #[serde(default)]
    pub rebuilds: Vec<RebuildReport>,
    /// Error scrub, when no scrub or resilver came after it.
    #[serde(default)]
    pub error_scrub: Option<ErrorScrubReport>,
    /// Root of the tree.
    pub vdevs: VdevReport,
    /// The pool's spares: AVAIL, INUSE or UNAVAIL.
    #[serde(default)]
    pub spares: Vec<VdevReport>,
    /// The pool's cache devices.
    #[serde(default)]
    pub caches: Vec<VdevReport>,
    /// Number of damaged blocks or files known.
    pub error_count: u64,
    /// Damaged files, when asked for.
    pub errors: Vec<String>,
    /// Why nobody knows the damaged blocks: the error log cannot be read.
    #[serde(default)]
    pub errors_unavailable: Option<String>,
    /// Every pool property and feature that is known.
    pub properties: Vec<Property>,
    /// Why the stored properties are missing: their object cannot be read.
    #[serde(default)]
    pub properties_unavailable: Option<String>,
}

/// What a pool's provider does. The numbers are the provider's, over all pools that use it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AcceleratorReport {
    /// Its name.
    pub provider: String,
    /// `active`, `down`, `distrusted`, or `absent` when no provider of that name is loaded.
    pub state: String,
    /// The operation that it was caught lying at, when it is distrusted.
    #[serde(default)]
    pub lied_at: Option<String>,
    /// Operations that it did, by stage.
    pub operations: BTreeMap<String, u64>,
    /// Operations that were done in software instead, by reason.
    pub fallbacks: BTreeMap<String, u64>,
    /// Blocks that began again from the original data.
    pub restarts: u64,
    /// Results that were checked.
    pub verified: u64,
    /// Of those, wrong ones.
    pub verify_failures: u64,
    /// Operations that are switched off for a while, after failures.
    pub breakers_open: Vec<String>,
}

/// A device on which background work (scrub, resilver, rebuild, …) waits for reads and writes that somebody waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Throttled {
    /// Its path, or its guid.
    pub device: String,
    /// `credit`, `share`, `yield` or `calibration`.
    pub reason: String,
    /// Background I/Os that wait.
    pub waiting: u64,
    /// Background I/Os that the device may have at a time, in thousandths.
    pub share_milli: u32,
    /// p99 of others' I/O without background work beside it, in nanoseconds, where it is known.
    pub alone_p99_ns: Option<u64>,
    /// The same with background work beside it.
    pub beside_p99_ns: Option<u64>,
    /// What that is to stay within.
    pub limit_ns: Option<u64>,
}

/// A vdev with its counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VdevReport {
    /// As shown: pool name, `mirror-0`, path.
    pub name: String,
    /// root, mirror, raidz, draid, file, disk, dspare, missing, hole …
    pub kind: String,
    /// Guid.
    pub guid: u64,
    /// ONLINE, DEGRADED, FAULTED, OFFLINE, UNAVAIL, REMOVED; AVAIL, INUSE of a spare.
    pub state: String,
    /// Remark after the counters (`cannot open`, `was /dev/…`).
    pub note: Option<String>,
    /// Device path of a leaf.
    pub path: Option<String>,
    /// A vdev of the intent log.
    #[serde(default)]
    pub is_log: bool,
    /// log2 of the sector size (top-levels).
    #[serde(default)]
    pub ashift: u32,
    /// Bytes allocated (top-levels and root).
    pub allocated_bytes: u64,
    /// Size in bytes (top-levels and root).
    pub size_bytes: u64,
    /// Fragmentation in percent (top-levels and root).
    pub fragmentation_percent: Option<u64>,
    /// Read errors.
    pub read_errors: u64,
    /// Write errors.
    pub write_errors: u64,
    /// Checksum errors.
    pub checksum_errors: u64,
    /// Slow I/Os.
    pub slow_ios: u64,
    /// Direct I/Os whose buffers were changed meanwhile (top-levels).
    #[serde(default)]
    pub dio_verify_errors: u64,
    /// Initializing (leaves).
    #[serde(default)]
    pub initialize: Option<SweepReport>,
    /// Trimming (leaves).
    #[serde(default)]
    pub trim: Option<SweepReport>,
    /// The device can't be trimmed (leaves).
    #[serde(default)]
    pub trim_unsupported: bool,
    /// Allocatable bytes, labels left out; of RAID-Z with parity.
    #[serde(default)]
    pub asize_bytes: u64,
    /// Bytes that its devices have gained and it does not use yet.
    #[serde(default)]
    pub expand_bytes: u64,
    /// Bytes of the device (leaves).
    #[serde(default)]
    pub psize_bytes: u64,
    /// Parity columns (RAID-Z, dRAID).
    #[serde(default)]
    pub parity: u64,
    /// Reads, writes and trims since the pool was opened, of all leaves below.
    #[serde(default)]
    pub io_ops: [u64; 3],
    /// Their bytes.
    #[serde(default)]
    pub io_bytes: [u64; 3],
    /// Device id, physical path and enclosure path, where they are known (leaves).
    #[serde(default)]
    pub identity: [Option<String>; 3],
    /// Whether new blocks may be allocated here (top-levels).
    #[serde(default)]
    pub allocating: Option<bool>,
    /// Properties that were set.
    #[serde(default)]
    pub properties: Vec<Property>,
    /// Children.
    pub children: Vec<VdevReport>,
}

/// Progress of a scan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScanReport {
    /// `scrub` or `resilver`.
    pub function: String,
    /// `scanning`, `finished`, `canceled`, `paused`.
    pub state: String,
    /// Seconds since the epoch.
    pub start_time: i64,
    /// Seconds since the epoch; 0 while it runs.
    pub end_time: i64,
    /// Seconds since the epoch of the pause; 0 when not paused.
    pub pause_time: i64,
    /// Bytes to examine.
    pub to_examine_bytes: u64,
    /// Bytes examined.
    pub examined_bytes: u64,
    /// Bytes read and verified.
    pub issued_bytes: u64,
    /// Bytes examined that need not be read: a resilver passes over what no device lacks.
    #[serde(default)]
    pub skipped_bytes: u64,
    /// Bytes repaired.
    pub repaired_bytes: u64,
    /// Errors that could not be repaired.
    pub errors: u64,
    /// Bytes read per second, recently.
    pub rate_bytes_per_second: u64,
    /// Bytes examined per second, recently.
    #[serde(default)]
    pub examined_bytes_per_second: u64,
    /// Seconds until the end at the recent rate.
    #[serde(default)]
    pub seconds_left: Option<u64>,
    /// Seconds since the epoch when it began, or went on after an import.
    #[serde(default)]
    pub pass_start: i64,
    /// Bytes examined since then.
    #[serde(default)]
    pub pass_examined_bytes: u64,
    /// Bytes read since then.
    #[serde(default)]
    pub pass_issued_bytes: u64,
    /// Seconds that it was paused since then.
    #[serde(default)]
    pub pass_paused_seconds: u64,
}

/// Progress of an error scrub.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorScrubReport {
    /// `scanning`, `finished`, `canceled`, `paused`.
    pub state: String,
    /// Seconds since the epoch.
    pub start_time: i64,
    /// Seconds since the epoch; 0 while it runs.
    pub end_time: i64,
    /// Seconds since the epoch of the pause; 0 when not paused.
    pub pause_time: i64,
    /// Blocks still to be read.
    pub to_examine: u64,
    /// Blocks read.
    pub examined: u64,
}

/// Progress of a sequential rebuild.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RebuildReport {
    /// Name of the top-level vdev: `mirror-0`, a leaf's path.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// `active`, `canceled`, `complete`.
    pub state: String,
    /// Seconds since the epoch.
    pub start_time: i64,
    /// Seconds since the epoch; 0 while it runs.
    pub end_time: i64,
    /// Milliseconds that it ran.
    pub scan_time_ms: u64,
    /// Allocated bytes looked at.
    pub scanned_bytes: u64,
    /// Allocated bytes read.
    pub issued_bytes: u64,
    /// Bytes written to devices that lacked them.
    pub rebuilt_bytes: u64,
    /// Allocated bytes that there are.
    pub to_scan_bytes: u64,
    /// Parts that could not be rebuilt.
    pub errors: u64,
    /// Milliseconds since the import or the beginning.
    pub pass_time_ms: u64,
    /// Allocated bytes looked at in that time.
    pub pass_scanned_bytes: u64,
    /// Allocated bytes read in that time.
    pub pass_issued_bytes: u64,
    /// Allocated bytes that no device lacked.
    pub pass_skipped_bytes: u64,
}

/// `zpool set`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolSet {
    /// Pool.
    pub pool: String,
    /// Property.
    pub property: String,
    /// Value.
    pub value: String,
    /// The vdev whose property it is, by guid; None for the pool's own.
    #[serde(default)]
    pub vdev: Option<u64>,
}

/// What `zpool scrub` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ScrubAction {
    /// Start or resume.
    Start,
    /// `-C`: what was written since the last scrub.
    StartFromLast,
    /// `-e`: start or resume reading again what the error log has.
    StartErrors,
    /// `zpool resilver`: the resilver that runs begins again.
    Resilver,
    /// `-p`.
    Pause,
    /// `-s`.
    Stop,
}

/// `zpool scrub`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolScrub {
    /// Pool.
    pub pool: String,
    /// Action.
    pub action: ScrubAction,
}

/// `zpool clear`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolClear {
    /// Pool.
    pub pool: String,
    /// One device, or all.
    pub device: Option<String>,
}

/// `zpool history`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolHistory {
    /// Names; empty means all.
    pub pools: Vec<String>,
    /// `-i`: internal events too.
    pub internal: bool,
}

/// History of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolHistoryReport {
    /// Pool.
    pub pool: String,
    /// Records, oldest first.
    pub records: Vec<HistoryRecord>,
}

/// One history record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HistoryRecord {
    /// Seconds since the epoch.
    pub time: i64,
    /// The command line or internal event, as shown.
    pub text: String,
    /// An internal event.
    pub internal: bool,
    /// `-l`: user, host.
    pub who: Option<String>,
}

/// Counters since the pool was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IostatReport {
    /// Monotonic nanoseconds at the snapshot.
    pub time_ns: u64,
    /// One root per pool.
    pub pools: Vec<IostatVdev>,
}

/// Counters of a vdev; those of an interior vdev are the sums of its leaves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IostatVdev {
    /// As shown: the pool's name, `mirror-0`, a leaf's path.
    pub name: String,
    /// root, mirror, raidz, file, disk …
    pub kind: String,
    /// Guid.
    pub guid: u64,
    /// Nanoseconds since the pool was opened: what the counters cover. Only for the root.
    pub age_ns: u64,
    /// Bytes allocated; only for root and top-levels.
    pub allocated_bytes: Option<u64>,
    /// Bytes free; only for root and top-levels.
    pub free_bytes: Option<u64>,
    /// Reads.
    pub read_operations: u64,
    /// Writes.
    pub write_operations: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// OpenZFS's `vdev_stats_ex` by name: latency histograms (nanoseconds) and request-size histograms (bytes) by powers of two,
    /// and queue depths (one number each).
    pub extended: BTreeMap<String, Vec<u64>>,
    /// Children.
    pub children: Vec<IostatVdev>,
}

/// `zpool wait`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolWait {
    /// Pool.
    pub pool: String,
    /// Activities (`scrub`, `resilver`, `free`, …); empty means all.
    pub activities: Vec<String>,
    /// Only the `initialize` and `trim` of these devices; empty means those of the whole pool.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Longest time to wait in this call, in milliseconds; ask again until nothing is busy.
    pub deadline_ms: u64,
}

/// `zpool labelclear`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabelClear {
    /// Device.
    pub device: String,
    /// `-f`: also when it belongs to an exported or foreign pool.
    pub force: bool,
}
