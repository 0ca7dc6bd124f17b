//! Requests and reports about pools, their vdevs, scans and history.

use crate::{AcceleratorReport, NewVdevs, Property, SweepReport, UserKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `zpool create`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolCreate {
    /// Name of the pool.
    pub pool: String,
    /// Vdevs of the new pool.
    #[serde(flatten)]
    pub new: NewVdevs,
    /// `-o`: pool properties, `feature@…` included.
    pub properties: BTreeMap<String, String>,
    /// `-O`: properties of the root dataset.
    pub fs_properties: BTreeMap<String, String>,
    /// `-m`: mountpoint of the root dataset.
    pub mountpoint: Option<String>,
    /// `-R`: alternate root.
    pub altroot: Option<String>,
    /// `-f`: devices that hold something else, too.
    pub force: bool,
    /// `-n`: only check and report the layout.
    pub dry_run: bool,
    /// `-d`: enable no feature that is not asked for.
    pub no_features: bool,
    /// `-t`: name for now; the devices get `pool`.
    #[serde(default)]
    pub temporary_name: Option<String>,
    /// Key of an encrypted root dataset: with its property `keyformat`.
    #[serde(default)]
    pub key: Option<UserKey>,
}

/// Pool to destroy or export, and whether by force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolTarget {
    /// Name of the pool.
    pub pool: String,
    /// `-f`: by force.
    pub force: bool,
    /// `-F`: by force, and devices and cache file say what they said, as if the machine had stopped.
    #[serde(default)]
    pub hard: bool,
}

/// `zpool reguid`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolReguid {
    /// Name of the pool.
    pub pool: String,
    /// `-g`: guid to be given; None: a random one.
    pub guid: Option<u64>,
}

/// `zpool checkpoint`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolCheckpoint {
    /// Name of the pool.
    pub pool: String,
    /// `-d`: the checkpoint that there is goes; else one is made.
    pub discard: bool,
}

impl PoolCheckpoint {
    /// First words of a request that fails: `cannot checkpoint 'tank'`.
    pub fn what(&self) -> String {
        let verb = if self.discard { "discard checkpoint in" } else { "checkpoint" };
        format!("cannot {verb} '{}'", self.pool)
    }
}

/// `zpool split`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolSplit {
    /// Name of the pool.
    pub pool: String,
    /// Name of the pool that is made of it.
    pub new_pool: String,
    /// Guids of the devices that leave it, one of each mirror.
    pub devices: Vec<u64>,
    /// `-R`: alternate root; with one the new pool stays imported.
    pub altroot: Option<String>,
    /// `-o`: properties of the new pool.
    pub properties: BTreeMap<String, String>,
    /// `-o` without a value: options of the mounts of the new pool, where it stays imported.
    pub mount_options: Vec<String>,
}

/// `zpool sync`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolSync {
    /// Names of pools; none means all.
    pub pools: Vec<String>,
    /// `-f`: a txg is written also when there is nothing to write.
    pub force: bool,
}

/// `zpool freeze`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolFreeze {
    /// Name of the pool.
    pub pool: String,
}

/// `zpool prefetch -t ddt`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolPrefetch {
    /// Name of the pool.
    pub pool: String,
}

/// Names of some pools; none named means all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolNames {
    /// Names of pools; none means all.
    pub pools: Vec<String>,
}

/// Places to look for pools at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImportSearch {
    /// `-d`: directories or devices to search; empty means the default directories.
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
    /// Places to look for the pool at.
    pub search: ImportSearch,
    /// Name or guid of the pool; None with `all`.
    pub pool: Option<String>,
    /// New name of the pool.
    pub new_name: Option<String>,
    /// `-t`: the new name is for this import only.
    #[serde(default)]
    pub temporary: bool,
    /// `-a`: all pools that are found.
    pub all: bool,
    /// `-N`: mount nothing.
    pub no_mount: bool,
    /// `-f`: also when another system may use the pool.
    pub force: bool,
    /// `-R`: alternate root.
    pub altroot: Option<String>,
    /// `-o`: temporary properties (`readonly=on`, …).
    pub properties: BTreeMap<String, String>,
    /// `-F`: go back to a state of the last transaction groups when the newest cannot be opened.
    pub rewind: bool,
    /// `-X` with `-F`: to any state that is left.
    #[serde(default)]
    pub extreme: bool,
    /// `-T`: to the newest state of this transaction group or one before it.
    #[serde(default)]
    pub txg: Option<u64>,
    /// `-n` with `-F` or `-T`: only say what would be done, and what each state has.
    pub dry_run: bool,
    /// `-m`: without log devices that are missing.
    #[serde(default)]
    pub missing_log: bool,
    /// `--rewind-to-checkpoint`: in the state that the pool's checkpoint keeps.
    #[serde(default)]
    pub checkpoint: bool,
}

/// Pool found on devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImportCandidate {
    /// Name of the pool.
    pub name: String,
    /// Guid of the pool.
    pub guid: u64,
    /// Health of the pool: ONLINE, DEGRADED, UNAVAIL or FAULTED.
    pub state: String,
    /// True when the pool was destroyed.
    #[serde(default)]
    pub is_destroyed: bool,
    /// Reason why the pool cannot be imported as it is, or what to know before.
    pub status: Option<String>,
    /// Advice what to do.
    pub action: Option<String>,
    /// Message id (`ZFS-8000-…`).
    #[serde(default)]
    pub message_id: Option<String>,
    /// Comment that its owner wrote on it.
    #[serde(default)]
    pub comment: Option<String>,
    /// Root of its tree of vdevs.
    pub vdevs: VdevReport,
    /// Names of features that this program lacks.
    pub unsupported_features: Vec<String>,
    /// True when the pool has top-level vdevs of which nothing was found.
    #[serde(default)]
    pub has_more_devices: bool,
}

/// Pools to report, and how much of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolQuery {
    /// Names of pools; empty means all.
    pub pools: Vec<String>,
    /// True to list damaged files.
    pub errors: bool,
}

/// State of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolReport {
    /// Name of the pool.
    pub name: String,
    /// Guid of the pool.
    pub guid: u64,
    /// Last synced txg.
    pub txg: u64,
    /// Health of the pool: ONLINE, DEGRADED, FAULTED, UNAVAIL, SUSPENDED.
    pub state: String,
    /// `status:` paragraph of `zpool status`, with its line breaks.
    pub status: Option<String>,
    /// `action:` paragraph of `zpool status`.
    pub action: Option<String>,
    /// Message id (`ZFS-8000-…`).
    pub message_id: Option<String>,
    /// True when the status is about what the pool could have, not about trouble.
    #[serde(default)]
    pub only_remarks: bool,
    /// Progress of the running or last scrub or resilver.
    pub scan: Option<ScanReport>,
    /// Checkpoint of the pool, or the one that is being discarded.
    #[serde(default)]
    pub checkpoint: Option<CheckpointReport>,
    /// Devices on which background work waits for others.
    #[serde(default)]
    pub throttled: Vec<Throttled>,
    /// Provider that stages of the pipeline run on, when the pool names one.
    #[serde(default)]
    pub accelerator: Option<AcceleratorReport>,
    /// Sequential rebuilds of top-level vdevs, the last or current of each.
    #[serde(default)]
    pub rebuilds: Vec<RebuildReport>,
    /// Progress of the running or last removal of a top-level vdev.
    #[serde(default)]
    pub removal: Option<RemovalReport>,
    /// Progress of the running or last expansion of a RAID-Z vdev.
    #[serde(default)]
    pub expansion: Option<ExpansionReport>,
    /// Progress of the error scrub, when no scrub or resilver came after it.
    #[serde(default)]
    pub error_scrub: Option<ErrorScrubReport>,
    /// Root of the tree of vdevs.
    pub vdevs: VdevReport,
    /// Spares of the pool: AVAIL, INUSE or UNAVAIL.
    #[serde(default)]
    pub spares: Vec<VdevReport>,
    /// Cache devices of the pool.
    #[serde(default)]
    pub caches: Vec<VdevReport>,
    /// Tables of deduplication, taken together; None where there are none.
    #[serde(default)]
    pub dedup: Option<DedupReport>,
    /// Number of damaged blocks or files known.
    pub error_count: u64,
    /// Names of damaged files, when asked for.
    pub errors: Vec<String>,
    /// Reason why nobody knows the damaged blocks: the error log cannot be read.
    #[serde(default)]
    pub errors_unavailable: Option<String>,
    /// Properties and features of the pool, every one that is known.
    pub properties: Vec<Property>,
    /// Reason why the stored properties are missing: their object cannot be read.
    #[serde(default)]
    pub properties_unavailable: Option<String>,
}

/// Tables of deduplication of a pool, taken together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DedupReport {
    /// Number of entries.
    pub entries: u64,
    /// Bytes that the tables take on the devices.
    pub disk_bytes: u64,
    /// Bytes of the tables' blocks in memory.
    pub memory_bytes: u64,
    /// Bytes of them that are in memory now.
    #[serde(default)]
    pub cached_bytes: u64,
    /// Sums of the entries by the highest bit of the number of references: blocks, their logical, physical and deflated bytes, and the same four counted as
    /// often as they are referred to.
    pub histogram: Vec<[u64; 8]>,
}

/// Device on which background work (scrub, resilver, rebuild, …) waits for reads and writes that somebody waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Throttled {
    /// Path of the device, or its guid.
    pub device: String,
    /// Reason of the wait: `credit`, `share`, `yield` or `calibration`.
    pub reason: String,
    /// Number of background I/Os that wait.
    pub waiting: u64,
    /// Number of background I/Os that the device may have at a time, in thousandths.
    pub share_milli: u32,
    /// p99 of others' I/O without background work beside it, in nanoseconds, where it is known.
    pub alone_p99_ns: Option<u64>,
    /// p99 of others' I/O with background work beside it, in nanoseconds.
    pub beside_p99_ns: Option<u64>,
    /// Nanoseconds that the p99 is to stay within.
    pub limit_ns: Option<u64>,
}

/// Vdev with its counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VdevReport {
    /// Name as shown: pool name, `mirror-0`, path.
    pub name: String,
    /// Kind of the vdev: root, mirror, raidz, draid, file, disk, dspare, missing, hole …
    pub kind: String,
    /// Guid of the vdev.
    pub guid: u64,
    /// State of the vdev: ONLINE, DEGRADED, FAULTED, OFFLINE, UNAVAIL, REMOVED; AVAIL, INUSE of a spare.
    pub state: String,
    /// Remark after the counters (`cannot open`, `was /dev/…`).
    pub note: Option<String>,
    /// Device path of a leaf.
    pub path: Option<String>,
    /// True for a vdev of the intent log.
    #[serde(default)]
    pub is_log: bool,
    /// Class of blocks that it is for, where it is not for all: `special`, `dedup` (top-levels and their children).
    #[serde(default)]
    pub bias: Option<String>,
    /// log2 of the sector size (top-levels).
    #[serde(default)]
    pub ashift: u32,
    /// Bytes allocated (top-levels and root).
    pub allocated_bytes: u64,
    /// Size in bytes (top-levels and root).
    pub size_bytes: u64,
    /// Bytes allocated for the sake of a checkpoint only (top-levels).
    #[serde(default)]
    pub checkpoint_bytes: u64,
    /// Fragmentation of free space in percent, where it is known (top-levels).
    pub fragmentation_percent: Option<u64>,
    /// Number of read errors.
    pub read_errors: u64,
    /// Number of write errors.
    pub write_errors: u64,
    /// Number of checksum errors.
    pub checksum_errors: u64,
    /// Number of slow I/Os.
    pub slow_ios: u64,
    /// Number of direct I/Os whose buffers were changed meanwhile (top-levels).
    #[serde(default)]
    pub dio_verify_errors: u64,
    /// Progress of initializing (leaves).
    #[serde(default)]
    pub initialize: Option<SweepReport>,
    /// Progress of trimming (leaves).
    #[serde(default)]
    pub trim: Option<SweepReport>,
    /// True when the device can't be trimmed (leaves).
    #[serde(default)]
    pub trim_unsupported: bool,
    /// Allocatable bytes, labels left out; of RAID-Z with parity.
    #[serde(default)]
    pub asize_bytes: u64,
    /// Bytes that the devices have gained and the vdev does not use yet.
    #[serde(default)]
    pub expand_bytes: u64,
    /// Bytes of the device (leaves).
    #[serde(default)]
    pub psize_bytes: u64,
    /// Number of parity columns (RAID-Z, dRAID).
    #[serde(default)]
    pub parity: u64,
    /// Numbers of reads, writes and trims since the pool was opened, of all leaves below.
    #[serde(default)]
    pub io_ops: [u64; 3],
    /// Bytes of those reads, writes and trims.
    #[serde(default)]
    pub io_bytes: [u64; 3],
    /// Device id, physical path and enclosure path, where they are known (leaves).
    #[serde(default)]
    pub identity: [Option<String>; 3],
    /// True while it gets another device (RAID-Z).
    #[serde(default)]
    pub is_expanding: bool,
    /// True when new blocks may be allocated here (top-levels).
    #[serde(default)]
    pub allocating: Option<bool>,
    /// Properties of the vdev that were set.
    #[serde(default)]
    pub properties: Vec<Property>,
    /// Number in the pool (top-levels).
    #[serde(default)]
    pub id: u64,
    /// Vdevs below this one.
    pub children: Vec<VdevReport>,
    /// Top-level vdevs that were removed, by their numbers: what was on them is on others (root).
    #[serde(default)]
    pub removed: Vec<VdevReport>,
}

impl VdevReport {
    /// The word of [`crate::VDEV_CLASSES`] that a top-level vdev is listed under; none of those for all blocks.
    pub fn class(&self) -> Option<&str> {
        class_of(self.is_log, self.bias.as_deref())
    }
}

impl IostatVdev {
    /// As [`VdevReport::class`]; `cache` for a cache device.
    pub fn class(&self) -> Option<&str> {
        if self.is_cache { Some("cache") } else { class_of(self.is_log, self.bias.as_deref()) }
    }
}

fn class_of(is_log: bool, bias: Option<&str>) -> Option<&str> {
    if is_log { Some("logs") } else { bias }
}

/// Progress of a scan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScanReport {
    /// Function of the scan: `scrub` or `resilver`.
    pub function: String,
    /// State of the scan: `scanning`, `finished`, `canceled`, `paused`.
    pub state: String,
    /// Seconds since the epoch when the scan began.
    pub start_time: i64,
    /// Seconds since the epoch when the scan ended; 0 while it runs.
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
    /// Number of errors that could not be repaired.
    pub errors: u64,
    /// Bytes read per second, recently.
    pub rate_bytes_per_second: u64,
    /// Bytes examined per second, recently.
    #[serde(default)]
    pub examined_bytes_per_second: u64,
    /// Seconds until the end at the recent rate.
    #[serde(default)]
    pub seconds_left: Option<u64>,
    /// Seconds since the epoch when the pass began, or went on after an import.
    #[serde(default)]
    pub pass_start: i64,
    /// Bytes examined since `pass_start`.
    #[serde(default)]
    pub pass_examined_bytes: u64,
    /// Bytes read since `pass_start`.
    #[serde(default)]
    pub pass_issued_bytes: u64,
    /// Seconds that the scan was paused since `pass_start`.
    #[serde(default)]
    pub pass_paused_seconds: u64,
}

/// Checkpoint of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckpointReport {
    /// True while it is being discarded: it cannot be gone back to any more.
    pub is_discarding: bool,
    /// Seconds since the epoch of the state that it keeps; 0 when that is not known any more.
    pub start_time: i64,
    /// Bytes that are allocated for its sake only.
    pub bytes: u64,
}

/// Progress of an error scrub.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorScrubReport {
    /// State of the error scrub: `scanning`, `finished`, `canceled`, `paused`.
    pub state: String,
    /// Seconds since the epoch when it began.
    pub start_time: i64,
    /// Seconds since the epoch when it ended; 0 while it runs.
    pub end_time: i64,
    /// Seconds since the epoch of the pause; 0 when not paused.
    pub pause_time: i64,
    /// Number of blocks still to be read.
    pub to_examine: u64,
    /// Number of blocks read.
    pub examined: u64,
}

/// Progress of the removal of a top-level vdev.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RemovalReport {
    /// Name of the top-level vdev: `mirror-1`, a leaf's path, `indirect-1` once it is removed.
    pub name: String,
    /// Number of the top-level vdev.
    pub vdev: u64,
    /// State of the removal: `active`, `canceled`, `finished`.
    pub state: String,
    /// Seconds since the epoch when the removal began.
    pub start_time: i64,
    /// Seconds since the epoch when the removal ended; 0 while it runs.
    pub end_time: i64,
    /// Allocated bytes that are to be copied.
    pub to_copy_bytes: u64,
    /// Allocated bytes that were copied.
    pub copied_bytes: u64,
    /// Bytes of memory that tell where the contents of removed vdevs are.
    pub mapping_bytes: u64,
}

/// Progress of the expansion of a RAID-Z vdev.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExpansionReport {
    /// Name of the top-level vdev: `raidz1-0`.
    pub name: String,
    /// Number of the top-level vdev.
    pub vdev: u64,
    /// State of the expansion: `active`, `finished`.
    pub state: String,
    /// Seconds since the epoch when the expansion began.
    pub start_time: i64,
    /// Seconds since the epoch when the expansion ended; 0 while it runs.
    pub end_time: i64,
    /// Allocated bytes of the vdev.
    pub to_reflow_bytes: u64,
    /// Bytes that were moved.
    pub reflowed_bytes: u64,
    /// True while it waits for a device to be whole again.
    pub is_waiting: bool,
}

/// Progress of a sequential rebuild.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RebuildReport {
    /// Name of the top-level vdev: `mirror-0`, a leaf's path.
    pub name: String,
    /// Guid of the top-level vdev.
    pub guid: u64,
    /// State of the rebuild: `active`, `canceled`, `complete`.
    pub state: String,
    /// Seconds since the epoch when the rebuild began.
    pub start_time: i64,
    /// Seconds since the epoch when the rebuild ended; 0 while it runs.
    pub end_time: i64,
    /// Milliseconds that the rebuild ran.
    pub scan_time_ms: u64,
    /// Allocated bytes looked at.
    pub scanned_bytes: u64,
    /// Allocated bytes read.
    pub issued_bytes: u64,
    /// Bytes written to devices that lacked them.
    pub rebuilt_bytes: u64,
    /// Allocated bytes that there are.
    pub to_scan_bytes: u64,
    /// Number of parts that could not be rebuilt.
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
    /// Name of the pool.
    pub pool: String,
    /// Name of the property.
    pub property: String,
    /// Value to set.
    pub value: String,
    /// Guid of the vdev whose property it is; None for the pool's own.
    #[serde(default)]
    pub vdev: Option<u64>,
}

/// Actions of `zpool scrub`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ScrubAction {
    /// Start or resume a scrub.
    Start,
    /// `-C`: start with what was written since the last scrub.
    StartFromLast,
    /// `-e`: start or resume reading again what the error log has.
    StartErrors,
    /// `zpool resilver`: the resilver that runs begins again.
    Resilver,
    /// `-p`: pause the scrub.
    Pause,
    /// `-s`: stop the scrub.
    Stop,
}

/// `zpool scrub`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolScrub {
    /// Name of the pool.
    pub pool: String,
    /// Action to take.
    pub action: ScrubAction,
}

/// `zpool clear`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolClear {
    /// Name of the pool.
    pub pool: String,
    /// Device to clear: its path, the last part of it, or its guid; None for all.
    pub device: Option<String>,
    /// `-F`: a pool that is not open may go back to a state of the last transaction groups when the newest cannot be opened.
    #[serde(default)]
    pub rewind: bool,
    /// `-n` with `-F`: only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// `zpool history`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolHistory {
    /// Names of pools; empty means all.
    pub pools: Vec<String>,
    /// `-i`: internal events too.
    pub internal: bool,
}

/// History of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolHistoryReport {
    /// Name of the pool.
    pub pool: String,
    /// Records of the history, oldest first.
    pub records: Vec<HistoryRecord>,
}

/// Record of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HistoryRecord {
    /// Time in seconds since the epoch.
    pub time: i64,
    /// Command line or internal event, as shown.
    pub text: String,
    /// True for an internal event.
    pub internal: bool,
    /// `-l`: user and host that it is from.
    pub who: Option<String>,
}

/// Counters of pools since they were opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IostatReport {
    /// Monotonic nanoseconds at the snapshot.
    pub time_ns: u64,
    /// Roots of the trees, one per pool.
    pub pools: Vec<IostatVdev>,
}

/// Counters of a vdev; those of an interior vdev are the sums of its leaves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IostatVdev {
    /// Name as shown: the pool's name, `mirror-0`, a leaf's path.
    pub name: String,
    /// Kind of the vdev: root, mirror, raidz, file, disk …
    pub kind: String,
    /// Guid of the vdev.
    pub guid: u64,
    /// Nanoseconds since the pool was opened: what the counters cover. Only for the root.
    pub age_ns: u64,
    /// True for a top-level vdev of the intent log.
    #[serde(default)]
    pub is_log: bool,
    /// Class of blocks that a top-level vdev is for, where it is not for all: `special`, `dedup`.
    #[serde(default)]
    pub bias: Option<String>,
    /// True for a cache device: it is a child of the root, which does not count it.
    #[serde(default)]
    pub is_cache: bool,
    /// Bytes allocated; only for root, top-levels and caches.
    pub allocated_bytes: Option<u64>,
    /// Bytes free; only for root, top-levels and caches.
    pub free_bytes: Option<u64>,
    /// Number of reads.
    pub read_operations: u64,
    /// Number of writes.
    pub write_operations: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// OpenZFS's `vdev_stats_ex` by name: latency histograms (nanoseconds) and request-size histograms (bytes) by powers of two,
    /// and queue depths (one number each).
    pub extended: BTreeMap<String, Vec<u64>>,
    /// Vdevs below this one.
    pub children: Vec<IostatVdev>,
}

/// `zpool wait`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolWait {
    /// Name of the pool.
    pub pool: String,
    /// Names of activities (`scrub`, `resilver`, `free`, …); empty means all.
    pub activities: Vec<String>,
    /// Devices whose `initialize` and `trim` alone are waited for; empty means those of the whole pool.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Longest time to wait in this call, in milliseconds; ask again until nothing is busy.
    pub deadline_ms: u64,
}

/// `zpool labelclear`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabelClear {
    /// Path of the device.
    pub device: String,
    /// `-f`: also when it belongs to an exported or foreign pool.
    pub force: bool,
}
