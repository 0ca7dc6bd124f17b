//! How the engine runs a pool, and what a pool consists of once it was read or made, before anything of it runs.

use crate::spa::Spa;
use crate::spa::multihost::MultihostTunables;
use crate::sync::brt::SharedBlocks;
use crate::sync::dedup::DedupReader;
use crate::sync::kept::KeptMaps;
use crate::sync::log_spacemap::LoggedChanges;
use crate::sync::space_log::SpaceLog;
use crate::sync::spacemap::SpaceMaps;
use crate::zia::Providers;
use dmu::TxgConfig;
use dsl::{IntentLogs, ReplayFiles};
use kernels::checksum::Salt;
use kstat::EventSink;
use ondisk::{ObjectId, ObjsetType};
use scan::ScanTunables;
use std::sync::Arc;

/// Reading of a state that an import which may go back is about to take, where the pool is to be written (OpenZFS: `spa_load_verify`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadVerify {
    /// All metadata is read, and space maps are held against blocks; else nothing is verified, and no contents are read either (OpenZFS:
    /// `spa_load_verify_metadata`).
    pub metadata: bool,
    /// Contents of files and volumes are read, too: those of the state's last txgs, or all of them (OpenZFS: `spa_load_verify_data`). Those that
    /// are damaged are counted, and refuse no state.
    pub data: bool,
    /// Share of [`Runtime::arc_max`] that may be under way of them, as a shift (OpenZFS: `spa_load_verify_shift`).
    pub shift: u32,
}

impl Default for LoadVerify {
    /// OpenZFS's: everything is read, with a 16th of the cache.
    fn default() -> LoadVerify {
        LoadVerify { metadata: true, data: true, shift: 4 }
    }
}

/// Settings by which the engine runs a pool.
#[derive(Clone)]
pub struct Runtime {
    /// Number of parallel allocators (OpenZFS: `spa_num_allocators`).
    pub allocators: usize,
    /// Hard budget of the cache in bytes (OpenZFS: `zfs_arc_max`).
    pub arc_max: u64,
    /// Tunables of transaction groups.
    pub txg: TxgConfig,
    /// Receiver of the pool's events.
    pub events: Arc<dyn EventSink>,
    /// Source of accelerators; None: stages of the pipeline all run in software.
    pub providers: Option<Providers>,
    /// Tunables of scans, from the beginning; a sequential rebuild is suspended with them.
    pub scans: ScanTunables,
    /// Replayer of intent logs of file systems; None: a pool with one that holds something can only be imported read-only.
    pub replay: Option<Arc<dyn ReplayFiles>>,
    /// Number of top-level vdevs that a pool may lack when it is imported read-only (OpenZFS: `zfs_max_missing_tvds`).
    pub max_missing_tops: usize,
    /// Read-only imports read all space maps, too, and not their headers alone, as those for writing do (OpenZFS: `metaslab_debug_load`).
    pub load_space_maps: bool,
    /// Imports take a device of the pool for the vdev that has its path, where no label says to be that one, and what it says to be is not in the pool:
    /// as in a state from before a mirror was made of it (OpenZFS: `vdev_validate_skip`). Nobody verifies that it has what the vdev had.
    pub trusts_paths: bool,
    /// Reading of states that an import may go back to.
    pub load_verify: LoadVerify,
    /// Tunables of the protection against a second host, from the beginning.
    pub multihost: MultihostTunables,
    /// Pools with the feature `log_spacemap` write log space maps, and new ones get it; else logs that are found are folded back into the metaslabs'
    /// own maps.
    pub log_space_maps: bool,
    /// True to let no removal of a vdev make progress, from the beginning ([`RemovalParameters`](crate::RemovalParameters)).
    pub removals_suspended: bool,
    /// Moved bytes after which expansions make no progress, from the beginning ([`ExpandParameters`](crate::ExpandParameters)); 0 for no bound.
    pub reflow_bytes_max: u64,
}

impl Runtime {
    /// True when somebody is there who replays the logs of object sets of this kind, beside those of volumes.
    pub(crate) fn replays(&self, kind: ObjsetType) -> bool {
        self.replay.as_deref().is_some_and(|files| files.knows(kind))
    }

    /// Defaults: 4 allocators, a cache of 256 MiB, OpenZFS's txg tunables, no events, no accelerators, nobody who knows files,
    /// all space maps read, no log space maps.
    pub fn new() -> Runtime {
        Runtime {
            allocators: 4,
            arc_max: 256 << 20,
            txg: TxgConfig::default(),
            events: Arc::new(kstat::NoEvents),
            providers: None,
            scans: ScanTunables::default(),
            replay: None,
            max_missing_tops: 0,
            load_space_maps: true,
            trusts_paths: false,
            load_verify: LoadVerify::default(),
            multihost: MultihostTunables::default(),
            log_space_maps: false,
            removals_suspended: false,
            reflow_bytes_max: 0,
        }
    }
}
impl Default for Runtime {
    fn default() -> Self {
        Runtime::new()
    }
}

/// A pool before it runs.
pub(crate) struct Base {
    pub spa: Spa,
    pub maps: SpaceMaps,
    pub config_object: ObjectId,
    /// The list of frees that another writer deferred.
    pub deferred: Option<ObjectId>,
    /// Changes of log space maps that are to be folded back.
    pub logged: Option<LoggedChanges>,
    /// Log space maps, of a pool that is to write them.
    pub space_log: Option<SpaceLog>,
    /// Tables of shared blocks.
    pub shared: SharedBlocks,
    /// Tables of deduplication.
    pub dedup: Option<Arc<DedupReader>>,
    /// Space maps of a checkpoint.
    pub kept: KeptMaps,
    /// Salt that the pool is to get.
    pub new_salt: Option<Arc<Salt>>,
    /// Intent logs: those claimed, and those with nothing in them, to be given up with the first txg.
    pub logs: IntentLogs,
    /// Labels that did not verify.
    pub damaged_labels: usize,
    /// Uberblocks that did not verify.
    pub damaged_uberblocks: usize,
}
