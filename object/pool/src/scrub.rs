//! Scrubs and resilvers of a pool: start, pause, stop, progress, and the blocks found damaged. The work is done by the `scan` crate; here is
//! what ties it to the pool: its part of the sync, the features and history it needs, and its thread.

use crate::attach::Edited;
use crate::services::Services;
use crate::sync::{SyncHook, Syncer};
use crate::{Pool, PoolError};
use dmu::{SyncError, Tx, TxgManager};
use kstat::Event;
use ondisk::Txg;
use scan::{Damaged, ErrorScrubStatus, Scan, ScanError, ScanFunction, ScanHost, ScanOutcome, ScanParts, ScanStatus, ScanTunables};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vdev::{Leaf, VdevTree};

/// Active while a leaf waits for the resilver after the one that goes on.
pub(crate) const RESILVER_DEFER: &str = "com.datto:resilver_defer";
const HEAD_ERRLOG: &str = "com.delphix:head_errlog";

/// The scan's place in the sync.
struct Hook(Arc<Scan>);

impl SyncHook for Hook {
    fn sync(&self, tx: &Tx) -> Result<(), SyncError> {
        self.0.sync(tx)
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

/// Opens the pool's scan and makes it part of the sync. A scrub that was not finished goes on once [`Scan::spawn`] is called.
pub(crate) fn open(syncer: &Syncer, txgs: &Arc<TxgManager>) -> Result<Arc<Scan>, PoolError> {
    let scan = Scan::open(ScanParts {
        mos: syncer.mos.clone(),
        cache: syncer.io.cache().clone(),
        txgs: txgs.clone(),
        frees: syncer.io.frees().clone(),
        lost: syncer.io.lost_blocks().clone(),
        host: syncer.services.clone(),
    })?;
    syncer.hooks.write().push(Arc::new(Hook(scan.clone())));
    Ok(scan)
}

impl Pool {
    /// Begins a resilver when leaves in use lack what none that runs brings them; it goes on by itself, except under executors
    /// without threads: see [`Pool::scrub_drive`].
    pub fn resilver_stale(&self) -> Result<(), PoolError> {
        // A rebuild goes first, and begins the resilver that is still needed when it ended.
        if self.rebuilds.is_active() {
            return Ok(());
        }
        let tree = self.tree();
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
        if self.defers_resilvers() && self.defer_resilver()? {
            return Ok(());
        }
        Ok(self.scan.resilver()?)
    }
    /// True when a resilver goes on that is too far to be begun again for a device that comes now (OpenZFS: `dsl_scan_sync`).
    fn defers_resilvers(&self) -> bool {
        let far = |percent: u64| {
            let status = self.scan_status().filter(|_| self.scan.resilvers_through().is_some());
            status.is_some_and(|status| status.issued >= (u128::from(status.to_issue()) * u128::from(percent) / 100) as u64)
        };
        self.syncer.services.features.is_enabled(RESILVER_DEFER) && self.scan.tunables().defer_percent.is_some_and(far)
    }
    /// Lets the leaves that the resilver under way brings nothing, or not everything, wait for the next one. False when it ended
    /// meanwhile.
    fn defer_resilver(&self) -> Result<bool, PoolError> {
        let scan = self.scan.clone();
        let deferred = Arc::new(AtomicBool::new(false));
        let told = deferred.clone();
        self.change_tree(Box::new(move |config, _| {
            let mut tree = VdevTree::clone(&config.tree);
            // It ends after this, if it ends with this txg, and then sees who waits.
            if let Some(through) = scan.resilvers_through() {
                told.store(true, Ordering::Release);
                let lacks_more = |leaf: &Leaf| leaf.resilver_txg.0 == 0 || leaf.missing_txgs.iter().any(|(_, last)| *last > through);
                let waiting = |leaf: &&mut Leaf| leaf.state.is_usable() && !leaf.missing_txgs.is_empty() && lacks_more(leaf);
                tree.leaves.iter_mut().filter(waiting).for_each(|leaf| leaf.resilver_deferred = true);
            }
            Ok(Edited { tree: Arc::new(tree), ..Edited::default() })
        }))?;
        Ok(deferred.load(Ordering::Acquire))
    }
    /// A resilver is about to begin, or a device is coming that may need one.
    pub fn is_resilver_wanted(&self) -> bool {
        self.scan.is_resilver_wanted() || self.arrivals.load(Ordering::Acquire) > 0
    }
    /// Begins a scrub, or goes on with a paused one. Errors: [`scan::ScanError::Running`], [`scan::ScanError::Resilvering`].
    pub fn scrub_start(&self) -> Result<(), PoolError> {
        self.check_writeable()?;
        self.check_not_rebuilding()?;
        Ok(self.scan.start(Txg::ZERO)?)
    }
    fn check_not_rebuilding(&self) -> Result<(), PoolError> {
        if self.rebuilds.is_unfinished() { Err(ScanError::Resilvering.into()) } else { Ok(()) }
    }
    /// As [`Pool::scrub_start`], of what was born since the last complete scrub only (`zpool scrub -C`).
    pub fn scrub_start_from_last(&self) -> Result<(), PoolError> {
        self.check_writeable()?;
        self.check_not_rebuilding()?;
        Ok(self.scan.start(self.scan.last_scrubbed()?)?)
    }
    /// The txg up to which the last complete scrub verified everything; 0 when there was none.
    pub fn last_scrubbed_txg(&self) -> Result<Txg, PoolError> {
        Ok(self.scan.last_scrubbed()?)
    }
    /// Begins to read again what the error log has, or goes on with it (`zpool scrub -e`). Errors: those of [`scan::Scan::start_errors`].
    pub fn scrub_errors(&self) -> Result<(), PoolError> {
        self.check_writeable()?;
        self.check_not_rebuilding()?;
        Ok(self.scan.start_errors()?)
    }
    /// Begins the resilver that runs again, with all that leaves in use lack; nothing happens when they lack nothing (`zpool resilver`).
    /// Errors: [`PoolError::NeedsFeature`] without the feature `resilver_defer`.
    pub fn resilver_restart(&self) -> Result<(), PoolError> {
        self.check_writeable()?;
        if !self.syncer.services.features.is_enabled(RESILVER_DEFER) {
            return Err(PoolError::NeedsFeature("resilver_defer"));
        }
        if self.tree().resilver_range().is_none() {
            return Ok(());
        }
        Ok(self.scan.resilver()?)
    }
    /// Pauses the scrub or error scrub that runs; its place is kept, across imports too. Errors: [`scan::ScanError::NotRunning`],
    /// [`scan::ScanError::Paused`], [`scan::ScanError::ErrorScrubPaused`].
    pub fn scrub_pause(&self) -> Result<(), PoolError> {
        self.check_writeable()?;
        Ok(self.scan.pause()?)
    }
    /// Ends the scrub that runs or is paused. Errors: [`scan::ScanError::NotRunning`].
    pub fn scrub_stop(&self) -> Result<(), PoolError> {
        self.check_writeable()?;
        self.check_not_rebuilding()?;
        Ok(self.scan.stop()?)
    }
    /// The last or current scan; None when the pool never had one.
    pub fn scan_status(&self) -> Option<ScanStatus> {
        self.scan.status()
    }
    /// The last or current error scrub; None when a scrub or resilver came after it.
    pub fn error_scrub_status(&self) -> Option<ErrorScrubStatus> {
        self.scan.error_scrub_status()
    }
    /// The blocks that are known to be damaged for good, each as often as data sets have it.
    pub fn damaged(&self) -> Result<Vec<Damaged>, PoolError> {
        Ok(self.scan.damaged_blocks()?.1)
    }
    /// How many different blocks are known to be damaged for good, and where they are.
    pub fn damaged_counted(&self) -> Result<(u64, Vec<Damaged>), PoolError> {
        Ok(self.scan.damaged_blocks()?)
    }
    /// Changes how scans behave.
    pub fn tune_scans(&self, tunables: ScanTunables) {
        self.scan.set_tunables(tunables);
    }
    /// Waits until no scrub makes progress any more: it ended or was paused. Does the work where there is no thread for it.
    pub fn scrub_wait(&self) -> Result<(), PoolError> {
        self.scrub_drive()?;
        self.scan.wait();
        Ok(())
    }
    /// Does the work of the scrub on this thread until it ends; for executors that have no threads of their own.
    pub fn scrub_drive(&self) -> Result<(), PoolError> {
        self.check_writeable()?;
        self.scan.run();
        Ok(())
    }
    /// Bounds the blocks that a scan finds before it reads them; 0 means by memory.
    pub fn scrub_queue_max(&self, blocks: usize) {
        self.scan.set_queue_max(blocks);
    }
    /// Does a part of it: ends after `blocks` blocks of data were read, with others found and not read.
    pub fn scrub_drive_reads(&self, blocks: usize) -> Result<(), PoolError> {
        self.check_writeable()?;
        self.scan.run_reads(blocks);
        Ok(())
    }
    /// Does a part of it: reads about `blocks` blocks of data.
    pub fn scrub_drive_part(&self, blocks: usize) -> Result<(), PoolError> {
        self.check_writeable()?;
        self.scan.run_part(blocks);
        Ok(())
    }
}
