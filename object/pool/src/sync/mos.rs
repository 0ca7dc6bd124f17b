//! The steps of a sync that write the MOS: what another writer left, then, in every pass, dirty time logs, the configuration, space maps
//! and the MOS itself.

use super::dtl;
use super::flushing::LogControl;
use super::kept::KeptMaps;
use super::log_spacemap::{self, LoggedChanges};
use super::space_log::SpaceLog;
use super::spacemap::AppendContext;
use super::step::{SyncStep, Syncing};
use super::tree::TreeWriter;
use crate::PoolError;
use crate::spa::Spa;
use crate::spa::mos_objects::{create_vdev_zaps, has_vdev_zaps, process_deferred_frees, write_packed};
use crate::spa::news::ScanNews;
use crate::spa::salt;
use exec::Mutex;
use kernels::checksum::Salt;
use metaslab::Delta;
use ondisk::ObjectId;
use scan::ScanFunction;
use std::sync::Arc;
use vdev::{Leaf, VdevTree};
use zio::IoKind;

/// Does what a previous writer left to be done, with the first txg.
pub(crate) struct AfterImport {
    pub spa: Arc<Spa>,
    /// The list of frees that another writer deferred.
    pub deferred: Option<ObjectId>,
    /// Changes of log space maps that are to be folded back.
    pub logged: Option<LoggedChanges>,
    /// Salt that the pool is to get.
    pub new_salt: Option<Arc<Salt>>,
    /// Nobody need look any more whether the vdevs have ZAPs.
    pub has_zaps: bool,
}

impl SyncStep for AfterImport {
    fn name(&self) -> &'static str {
        "what another writer left"
    }

    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let (services, tx) = (&self.spa.services, at.tx);
        if let Some(list) = self.deferred.take() {
            process_deferred_frees(&self.spa.mos, self.spa.io.as_ref(), list, tx)?;
        }
        if let Some(logged) = self.logged.take() {
            let context = AppendContext { allocator: &services.allocator, features: &services.features, pass: 2, tx };
            let tree = self.spa.tree();
            // A vdev may have left with this txg already.
            for delta in logged.deltas().iter().filter(|delta| tree.top(delta.vdev).is_some()) {
                at.maps.append(delta, &context)?;
            }
            log_spacemap::destroy(&self.spa.mos, &tree, &services.features, tx)?;
        }
        if !std::mem::replace(&mut self.has_zaps, true) && !has_vdev_zaps(&self.spa.mos)? {
            let mut tree = VdevTree::clone(&self.spa.tree());
            create_vdev_zaps(&self.spa.mos, &services.features, &mut tree, tx)?;
            let mut config = self.spa.config.lock();
            config.take_zaps(&tree);
            config.dirty = true;
            self.spa.publish(&config);
        }
        if let Some(salt) = self.new_salt.take() {
            salt::write(&self.spa.mos, &salt, tx)?;
        }
        Ok(())
    }
}

/// Writes down which leaves missed writes of which txgs, and what a scrub made good (OpenZFS: `vdev_dtl_sync`, `vdev_dtl_reassess`). What
/// a leaf missed in the last pass must be on disk with this txg.
pub(crate) struct DirtyTimeLogs {
    pub spa: Arc<Spa>,
    pub tree: Arc<TreeWriter>,
}

impl SyncStep for DirtyTimeLogs {
    fn name(&self) -> &'static str {
        "dirty time logs"
    }

    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let (spa, tx) = (&self.spa, at.tx);
        let missed = spa.zio().take_missing();
        let news = std::mem::take(&mut *spa.services.scan_news.lock());
        let rebuilds = std::mem::take(&mut *spa.services.rebuild_news.lock());
        if missed.is_empty() && news == ScanNews::default() && rebuilds.is_empty() {
            return Ok(());
        }
        let mut tree = VdevTree::clone(&spa.config.lock().tree);
        let (features, mut dirty) = (&spa.services.features, news.resilver_began.is_some());
        if let Some(through) = news.resilver_began {
            dtl::resilver_began(&mut tree, through);
        }
        if news.resilver_began.is_some() || news.outcome.is_some() {
            dirty |= dtl::clear_deferred(&mut tree);
        }
        let is_kept = spa.check_no_checkpoint().is_err();
        if news.outcome.is_some() && is_kept {
            // Nobody read what only the checkpoint has: leaves may lack it still (OpenZFS: `dsl_scan_done`).
            dirty |= dtl::resilver_ended(&mut tree);
        }
        if let Some(outcome) = news.outcome.as_ref().filter(|_| !is_kept) {
            // A leaf that refused writes may have refused the scrub's repairs; one that came back late missed a resilver's.
            let refused = |leaf: &Leaf| spa.zio().leaf_stats_of(leaf.guid).counts().errors[IoKind::Write as usize] > 0;
            let whole = |leaf: &Leaf| match outcome.function {
                ScanFunction::Scrub => !refused(leaf),
                ScanFunction::Resilver => leaf.resilver_txg.0 != 0,
            };
            dirty |= dtl::excise(&spa.mos, features, &mut tree, (outcome, &whole), tx)?;
        }
        for rebuild in &rebuilds {
            dtl::rebuilt(&spa.mos, features, &mut tree, rebuild, tx)?;
            dirty = true;
        }
        dirty |= dtl::record(&spa.mos, features, &mut tree, &missed, tx)?;
        let mut config = spa.config.lock();
        config.dirty |= dirty;
        config.take_dtls(&tree);
        spa.publish(&config);
        drop(config);
        self.tree.count_deferred(tx)?;
        if news.outcome.is_some() || !rebuilds.is_empty() { self.tree.end_replacements(at.maps, tx) } else { Ok(()) }
    }
}

/// Writes the config object when the configuration changed.
pub(crate) struct WriteConfig {
    pub spa: Arc<Spa>,
    pub object: ObjectId,
}

impl SyncStep for WriteConfig {
    fn name(&self) -> &'static str {
        "configuration"
    }

    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let features = &self.spa.services.features;
        let stale = features.take_labels_stale();
        let (facts, tree, dirty) = {
            let mut config = self.spa.config.lock();
            if stale {
                config.facts.mos_features = features.mos_features();
            }
            let dirty = std::mem::take(&mut config.dirty) || stale;
            (config.facts.clone(), config.tree.clone(), dirty)
        };
        if dirty {
            write_packed(&self.spa.mos, self.object, &facts.mos_config(&tree, at.tx.txg()), at.tx)?;
        }
        at.config_dirty |= dirty;
        Ok(())
    }
}

/// Writes down what was allocated and freed, the MOS's own space included: in the log space map of the txg, or in each metaslab's own map.
pub(crate) struct WriteSpace {
    pub spa: Arc<Spa>,
    /// The logs of a pool that writes them, once it has the feature.
    pub log: Option<SpaceLog>,
    pub control: Arc<LogControl>,
    /// The maps of a checkpoint.
    pub kept: Arc<Mutex<KeptMaps>>,
}

impl SyncStep for WriteSpace {
    fn name(&self) -> &'static str {
        "space maps"
    }

    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let (services, tx) = (&self.spa.services, at.tx);
        let context = AppendContext { allocator: &services.allocator, features: &services.features, pass: at.pass, tx };
        let tree = self.spa.tree();
        let mut log = self.log.as_mut().filter(|_| SpaceLog::is_on(&services.features));
        if at.pass == 1
            && let Some(log) = &mut log
        {
            log.flush(at.maps, &tree, &self.control, &context)?;
        }
        self.spa.dsl.sync_mos_usage(tx.txg())?;
        self.spa.zio().wait_frees();
        let is_logged = |delta: &Delta| log.is_some() && SpaceLog::covers(&tree, delta.vdev);
        let (logged, direct): (Vec<Delta>, Vec<Delta>) = services.allocator.take_deltas(tx.txg()).into_iter().partition(is_logged);
        for delta in &direct {
            at.maps.append(delta, &context)?;
        }
        write_kept(&self.spa, &self.kept, &tree, &context)?;
        match log {
            Some(log) => log.log(&logged, at.maps, &tree, &context),
            None => Ok(()),
        }
    }
}

/// Writes down which of the blocks that were freed a checkpoint keeps.
fn write_kept(spa: &Spa, kept: &Mutex<KeptMaps>, tree: &VdevTree, context: &AppendContext<'_>) -> Result<(), PoolError> {
    let fresh = context.allocator.take_kept();
    if fresh.is_empty() {
        return Ok(());
    }
    let mut kept = kept.lock();
    kept.append(&fresh, tree, context)?;
    kept.bytes().into_iter().for_each(|(vdev, bytes)| spa.services.checkpoint.set_bytes(vdev, bytes));
    Ok(())
}

/// Writes the MOS when something of the txg is dirty in it.
pub(crate) struct WriteMos(pub Arc<Spa>);

impl SyncStep for WriteMos {
    fn name(&self) -> &'static str {
        "the MOS"
    }

    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        if self.0.mos.is_dirty(at.tx.txg()) {
            at.root = Some(self.0.mos.sync(at.tx.txg())?);
            at.unsettled = true;
        }
        Ok(())
    }
}
