//! Scrubs and resilvers of a pool: the work is done by the `scan` crate; here is what ties it to the pool: its part of the sync, the
//! features and history it needs, and when a resilver begins.

use crate::PoolError;
use crate::spa::Spa;
use crate::spa::adapter::WaitsFor;
use crate::spa::features::{HEAD_ERRLOG, RESILVER_DEFER};
use crate::spa::services::Services;
use crate::sync::changes::{Changes, Edited};
use crate::sync::step::{SyncStep, Syncing};
use dmu::Tx;
use kstat::Event;
use ondisk::Txg;
use scan::{Scan, ScanFunction, ScanHost, ScanOutcome, ScanParts, ScanState, ScanStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vdev::{Leaf, VdevTree};

/// The scan's place in the sync.
pub(crate) struct ScanStep(pub Arc<Scan>);

impl SyncStep for ScanStep {
    fn name(&self) -> &'static str {
        "scan"
    }
    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Devices
    }
    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        Ok(self.0.sync(at.tx)?)
    }
}

impl ScanHost for Services {
    fn allocated_bytes(&self) -> u64 {
        self.allocator.class_space().allocated
    }
    fn has_head_errlog(&self) -> bool {
        self.features.is_enabled(HEAD_ERRLOG)
    }
    fn resilver_begins(&self, through: Txg) {
        self.scan_news.lock().resilver_began = Some(through);
        self.forget_rebuilds.store(true, Ordering::Release);
    }
    fn scanned(&self, outcome: &ScanOutcome) {
        self.scan_is_resilver.store(outcome.function == ScanFunction::Resilver, Ordering::Release);
        self.scan_news.lock().outcome = Some(outcome.clone());
    }
    fn log(&self, name: &str, text: &str, tx: &Tx) {
        self.log_internal(name, text, tx);
        if name == "scan setup" {
            self.scan_is_resilver.store(text.starts_with("func=2 "), Ordering::Release);
        }
        if let Some(class) = class_of(name, self.scan_is_resilver.load(Ordering::Acquire)) {
            let event = Event::new(class).with("pool", self.name.read().as_str()).with("pool_guid", self.zio.view().facts.guid.0);
            let heals = matches!(class, "sysevent.fs.zfs.resilver_start" | "sysevent.fs.zfs.resilver_finish");
            self.events.event(if heals { event.with("resilver_type", "healing") } else { event });
        }
    }
}

/// The event that goes with a line of history about a scan (OpenZFS: `ESC_ZFS_SCRUB_START` and its like).
fn class_of(name: &str, is_resilver: bool) -> Option<&'static str> {
    Some(match (name, is_resilver) {
        ("scan setup", false) => "sysevent.fs.zfs.scrub_start",
        ("scan setup", true) => "sysevent.fs.zfs.resilver_start",
        ("scan done", false) => "sysevent.fs.zfs.scrub_finish",
        ("scan done", true) => "sysevent.fs.zfs.resilver_finish",
        ("scan cancelled", _) => "sysevent.fs.zfs.scrub_abort",
        _ => return None,
    })
}

/// Opens the pool's scan. A scrub that was not finished goes on once [`Scan::spawn`] is called.
pub(crate) fn open(spa: &Spa) -> Result<Arc<Scan>, PoolError> {
    Ok(Scan::open(ScanParts {
        mos: spa.mos.clone(),
        cache: spa.io.cache().clone(),
        txgs: spa.txgs.clone(),
        frees: spa.io.frees().clone(),
        lost: spa.io.lost_blocks().clone(),
        host: spa.services.clone(),
    })?)
}

/// The scan of a pool as far as vdevs need it: resilvers.
pub(crate) struct Resilvers {
    pub spa: Arc<Spa>,
    pub scan: Arc<Scan>,
    pub changes: Arc<Changes>,
}

impl Resilvers {
    /// Begins a resilver when leaves in use lack what none that runs brings them. Not while a rebuild runs, which begins the resilver that
    /// is still needed when it ended.
    pub fn begin_stale(&self) -> Result<(), PoolError> {
        let tree = self.spa.tree();
        let Some(range) = tree.resilver_range() else { return Ok(()) };
        let stale = || tree.leaves.iter().filter(|leaf| leaf.state.is_usable() && !leaf.missing_txgs.is_empty());
        if self.scan.is_resilvering(range) && stale().all(|leaf| leaf.resilver_txg.0 != 0) {
            return Ok(());
        }
        // Who waits already goes on waiting, whoever else comes back; after an import too.
        let has_all = |leaf: &Leaf, through: Txg| leaf.resilver_txg.0 != 0 && leaf.missing_txgs.iter().all(|(_, last)| *last <= through);
        let is_settled = |through: Txg| stale().all(|leaf| leaf.resilver_deferred || has_all(leaf, through));
        if self.scan.resilvers_through().is_some_and(is_settled) {
            return Ok(());
        }
        let defers = self.spa.services.features.is_enabled(RESILVER_DEFER) && self.scan.defers_resilvers();
        if defers && self.defer_resilver()? {
            return Ok(());
        }
        Ok(self.scan.resilver()?)
    }
    /// Lets the leaves that the resilver under way brings nothing, or not everything, wait for the next one. False when it ended
    /// meanwhile.
    fn defer_resilver(&self) -> Result<bool, PoolError> {
        let scan = self.scan.clone();
        let deferred = Arc::new(AtomicBool::new(false));
        let told = deferred.clone();
        self.changes.submit(
            &self.spa.txgs,
            Box::new(move |config, _| {
                let mut tree = VdevTree::clone(&config.tree);
                // It ends after this, if it ends with this txg, and then sees who waits.
                if let Some(through) = scan.resilvers_through() {
                    told.store(true, Ordering::Release);
                    let lacks_more = |leaf: &Leaf| leaf.resilver_txg.0 == 0 || leaf.missing_txgs.iter().any(|(_, last)| *last > through);
                    let waiting = |leaf: &&mut Leaf| leaf.state.is_usable() && !leaf.missing_txgs.is_empty() && lacks_more(leaf);
                    tree.leaves.iter_mut().filter(waiting).for_each(|leaf| leaf.resilver_deferred = true);
                }
                Ok(Edited { tree: Arc::new(tree), ..Edited::default() })
            }),
        )?;
        self.spa.zio().open_stores();
        Ok(deferred.load(Ordering::Acquire))
    }

    /// Begins the resilver that runs again, with all that leaves in use lack; nothing happens when they lack nothing.
    /// Errors: [`PoolError::NeedsFeature`] without the feature `resilver_defer`.
    pub fn restart(&self) -> Result<(), PoolError> {
        if !self.spa.services.features.is_enabled(RESILVER_DEFER) {
            return Err(PoolError::NeedsFeature("resilver_defer"));
        }
        if self.spa.tree().resilver_range().is_none() {
            return Ok(());
        }
        Ok(self.scan.resilver()?)
    }

    /// True while a resilver reads and writes.
    pub fn is_running(&self) -> bool {
        let resilvers = |status: ScanStatus| status.function == ScanFunction::Resilver && status.state == ScanState::Scanning;
        self.scan.status().is_some_and(resilvers)
    }
}
