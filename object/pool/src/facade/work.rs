//! Work that goes on beside everything else, as commands see it: scrubs and resilvers, sequential rebuilds, removals, expansions, sweeps.

use super::Pool;
use crate::expand::run::{ExpandParameters, ExpandStatus};
use crate::rebuild::{RebuildParameters, RebuildStatus};
use crate::removal::run::{RemovalParameters, RemovalStatus};
use crate::spa::checkpoint::CheckpointStatus;
use crate::spa::multihost::{BeatRecord, MultihostTunables};
use crate::sweep::{SweepAction, SweepKind, SweepParameters, SweepStatus};
use crate::sync::checkpoint::Wish;
use crate::{PoolError, heartbeat};
use kstat::Records;
use ondisk::{Guid, Txg};
use scan::{Damaged, ErrorScrubStatus, ScanError, ScanStatus, ScanTunables};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Pool {
    /// Begins a resilver when leaves in use lack what none that runs brings them; it goes on by itself, except under executors
    /// without threads: see [`Pool::scrub_drive`].
    pub fn resilver_stale(&self) -> Result<(), PoolError> {
        // A rebuild goes first, and begins the resilver that is still needed when it ended.
        if self.rebuilds.is_active() { Ok(()) } else { self.resilvers.begin_stale() }
    }
    /// A resilver is about to begin, or a device is coming that may need one.
    pub fn is_resilver_wanted(&self) -> bool {
        self.scan.is_resilver_wanted() || self.vdevs.has_arrivals()
    }
    /// Begins a scrub, or goes on with a paused one. Errors: [`scan::ScanError::Running`], [`scan::ScanError::Resilvering`].
    pub fn scrub_start(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.check_not_rebuilding()?;
        Ok(self.scan.start(Txg::ZERO)?)
    }
    fn check_not_rebuilding(&self) -> Result<(), PoolError> {
        if self.rebuilds.is_unfinished() { Err(ScanError::Resilvering.into()) } else { Ok(()) }
    }
    /// As [`Pool::scrub_start`], of what was born since the last complete scrub only (`zpool scrub -C`).
    pub fn scrub_start_from_last(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.check_not_rebuilding()?;
        Ok(self.scan.start(self.scan.last_scrubbed()?)?)
    }
    /// The txg up to which the last complete scrub verified everything; 0 when there was none.
    pub fn last_scrubbed_txg(&self) -> Result<Txg, PoolError> {
        Ok(self.scan.last_scrubbed()?)
    }
    /// Begins to read again what the error log has, or goes on with it (`zpool scrub -e`). Errors: those of [`scan::Scan::start_errors`].
    pub fn scrub_errors(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.check_not_rebuilding()?;
        Ok(self.scan.start_errors()?)
    }
    /// Begins the resilver that runs again, with all that leaves in use lack; nothing happens when they lack nothing (`zpool resilver`).
    /// Errors: [`PoolError::NeedsFeature`] without the feature `resilver_defer`.
    pub fn resilver_restart(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.resilvers.restart()
    }
    /// Pauses the scrub or error scrub that runs; its place is kept, across imports too. Errors: [`scan::ScanError::NotRunning`],
    /// [`scan::ScanError::Paused`], [`scan::ScanError::ErrorScrubPaused`].
    pub fn scrub_pause(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        Ok(self.scan.pause()?)
    }
    /// Ends the scrub that runs or is paused. Errors: [`scan::ScanError::NotRunning`].
    pub fn scrub_stop(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.check_not_rebuilding()?;
        Ok(self.scan.stop()?)
    }
    /// The last or current scan; None when the pool never had one.
    pub fn scan_status(&self) -> Option<ScanStatus> {
        self.scan.status()
    }
    /// Leaves to which something was brought since the scrub that runs began, or its pool was imported; none while no scrub runs.
    pub fn repaired_leaves(&self) -> BTreeSet<Guid> {
        self.scan.repaired_leaves()
    }
    /// The last or current error scrub; None when a scrub or resilver came after it.
    pub fn error_scrub_status(&self) -> Option<ErrorScrubStatus> {
        self.scan.error_scrub_status()
    }
    /// The blocks that are known to be damaged for good, each as often as data sets have it.
    pub fn damaged(&self) -> Result<Vec<Damaged>, PoolError> {
        Ok(self.scan.damaged_blocks()?.1)
    }
    /// Number of different blocks known to be damaged for good, and their places.
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
        self.spa.check_writeable()?;
        self.scan.run();
        Ok(())
    }
    /// Bounds the blocks that a scan finds before it reads them; 0 means by memory.
    pub fn scrub_queue_max(&self, blocks: usize) {
        self.scan.set_queue_max(blocks);
    }
    /// Does a part of it: ends after `blocks` blocks of data were read, with others found and not read.
    pub fn scrub_drive_reads(&self, blocks: usize) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.scan.run_reads(blocks);
        Ok(())
    }
    /// Does a part of it: reads about `blocks` blocks of data.
    pub fn scrub_drive_part(&self, blocks: usize) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.scan.run_part(blocks);
        Ok(())
    }
    /// The last or current sequential rebuild of every top-level vdev that had one.
    pub fn rebuild_status(&self) -> Vec<RebuildStatus> {
        self.rebuilds.status()
    }
    /// True while a vdev is being rebuilt, and until the resilver that brings the rest was begun.
    pub fn is_rebuilding(&self) -> bool {
        self.rebuilds.is_unfinished() || (self.rebuilds.is_busy() && self.tree().resilver_range().is_some())
    }
    /// True when nothing is left to rebuild, and the scrub that follows was not begun yet.
    pub fn is_rebuild_ending(&self) -> bool {
        self.rebuilds.is_busy()
    }
    /// The knobs of sequential rebuilds.
    pub fn rebuild_parameters(&self) -> &RebuildParameters {
        &self.rebuilds.parameters
    }
    /// Lets no rebuild make progress, or all of them again (OpenZFS: `zfs_scan_suspend_progress`).
    pub fn suspend_rebuilds(&self, suspended: bool) {
        self.rebuilds.suspend(suspended);
    }
    /// Waits until nothing is rebuilt any more. Does the work where there is no thread for it.
    pub fn rebuild_wait(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.rebuilds.run(None);
        self.rebuilds.wait();
        Ok(())
    }
    /// Does a part of the work on this thread: begins at most `parts` parts.
    pub fn rebuild_drive_part(&self, parts: usize) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.rebuilds.run(Some(parts));
        Ok(())
    }
    /// Keeps the state that the pool has now, so that an import can go back to it ([`crate::Rewind::Checkpoint`]): blocks of it stay allocated when they
    /// are freed. Waits until it is on disk (OpenZFS: `spa_checkpoint`).
    ///
    /// # Errors
    /// [`PoolError::CheckpointExists`], [`PoolError::DiscardingCheckpoint`]; [`PoolError::NeedsFeature`] without the feature `zpool_checkpoint`, and
    /// [`PoolError::VdevTooBig`] without `spacemap_v2`, of a vdev that is too large; [`PoolError::Target`] while a vdev is removed.
    pub fn make_checkpoint(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.spa.check_no_checkpoint()?;
        self.expansions.check_none()?;
        // All that was done so far is of it.
        self.sync()?;
        self.checkpoints.submit(&self.spa.txgs, Wish::Make)
    }
    /// Gives the checkpoint up, and waits until that is on disk; the txgs that follow free its space (OpenZFS: `spa_checkpoint_discard`).
    ///
    /// # Errors
    /// [`PoolError::NoCheckpoint`], [`PoolError::DiscardingCheckpoint`].
    pub fn discard_checkpoint(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.checkpoints.submit(&self.spa.txgs, Wish::Discard)
    }
    /// The checkpoint, or the one that is being discarded.
    pub fn checkpoint(&self) -> Option<CheckpointStatus> {
        self.spa.services.checkpoint.status()
    }
    /// Has a txg look at so many bytes of the checkpoint's space maps while it is discarded (OpenZFS: `zfs_spa_discard_memory_limit`).
    pub fn limit_discard(&self, bytes: u64) {
        self.checkpoints.limit_discard(bytes);
    }
    /// Writes a heartbeat of a pool whose property `multihost` is on, and says after how many nanoseconds the next one is due; by itself where there
    /// are threads. Suspends the pool when heartbeats have failed for too long.
    pub fn beat(&self) -> u64 {
        self.heartbeat.beat()
    }
    /// Changes how often heartbeats are written, and for how long they may fail.
    pub fn tune_multihost(&self, tunables: MultihostTunables) {
        self.spa.multihost.tune(tunables);
    }
    /// The newest heartbeats, as many as the tunables say (OpenZFS: the statistic `multihost`).
    pub fn heartbeats(&self) -> &Arc<Records<BeatRecord>> {
        self.spa.multihost.history()
    }
    /// Looks, where a pool with the property `multihost` was suspended, whether another host has written to its devices, and lets it be written again if
    /// none has; [`Pool::clear`] resumes it then. Waits for as long as an import looks for activity.
    ///
    /// # Errors
    /// [`PoolError::ActiveElsewhere`].
    pub fn make_sure_of_devices(&self) -> Result<(), PoolError> {
        heartbeat::make_sure(&self.spa)
    }
    /// Starts, stops or ends sweeps of leaves, and waits until that is written; the answers are in their order.
    pub fn sweep(&self, kind: SweepKind, leaves: &[Guid], action: SweepAction) -> Result<Vec<Result<(), PoolError>>, PoolError> {
        self.spa.check_writeable()?;
        let done: Vec<_> = leaves.iter().map(|leaf| self.sweeps.act(kind, *leaf, action)).collect();
        if done.iter().any(Result::is_ok) {
            self.sync()?;
            self.sweeps.spawn();
        }
        Ok(done)
    }
    /// The last or current sweep of every leaf that had one.
    pub fn sweep_status(&self) -> Vec<SweepStatus> {
        self.sweeps.status()
    }
    /// The knobs of initializing and trimming.
    pub fn sweep_parameters(&self) -> &SweepParameters {
        &self.sweeps.parameters
    }
    /// Waits until nothing is swept any more. Does the work where there is no thread for it.
    pub fn sweep_wait(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.sweeps.run(None);
        self.sweeps.wait();
        Ok(())
    }
    /// Does a part of the work on this thread: at most `windows` pieces of the vdevs' space.
    pub fn sweep_drive_part(&self, windows: usize) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.sweeps.run(Some(windows));
        Ok(())
    }
    /// Trims what became free since the last time, where the pool's property `autotrim` is on; by itself where there are threads.
    pub fn autotrim_drive(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.sweeps.auto_pass();
        Ok(())
    }
    /// The last or current expansion of a RAID-Z vdev; None of a pool that never had one.
    pub fn expand_status(&self) -> Option<ExpandStatus> {
        self.expansions.status()
    }
    /// True while a RAID-Z vdev is being expanded.
    pub fn is_expanding(&self) -> bool {
        self.expansions.is_active()
    }
    /// The knobs of expansions.
    pub fn expand_parameters(&self) -> &ExpandParameters {
        &self.expansions.parameters
    }
    /// Does the work of an expansion on this thread where there is no thread for it: that of so many txgs, or all.
    pub fn expand_drive(&self, txgs: Option<usize>) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.expansions.run(txgs);
        Ok(())
    }
    /// The last or current removal; None of a pool that never had one.
    pub fn removal_status(&self) -> Option<RemovalStatus> {
        self.removals.status()
    }
    /// Bytes of memory that where the contents of a top-level vdev are would take, were it removed, about.
    ///
    /// # Errors
    /// [`PoolError::NoSuchDevice`].
    pub fn removal_memory(&self, guid: Guid) -> Result<u64, PoolError> {
        self.removals.memory_estimate(guid)
    }
    /// True while a vdev is being removed.
    pub fn is_removing(&self) -> bool {
        self.removals.is_active()
    }
    /// The knobs of removals.
    pub fn removal_parameters(&self) -> &RemovalParameters {
        &self.removals.parameters
    }
    /// Waits until nothing is removed any more. Does the work where there is no thread for it.
    pub fn removal_wait(&self) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.removals.run(None);
        self.removals.wait();
        Ok(())
    }
    /// Does a part of the work on this thread: that of so many txgs.
    pub fn removal_drive_part(&self, txgs: usize) -> Result<(), PoolError> {
        self.spa.check_writeable()?;
        self.removals.run(Some(txgs));
        Ok(())
    }
}
