//! An open pool: the handle that commands, mounts and tests use.

use crate::config::PoolState;
use crate::labels::Device;
use crate::rebuild::Rebuilds;
use crate::sweep::Sweeps;
use crate::sync::{SyncFailure, SyncHook, Syncer};
use crate::zia::Followed;
use crate::{FEATURES, PoolError};
use arc::Cache;
use dmu::{Objset, TxgManager};
use dsl::DslPool;
use exec::Exec;
use kstat::IoStats;
use metaslab::{ClassSpace, VdevSpace};
use nvlist::NvList;
use ondisk::{Guid, Txg};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vdev::{LeafId, LeafState, VdevTree};
use zio::{DirectParameters, LeafCounts, Zio};

/// An open pool. Close it with [`Pool::export`] or [`Pool::destroy`]; a handle that is dropped without stops the txgs and leaves
/// the pool as after a crash, which loses nothing that was synced.
pub struct Pool {
    pub(crate) syncer: Arc<Syncer>,
    pub(crate) txgs: Arc<TxgManager>,
    pub(crate) damaged_labels: usize,
    pub(crate) scan: Arc<scan::Scan>,
    pub(crate) rebuilds: Arc<Rebuilds>,
    pub(crate) sweeps: Arc<Sweeps>,
    pub(crate) damaged_uberblocks: usize,
    pub(crate) zia: Followed,
    /// Devices that are coming and for which nobody has asked for a resilver yet.
    pub(crate) arrivals: AtomicUsize,
}

/// A device that is coming: from before others see it until the resilver that it may need was asked for.
pub(crate) struct Arrival<'a>(&'a AtomicUsize);

impl<'a> Arrival<'a> {
    pub(crate) fn new(pool: &'a Pool) -> Arrival<'a> {
        pool.arrivals.fetch_add(1, Ordering::AcqRel);
        Arrival(&pool.arrivals)
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A leaf's facts and counters.
#[derive(Clone, Debug)]
pub struct LeafStatus {
    /// Its number in [`PoolStatus::tree`].
    pub leaf: LeafId,
    /// State.
    pub state: LeafState,
    /// Error and I/O counters since the pool was opened or cleared.
    pub counts: LeafCounts,
    /// Histograms and queue depths, in the order of [`zio::EXTENDED`].
    pub extended: Vec<Vec<u64>>,
}

/// A picture of the pool for `zpool status` and `zpool list`.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: Guid,
    /// Pool version.
    pub version: u64,
    /// The comment property.
    pub comment: Option<String>,
    /// Last txg on disk.
    pub txg: Txg,
    /// Imported read-only.
    pub read_only: bool,
    /// Pool I/O waits for devices to come back.
    pub suspended: bool,
    /// Why nothing is written any more, if that is so; whoever exports the pool by force and imports it again has what was on disk.
    pub sync_failure: Option<SyncFailure>,
    /// The vdevs.
    pub tree: Arc<VdevTree>,
    /// Space by top-level vdev, in the tree's order.
    pub vdev_space: Vec<VdevSpace>,
    /// How often users changed buffers underneath direct I/O, by top-level vdev in the tree's order (the DIO column of
    /// `zpool status -d`).
    pub dio_verify_errors: Vec<u64>,
    /// Space of the data vdevs.
    pub space: ClassSpace,
    /// Leaves in the tree's order.
    pub leaves: Vec<LeafStatus>,
    /// Labels that did not verify when the pool was opened.
    pub damaged_labels: usize,
    /// Uberblocks that did not verify when the pool was opened: it may have fallen back to an older one.
    pub damaged_uberblocks: usize,
}

/// Work that goes on beside everything else.
type Background = (Arc<scan::Scan>, Arc<Rebuilds>, Arc<Sweeps>);

/// Opens it.
pub(crate) fn background(syncer: &Syncer, txgs: &Arc<TxgManager>, arc_max: u64) -> Result<Background, PoolError> {
    let scan = crate::scrub::open(syncer, txgs)?;
    let rebuilds = crate::rebuild::open(syncer, txgs, &scan, arc_max);
    Ok((scan, rebuilds, crate::sweep::open(syncer, txgs)))
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.zio().abandon();
        self.sweeps.halt();
        self.rebuilds.halt();
        self.scan.halt();
        self.txgs.abandon();
    }
}

impl Pool {
    /// The executor that everything of the pool runs on.
    pub fn exec(&self) -> &Exec {
        &self.syncer.services.exec
    }
    /// Name.
    pub fn name(&self) -> String {
        self.syncer.services.name.read().clone()
    }
    /// True when its name is for this import only, and its devices have another one.
    pub fn has_temporary_name(&self) -> bool {
        self.syncer.config.lock().facts.stored_name.is_some()
    }
    /// Guid.
    pub fn guid(&self) -> Guid {
        self.syncer.config.lock().facts.guid
    }
    /// False when it was imported read-only.
    pub fn is_writeable(&self) -> bool {
        self.syncer.services.writeable
    }
    /// The datasets.
    pub fn dsl(&self) -> &Arc<DslPool> {
        &self.syncer.dsl
    }
    /// The meta object set.
    pub fn mos(&self) -> &Arc<Objset> {
        &self.syncer.mos
    }
    /// The transaction groups.
    pub fn txgs(&self) -> &Arc<TxgManager> {
        &self.txgs
    }
    /// How the pool's data is read and written: through the cache, or directly (OpenZFS: the pool's `iostats`).
    pub fn iostats(&self) -> &Arc<IoStats> {
        self.zio().iostats()
    }
    /// The parameters of direct I/O.
    pub fn direct_parameters(&self) -> &DirectParameters {
        self.zio().direct_parameters()
    }
    /// The cache of blocks.
    pub fn cache(&self) -> &Cache {
        self.syncer.io.cache()
    }
    /// The I/O pipeline.
    pub fn zio(&self) -> &Zio {
        self.cache().zio()
    }
    /// The last txg on disk.
    pub fn txg(&self) -> Txg {
        self.txgs.synced_txg()
    }
    /// The uberblock on disk.
    pub fn uberblock(&self) -> ondisk::Uberblock {
        self.syncer.config.lock().uberblock.clone()
    }
    /// The vdevs as of now.
    pub fn tree(&self) -> Arc<VdevTree> {
        self.syncer.config.lock().tree.clone()
    }
    /// The open devices by leaf number.
    pub fn devices(&self) -> Vec<Option<Device>> {
        self.syncer.config.lock().devices.clone()
    }

    /// The configuration as cache files have it.
    pub fn cache_config(&self) -> NvList {
        let config = self.syncer.config.lock();
        config.facts.mos_config(&config.tree, config.uberblock.txg())
    }

    /// Waits until everything done so far is on disk.
    pub fn sync(&self) -> Result<(), PoolError> {
        if !self.is_writeable() {
            return Ok(());
        }
        Ok(self.txgs.wait_synced(self.txgs.open_txg())?)
    }

    /// Frees at most so many blocks of destroyed datasets in a txg from now on (OpenZFS: `zfs_async_block_max_blocks`).
    pub fn set_frees_max(&self, blocks: u64) {
        self.syncer.frees_max.store(blocks, std::sync::atomic::Ordering::Relaxed);
    }

    /// Writes a txg with a new configuration to every label, also when nothing else is to be written, and waits for it (OpenZFS:
    /// `zfs_ioc_pool_sync` with `force`).
    pub fn sync_forced(&self) -> Result<(), PoolError> {
        if self.is_writeable() {
            self.syncer.config.lock().dirty = true;
        }
        self.sync()
    }

    /// Has `hook` called in every txg's sync.
    pub fn add_sync_hook(&self, hook: Arc<dyn SyncHook>) {
        self.syncer.hooks.write().push(hook);
    }

    /// Short name, guid, and reference count of every feature flag; None for a feature that is not enabled. Unknown features
    /// of the pool have their guid as name.
    pub fn features(&self) -> Vec<(String, String, Option<u64>)> {
        let enabled = self.syncer.services.features.list();
        let count = |guid: &str| enabled.iter().find(|(known, _)| known == guid).map(|(_, count)| *count);
        let mut all: Vec<_> =
            FEATURES.iter().map(|feature| (feature.name.to_string(), feature.guid.to_string(), count(feature.guid))).collect();
        let unknown = enabled.iter().filter(|(guid, _)| crate::feature_by_guid(guid).is_none());
        all.extend(unknown.map(|(guid, count)| (guid.clone(), guid.clone(), Some(*count))));
        all
    }

    /// Enables a feature flag and what it depends on, by short name (OpenZFS: `zpool set feature@…=enabled`).
    pub fn enable_feature(&self, name: &str) -> Result<(), PoolError> {
        self.check_writeable()?;
        let feature = crate::feature_by_name(name).ok_or(PoolError::BadProperty)?;
        if feature.support != crate::Support::Full {
            return Err(PoolError::BadValue);
        }
        let services = self.syncer.services.clone();
        let enable = move |_: &Arc<DslPool>, (), tx: &dmu::Tx| {
            services.features.enable(feature.guid, tx).map_err(|_| dsl::DslError::Unsupported)?;
            services.log_internal("set", &format!("feature@{}=enabled", feature.name), tx);
            Ok(())
        };
        Ok(self.dsl().sync_task(|_, _| Ok(()), enable)?)
    }

    /// Logs a command to the pool's history; it goes out with the next txg.
    pub fn log_command(&self, command: &str, uid: u32) {
        let mut record = NvList::new();
        record.add("history command", command).add("history who", u64::from(uid));
        record.add("history time", self.exec().wall_clock().0 as u64);
        self.syncer.services.history.log(record);
    }

    /// The pool's history, oldest record first.
    pub fn history(&self) -> Result<Vec<NvList>, PoolError> {
        self.syncer.services.history.read()
    }

    /// Allocated bytes of every metaslab of a top-level vdev, as of the last sync.
    pub fn metaslab_bytes(&self, vdev: ondisk::VdevId) -> Vec<u64> {
        let allocator = &self.syncer.services.allocator;
        let bytes = |metaslab| allocator.synced_allocated(vdev, metaslab).iter().map(|segment| segment.end - segment.start).sum();
        (0..allocator.metaslab_count(vdev)).map(bytes).collect()
    }

    pub(crate) fn check_writeable(&self) -> Result<(), PoolError> {
        if self.is_writeable() { Ok(()) } else { Err(PoolError::ReadOnly) }
    }

    /// A picture of the pool.
    pub fn status(&self) -> PoolStatus {
        let (tree, facts, txg) = {
            let config = self.syncer.config.lock();
            (config.tree.clone(), config.facts.clone(), self.txgs.synced_txg())
        };
        let allocator = &self.syncer.services.allocator;
        let leaf = |index: usize| {
            let id = LeafId(index as u32);
            let stats = self.zio().leaf_stats_of(tree.leaf(id).guid);
            LeafStatus { leaf: id, state: tree.leaf(id).state, counts: stats.counts(), extended: stats.extended() }
        };
        PoolStatus {
            name: facts.name,
            guid: facts.guid,
            version: facts.version,
            comment: facts.comment,
            txg,
            read_only: !self.is_writeable(),
            suspended: self.zio().is_suspended() || self.txgs.has_failed(),
            sync_failure: self.syncer.failure.lock().clone(),
            vdev_space: tree.tops.iter().map(|top| allocator.vdev_space(top.id)).collect(),
            dio_verify_errors: tree.tops.iter().map(|top| self.zio().dio_verify_errors(top.id)).collect(),
            space: allocator.class_space(),
            leaves: (0..tree.leaves.len()).map(leaf).collect(),
            tree,
            damaged_labels: self.damaged_labels,
            damaged_uberblocks: self.damaged_uberblocks,
        }
    }

    /// Notes in the pool's history that it was imported, and by whom (OpenZFS: `spa_history_log_version`). Written with the next txg.
    pub fn log_import(&self) {
        if self.is_writeable() {
            let text = format!("pool version {}; software version zirconia", self.syncer.config.lock().facts.version);
            self.syncer.services.log_now("import", &text, self.txgs.open_txg());
        }
    }

    /// Resets the error counters of one leaf, or of all.
    pub fn clear_errors(&self, leaf: Option<LeafId>) {
        let tree = self.tree();
        let of_leaf = |leaf: LeafId| tree.tops.iter().find(|top| top.slots.iter().flatten().any(|known| *known == leaf));
        match leaf {
            None => self.zio().clear_dio_verify_errors(None),
            Some(leaf) => of_leaf(leaf).into_iter().for_each(|top| self.zio().clear_dio_verify_errors(Some(top.id))),
        }
        for (index, known) in tree.leaves.iter().enumerate() {
            if leaf.is_none_or(|leaf| leaf.0 as usize == index) {
                self.zio().leaf_stats_of(known.guid).clear_errors();
            }
        }
    }

    /// Writes everything, marks the pool as exported and closes it. Nobody may use its datasets any more.
    pub fn export(self) -> Result<(), PoolError> {
        self.close(PoolState::Exported)
    }

    /// Writes everything and closes the pool, whose labels go on saying that it is in use (OpenZFS: `spa_export_common`, `hardforce`).
    pub fn leave(self) -> Result<(), PoolError> {
        self.close(PoolState::Active)
    }

    /// Marks the pool as destroyed and closes it.
    pub fn destroy(self) -> Result<(), PoolError> {
        self.check_writeable()?;
        self.close(PoolState::Destroyed)
    }

    fn close(self, state: PoolState) -> Result<(), PoolError> {
        self.sweeps.halt();
        self.rebuilds.halt();
        self.scan.halt();
        if !self.is_writeable() {
            // Its txgs never ran, so there is nothing to end.
            let _ = self.txgs.stop();
            return Ok(());
        }
        self.sync()?;
        {
            let mut config = self.syncer.config.lock();
            config.facts.state = state;
            config.dirty = true;
        }
        self.sync()?;
        Ok(self.txgs.stop()?)
    }
}
