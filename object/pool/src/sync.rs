//! One txg's sync: datasets, sync tasks, then the MOS pass by pass until nothing changes any more, then labels and uberblock
//! (OpenZFS: `spa_sync`, `spa_sync_iterate_to_convergence`, `vdev_config_sync`).
//!
//! From pass 2 on, blocks born in the txg are rewritten in place, so that writing down the allocations of one pass makes ever
//! fewer allocations in the next. The lock `work` is held during the whole sync, across waits: only the sync takes it.

use crate::PoolError;
use crate::adapter::{Patience, PoolIo, WaitsFor};
use crate::attach::{Change, Detached};
use crate::config::{PoolFacts, guid_sum};
use crate::dtl;
use crate::labels::{ConfigBlock, Device, KnownRings, LabelWrite, do_all, flushed, read_labels, uberblock_writes};
use crate::log_spacemap::{self, LoggedChanges};
use crate::mos_objects::{process_deferred_frees, write_packed};
use crate::scrub::RESILVER_DEFER;
use crate::services::{ScanNews, Services};
use crate::spacemap::{AppendContext, SpaceMaps};
use crate::spares::AuxDevices;
use device::{DeviceError, DeviceOp};
use dmu::{IoTotals, Objset, SyncError, Tx, TxgSync};
use dsl::{DslPool, EmptyLogs};
use exec::{Mutex, RwLock};
use ondisk::{BlockPtr, Guid, ObjectId, Txg, Uberblock};
use scan::ScanFunction;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vdev::{Leaf, LeafId, VdevTree};
use zio::{Facts, FailMode, FaultError, IoKind, PoolView, Zio, ZioError};

/// More passes than any pool needs: something keeps changing.
const PASSES_MAX: u32 = 64;
/// Blocks of destroyed datasets freed in one txg unless told otherwise (OpenZFS: `zfs_async_block_max_blocks` is unlimited, but time is not).
const FREES_MAX: u64 = 100_000;
/// Top-level vdevs that get an uberblock when the configuration is unchanged (OpenZFS: `SPA_SYNC_MIN_VDEVS`).
const UBERBLOCK_TOPS: usize = 3;
/// Newest pool version; it has feature flags (OpenZFS: `SPA_VERSION`).
pub const VERSION: u64 = 5000;

/// Something above that takes part in every txg's sync: a scan.
pub trait SyncHook: Send + Sync {
    /// Called once per txg, after the sync tasks, in syncing context.
    fn sync(&self, tx: &Tx) -> Result<(), SyncError>;
}

/// The configuration as of now.
pub(crate) struct Config {
    pub tree: Arc<VdevTree>,
    pub devices: Vec<Option<Device>>,
    pub facts: PoolFacts,
    /// Labels and the config object must be written.
    pub dirty: bool,
    /// Devices grew: the labels at their new ends need all uberblocks.
    pub grown: bool,
    pub uberblock: Uberblock,
    pub fail_mode: FailMode,
    /// Spares and caches.
    pub aux: AuxDevices,
}

/// What only the sync touches.
pub(crate) struct Work {
    pub maps: SpaceMaps,
    pub config_object: ObjectId,
    /// The list of frees that another writer deferred.
    pub deferred: Option<ObjectId>,
    /// Changes of log space maps that are to be folded back.
    pub logged: Option<LoggedChanges>,
    /// Intent logs with nothing in them, to be given up with the first txg: later nobody could tell which of their blocks are in the
    /// space maps.
    pub empty_logs: EmptyLogs,
}

/// Why a txg is not on disk: from then on the pool changes nothing any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFailure {
    /// The txg; the one before is the newest on disk.
    pub txg: Txg,
    /// The block that could not be read or written, where it was for one: object set, object, level and number, and where it was looked for.
    pub block: Option<ZioError>,
    /// What went wrong, in words.
    pub why: String,
}

impl fmt::Display for SyncFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "txg {} could not be written: ", self.txg)?;
        match &self.block {
            Some(error) => fmt::Display::fmt(error, f),
            None => f.write_str(&self.why),
        }
    }
}

/// The pool's side of a txg.
pub(crate) struct Syncer {
    /// What ended the syncing for good.
    pub failure: Mutex<Option<SyncFailure>>,
    /// Blocks of destroyed datasets freed in one txg; 0 until somebody says how many.
    pub frees_max: AtomicU64,
    pub services: Arc<Services>,
    pub io: Arc<PoolIo>,
    pub mos: Arc<Objset>,
    pub dsl: Arc<DslPool>,
    pub config: Mutex<Config>,
    pub work: Mutex<Work>,
    pub hooks: RwLock<Vec<Arc<dyn SyncHook>>>,
    /// Changes of the tree that wait for the next sync.
    pub changes: Mutex<Vec<Change>>,
    /// Devices that left in the txg that is being synced.
    pub detached: Mutex<Vec<Detached>>,
}

impl Config {
    /// Takes over what `from` knows of the leaves' dirty time logs. What else changed in the meantime stays: only the sync
    /// writes logs, while states change at any time.
    pub fn take_dtls(&mut self, from: &VdevTree) {
        let mut tree = VdevTree::clone(&self.tree);
        for leaf in &mut tree.leaves {
            let Some(known) = from.leaf_by_guid(leaf.guid).map(|id| from.leaf(id)) else { continue };
            (leaf.dtl, leaf.missing_txgs) = (known.dtl, known.missing_txgs.clone());
            leaf.resilver_deferred = known.resilver_deferred;
            // A leaf that went away meanwhile takes part no longer.
            let usable = leaf.state.is_usable();
            leaf.resilver_txg = if usable { known.resilver_txg } else { Txg(0) };
            leaf.rebuild_txg = if usable { known.rebuild_txg } else { Txg(0) };
        }
        self.tree = Arc::new(tree);
    }
    /// Takes over the ZAPs that `from`, the same tree, has for vdevs.
    pub fn take_zaps(&mut self, from: &VdevTree) {
        let mut tree = VdevTree::clone(&self.tree);
        for (top, known) in tree.tops.iter_mut().zip(&from.tops) {
            top.zap = known.zap;
        }
        for leaf in &mut tree.leaves {
            leaf.zap = from.leaf_by_guid(leaf.guid).map_or(leaf.zap, |id| from.leaf(id).zap);
        }
        self.tree = Arc::new(tree);
    }
    /// What the pipeline must know of the configuration.
    pub fn view(&self, services: &Services) -> PoolView {
        PoolView {
            tree: self.tree.clone(),
            devices: self.devices.clone(),
            allocator: services.allocator.clone(),
            facts: Facts {
                guid: self.facts.guid,
                name: self.facts.name.clone(),
                writeable: services.writeable,
                embedded_data: services.features.is_enabled("com.delphix:embedded_data"),
                hole_birth: services.features.refs("com.delphix:hole_birth") != 0,
                fail_mode: self.fail_mode,
            },
        }
    }
}

impl TxgSync for Syncer {
    fn sync_txg(&self, txg: Txg) -> Result<(), SyncError> {
        self.io.take_failed();
        self.sync(txg).map_err(|error| {
            let why = error.to_string();
            let sync_error = error.into_sync();
            if sync_error != SyncError::Stopped {
                self.note_failure(SyncFailure { txg, block: self.io.take_failed(), why });
            }
            sync_error
        })
    }

    fn io_totals(&self) -> IoTotals {
        let leaves = 0..self.zio().view().tree.leaves.len() as u32;
        leaves.fold(IoTotals::default(), |sum, leaf| {
            let counts = self.zio().leaf_stats(LeafId(leaf)).counts();
            let of = |counts: &[u64; 4], kind: IoKind| counts[kind as usize];
            IoTotals {
                read_bytes: sum.read_bytes + of(&counts.bytes, IoKind::Read),
                written_bytes: sum.written_bytes + of(&counts.bytes, IoKind::Write),
                reads: sum.reads + of(&counts.ops, IoKind::Read),
                writes: sum.writes + of(&counts.ops, IoKind::Write),
            }
        })
    }
}

impl Syncer {
    /// Keeps why syncing ended, and says it: in the log, and as an event.
    fn note_failure(&self, failure: SyncFailure) {
        let name = self.services.name.read().clone();
        kstat::debug!("pool '{name}': {failure} ({})", failure.why);
        eprintln!("pool '{name}': {failure}");
        self.services.tell_sync_failed(&failure);
        *self.failure.lock() = Some(failure);
    }

    fn zio(&self) -> &Zio {
        self.io.cache().zio()
    }

    fn frees_max(&self) -> u64 {
        match self.frees_max.load(Ordering::Relaxed) {
            0 => FREES_MAX,
            blocks => blocks,
        }
    }

    fn sync(&self, txg: Txg) -> Result<(), PoolError> {
        let _patience = Patience::begin(WaitsFor::Block);
        let mut work = self.work.lock();
        let tx = Tx::syncing(txg);
        self.io.set_pass(1);
        self.apply_changes(&mut work, &tx)?;
        self.dsl.give_up_logs(std::mem::take(&mut work.empty_logs), &tx)?;
        self.dsl.sync_datasets(txg)?;
        // Whoever asked for a change gets the error, and what is freed or scanned can do without a block.
        let less_patient = Patience::begin(WaitsFor::Devices);
        self.dsl.run_sync_tasks(txg)?;
        drop(less_patient);
        self.dsl.sync_datasets(txg)?;
        let less_patient = Patience::begin(WaitsFor::Devices);
        self.dsl.sync_frees(txg, self.frees_max())?;
        for hook in self.hooks.read().clone() {
            hook.sync(&tx)?;
        }
        drop(less_patient);
        self.sync_after_import(&mut work, &tx)?;
        let told = self.services.history.sync(&tx)?;
        told.iter().for_each(|record| self.services.tell_history(record, txg));
        let (mut root, mut config_dirty) = self.converge(&mut work, &tx, 1)?;
        if root.is_some() || config_dirty {
            while self.flush(txg)? {
                let (again, dirty) = self.converge(&mut work, &tx, 2)?;
                (root, config_dirty) = (again.or(root), config_dirty | dirty);
            }
            // Labels have no other place to go to (OpenZFS: `spa_sync_rewrite_vdev_config`).
            while let Err(error) = self.commit(txg, root, config_dirty) {
                if !matches!(error, PoolError::Io(_)) || !self.zio().suspend_and_wait() {
                    return Err(error);
                }
            }
            self.label_detached();
            if config_dirty {
                self.services.tell("sysevent.fs.zfs.config_sync");
            }
        }
        self.services.allocator.sync_done(txg);
        Ok(())
    }

    /// What a previous writer left to be done.
    fn sync_after_import(&self, work: &mut Work, tx: &Tx) -> Result<(), PoolError> {
        if let Some(list) = work.deferred.take() {
            process_deferred_frees(&self.mos, self.io.as_ref(), list, tx)?;
        }
        if let Some(logged) = work.logged.take() {
            let context = AppendContext { allocator: &self.services.allocator, features: &self.services.features, pass: 2, tx };
            for delta in logged.deltas() {
                work.maps.append(&delta, &context)?;
            }
            let tree = self.config.lock().tree.clone();
            log_spacemap::destroy(&self.mos, &tree, &self.services.features, tx)?;
        }
        Ok(())
    }

    /// Writes down which leaves missed writes of which txgs, and what a scrub made good (OpenZFS: `vdev_dtl_sync`,
    /// `vdev_dtl_reassess`).
    fn sync_dtls(&self, work: &mut Work, tx: &Tx) -> Result<(), PoolError> {
        let missed = self.zio().take_missing();
        let news = std::mem::take(&mut *self.services.scan_news.lock());
        let rebuilds = std::mem::take(&mut *self.services.rebuild_news.lock());
        if missed.is_empty() && news == ScanNews::default() && rebuilds.is_empty() {
            return Ok(());
        }
        let mut tree = VdevTree::clone(&self.config.lock().tree);
        let (features, mut dirty) = (&self.services.features, news.resilver_began.is_some());
        if let Some(through) = news.resilver_began {
            dtl::resilver_began(&mut tree, through);
        }
        if news.resilver_began.is_some() || news.outcome.is_some() {
            dirty |= dtl::clear_deferred(&mut tree);
        }
        if let Some(outcome) = &news.outcome {
            // A leaf that refused writes may have refused the scrub's repairs; one that came back late missed a resilver's.
            let refused = |leaf: &Leaf| self.zio().leaf_stats_of(leaf.guid).counts().errors[IoKind::Write as usize] > 0;
            let whole = |leaf: &Leaf| match outcome.function {
                ScanFunction::Scrub => !refused(leaf),
                ScanFunction::Resilver => leaf.resilver_txg.0 != 0,
            };
            dirty |= dtl::excise(&self.mos, features, &mut tree, (outcome, &whole), tx)?;
        }
        for rebuild in &rebuilds {
            dtl::rebuilt(&self.mos, features, &mut tree, rebuild, tx)?;
            dirty = true;
        }
        dirty |= dtl::record(&self.mos, features, &mut tree, &missed, tx)?;
        let mut config = self.config.lock();
        config.dirty |= dirty;
        config.take_dtls(&tree);
        self.io.set_view(config.view(&self.services));
        drop(config);
        self.count_deferred(tx)?;
        if news.outcome.is_some() || !rebuilds.is_empty() { self.end_replacements(work, tx) } else { Ok(()) }
    }

    /// The feature is active while a leaf waits for a resilver (OpenZFS: `dsl_scan_sync`, `vdev_clear_resilver_deferred`).
    pub fn count_deferred(&self, tx: &Tx) -> Result<(), PoolError> {
        let waiting = self.config.lock().tree.leaves.iter().any(|leaf| leaf.resilver_deferred);
        let active = self.services.features.refs(RESILVER_DEFER) != 0;
        match (waiting, active) {
            (true, false) => self.services.features.add(RESILVER_DEFER, 1, tx),
            (false, true) => self.services.features.add(RESILVER_DEFER, -1, tx),
            _ => Ok(()),
        }
    }

    /// Writes the config object when the configuration changed; true when it did.
    fn sync_config(&self, work: &mut Work, tx: &Tx) -> Result<bool, PoolError> {
        let stale = self.services.features.take_labels_stale();
        let (facts, tree, dirty) = {
            let mut config = self.config.lock();
            if stale {
                config.facts.mos_features = self.services.features.mos_features();
            }
            let dirty = std::mem::take(&mut config.dirty) || stale;
            (config.facts.clone(), config.tree.clone(), dirty)
        };
        if dirty {
            write_packed(&self.mos, work.config_object, &facts.mos_config(&tree, tx.txg()), tx)?;
        }
        Ok(dirty)
    }

    /// Makes durable what was written. What leaves that did not flush may lack is to be in their logs with this txg: true when it is not,
    /// and the MOS has to be synced once more.
    fn flush(&self, txg: Txg) -> Result<bool, PoolError> {
        let mut is_news = false;
        loop {
            let flushed = self.zio().flush_wait();
            let tree = self.config.lock().tree.clone();
            for leaf in self.zio().take_unflushed() {
                is_news |= tree.leaf_by_guid(leaf).is_some_and(|id| !tree.leaf(id).lacks(txg));
                self.zio().note_missing(leaf, txg);
            }
            if flushed.is_ok() {
                return Ok(is_news);
            }
            if !self.zio().suspend_and_wait() {
                return Err(PoolError::Io(DeviceError::Io));
            }
        }
    }

    /// Syncs the MOS, beginning with this pass, until nothing of the txg is dirty; gives its root when there was anything, and whether
    /// the configuration changed.
    fn converge(&self, work: &mut Work, tx: &Tx, first: u32) -> Result<(Option<BlockPtr>, bool), PoolError> {
        let txg = tx.txg();
        let (mut root, mut config_dirty) = (None, false);
        for pass in first..=PASSES_MAX {
            self.io.set_pass(pass);
            // What a leaf missed in the last pass must be on disk with this txg.
            self.sync_dtls(work, tx)?;
            config_dirty |= self.sync_config(work, tx)?;
            self.dsl.sync_mos_usage(txg)?;
            self.zio().wait_frees();
            let context = AppendContext { allocator: &self.services.allocator, features: &self.services.features, pass, tx };
            for delta in self.services.allocator.take_deltas(txg) {
                work.maps.append(&delta, &context)?;
            }
            if !self.mos.is_dirty(txg) {
                return Ok((root, config_dirty));
            }
            root = Some(self.mos.sync(txg)?);
        }
        Err(PoolError::Corrupt("the sync does not converge"))
    }

    /// Moves the pool to the new root, in an order that is safe against a crash at any point.
    fn commit(&self, txg: Txg, root: Option<BlockPtr>, config_dirty: bool) -> Result<(), PoolError> {
        let (tree, devices, facts, mut ub, grown) = {
            let mut config = self.config.lock();
            let grown = std::mem::take(&mut config.grown);
            (config.tree.clone(), config.devices.clone(), config.facts.clone(), config.uberblock.clone(), grown)
        };
        ub.ub_magic = Uberblock::MAGIC;
        ub.ub_version = facts.version;
        ub.ub_txg = txg.0;
        ub.ub_guid_sum = guid_sum(&tree);
        ub.ub_timestamp = self.services.exec.wall_clock().0 as u64;
        ub.ub_software_version = VERSION;
        ub.ub_mmp_magic = Uberblock::MMP_MAGIC;
        (ub.ub_mmp_delay, ub.ub_mmp_config, ub.ub_checkpoint_txg) = (0, 0, 0);
        if let Some(root) = root {
            ub.ub_rootbp = root;
        }
        let exec = &self.services.exec;
        let leaves = usable_leaves(&tree, &devices);
        if grown {
            self.copy_uberblocks(&tree, &leaves);
        }
        let label = |(leaf, _): &(LeafId, Device)| ConfigBlock::new(&facts.label_config(&tree, *leaf, txg));
        let labels: Vec<ConfigBlock> = leaves.iter().filter(|_| config_dirty).map(label).collect::<Result<_, _>>()?;
        let write_configs = |first| -> Result<(), PoolError> {
            let writes = labels.iter().zip(&leaves).flat_map(|(label, (_, device))| label.writes(device, first)).collect();
            some_succeeded(&self.write_labels(&leaves, writes))?;
            some_succeeded(&self.flush_labels(&leaves))
        };
        if config_dirty {
            write_configs(0)?;
        }
        let chosen = if config_dirty { leaves.clone() } else { uberblock_leaves(&tree, &leaves, exec.random_u64()) };
        let ashift = |leaf: LeafId| tree.tops[tree.leaf(leaf).top.0 as usize].ashift;
        let writes = chosen.iter().flat_map(|(leaf, device)| uberblock_writes(device, &ub, ashift(*leaf))).collect();
        some_succeeded(&self.write_labels(&leaves, writes))?;
        some_succeeded(&self.flush_labels(&chosen))?;
        if config_dirty {
            write_configs(1)?;
        }
        self.config.lock().uberblock = ub;
        Ok(())
    }

    /// Puts the uberblocks that devices have into all of their labels (OpenZFS: `vdev_copy_uberblocks`). What fails costs copies only.
    fn copy_uberblocks(&self, tree: &VdevTree, leaves: &[(LeafId, Device)]) {
        for (leaf, device) in leaves {
            let known = read_labels(&self.services.exec, device, &mut KnownRings::default()).uberblocks;
            let ashift = tree.tops[tree.leaf(*leaf).top.0 as usize].ashift;
            let writes = known.iter().flat_map(|ub| uberblock_writes(device, ub, ashift)).collect();
            let _ = self.write_labels(leaves, writes);
        }
    }

    /// Writes to labels, as simulated faults allow; results in any order.
    fn write_labels(&self, leaves: &[(LeafId, Device)], mut writes: Vec<LabelWrite>) -> Vec<Result<(), DeviceError>> {
        let (zio, tree) = (self.io.cache().zio(), self.config.lock().tree.clone());
        let mut injected = Vec::new();
        writes.retain(|write| {
            let owner = leaves.iter().find(|(_, device)| Arc::ptr_eq(device, &write.device));
            let fault = owner.and_then(|(leaf, _)| zio.label_fault(tree.leaf(*leaf).guid, write.offset_in_label()));
            injected.extend(fault.map(|fault| if fault == FaultError::Noop { Ok(()) } else { Err(DeviceError::Io) }));
            fault.is_none()
        });
        let guid =
            |device: &Device| leaves.iter().find(|(_, own)| Arc::ptr_eq(own, device)).map_or(Guid(0), |(leaf, _)| tree.leaf(*leaf).guid);
        let ios = writes.into_iter().map(|write| (write.device, write.offset, DeviceOp::Write(write.data)));
        let mut results = do_all(&self.services.exec, ios, &|device, io| zio.hand_to(guid(device), device, io));
        results.extend(injected);
        results
    }

    /// Makes what was written to the labels of leaves durable.
    fn flush_labels(&self, leaves: &[(LeafId, Device)]) -> Vec<Result<(), DeviceError>> {
        let (zio, tree) = (self.io.cache().zio(), self.config.lock().tree.clone());
        let guid =
            |device: &Device| leaves.iter().find(|(_, own)| Arc::ptr_eq(own, device)).map_or(Guid(0), |(leaf, _)| tree.leaf(*leaf).guid);
        let ios = leaves.iter().map(|(_, device)| (device.clone(), 0, DeviceOp::Flush));
        flushed(do_all(&self.services.exec, ios, &|device, io| zio.hand_to(guid(device), device, io)))
    }
}

/// The leaves that can be written, with their devices.
fn usable_leaves(tree: &VdevTree, devices: &[Option<Device>]) -> Vec<(LeafId, Device)> {
    let usable = |(index, device): (usize, &Option<Device>)| {
        let leaf = LeafId(index as u32);
        device.as_ref().filter(|_| tree.leaf(leaf).state.is_usable()).map(|device| (leaf, device.clone()))
    };
    devices.iter().enumerate().filter_map(usable).collect()
}

/// The leaves of a few top-level vdevs, starting anywhere.
fn uberblock_leaves(tree: &VdevTree, leaves: &[(LeafId, Device)], random: u64) -> Vec<(LeafId, Device)> {
    let data: Vec<_> = tree.tops.iter().filter(|top| top.is_concrete() && !top.is_log).map(|top| top.id).collect();
    if data.is_empty() {
        return leaves.to_vec();
    }
    let first = (random % data.len() as u64) as usize;
    let chosen: Vec<_> = data.iter().cycle().skip(first).take(UBERBLOCK_TOPS.min(data.len())).collect();
    leaves.iter().filter(|(leaf, _)| chosen.contains(&&tree.leaf(*leaf).top)).cloned().collect()
}

/// A write to the labels counts when at least one device took it (OpenZFS: `good_writes`).
fn some_succeeded(results: &[Result<(), DeviceError>]) -> Result<(), PoolError> {
    if results.iter().any(Result::is_ok) { Ok(()) } else { Err(PoolError::Io(DeviceError::Io)) }
}
