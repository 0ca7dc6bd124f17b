//! The scan's part of a txg's sync: requests, the state on disk, and the next view of the pool (OpenZFS: `dsl_scan_sync`).
//!
//! It runs after the datasets of the txg were written and before the MOS is, with nothing of the scan in flight. So the roots
//! that it hands out are those of the txg (of the txg before for the MOS), and every block below them stays where it is until
//! the gate was closed again.

use crate::cursor::{Cursor, Position};
use crate::datasets;
use crate::errlog::{ErrorLog, Which, unless_damaged};
use crate::progress::{Counters, Pass};
use crate::record::{self, DIRECTORY, LAST_SCRUBBED};
use crate::reread::Reread;
use crate::scan::{Checkpoint, Request, Scan, View};
use crate::{ScanError, ScanFunction, ScanOutcome, record::Queued, record::set_cursor};
use dmu::{SyncError, Tx};
use ondisk::{Bookmark, DdtBookmark, DslScanPhys, ObjectType, Txg, scan_flags, scan_func, scan_state};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zap::Zap;

/// Datasets whose roots a view has: what the walk can visit before it needs another.
const ROOTS_MAX: usize = 256;

impl Scan {
    /// Takes part in the sync of a txg. Called by the pool once per txg.
    pub fn sync(&self, tx: &Tx) -> Result<(), SyncError> {
        {
            let shared = self.shared.lock();
            let asked = shared.request.is_some() || shared.resilver_wanted || shared.upgrade_wanted;
            let busy = shared.is_scanning() || shared.errorscrub.is_active() || !shared.gone.is_empty();
            if !asked && !busy && shared.damaged.is_empty() && self.lost.is_empty() {
                return Ok(());
            }
        }
        self.leave_its_time(tx.txg());
        self.gate.close(self.exec());
        let result = self.sync_alone(tx).map_err(ScanError::into_sync);
        self.open_gate();
        self.changed.notify_all();
        result
    }

    fn sync_alone(&self, tx: &Tx) -> Result<(), ScanError> {
        let (request, gone) = {
            let mut shared = self.shared.lock();
            (shared.request.take(), std::mem::take(&mut shared.gone))
        };
        self.sync_damaged(tx)?;
        self.upgrade_if_wanted(tx)?;
        unless_damaged("take out what is right again", ErrorLog::new(&self.mos).remove(&gone, tx))?;
        match request {
            Some(Request::Start(after)) => self.begin(scan_func::SCRUB, (after, tx.txg()), tx)?,
            Some(Request::Pause) => self.pause_now(),
            Some(Request::Resume) => self.resume_now(),
            Some(Request::Stop) => self.end(scan_state::CANCELED, tx)?,
            Some(Request::ErrorScrub(request)) => Reread { scan: self }.asked(request, tx)?,
            None => Reread { scan: self }.some(tx)?,
        }
        self.take_in_who_waits();
        self.resilver_if_wanted(tx)?;
        let (scanning, complete) = {
            let shared = self.shared.lock();
            (shared.is_scanning(), shared.complete)
        };
        if scanning && complete {
            self.end(scan_state::FINISHED, tx)?;
        } else if scanning {
            self.renew_view(tx)?;
            self.store(tx)?;
        }
        Ok(())
    }

    /// Wants the resilver that goes on begun again for leaves that wait for its end, where it has not come so far that they have to: the parameters may
    /// say something else than when they came.
    fn take_in_who_waits(&self) {
        let goes_on = {
            let shared = self.shared.lock();
            shared.is_resilvering() && !shared.complete && !shared.halted
        };
        let waits = |leaf: &vdev::Leaf| leaf.resilver_deferred && leaf.state.is_usable();
        if goes_on && self.zio().view().tree.leaves.iter().any(waits) && !self.defers_resilvers() {
            self.shared.lock().resilver_wanted = true;
        }
    }

    /// Begins the resilver that was asked for. A scan that runs is ended for it, and its loop must have ended too
    /// (OpenZFS: `dsl_scan_restart_resilver`).
    fn resilver_if_wanted(&self, tx: &Tx) -> Result<(), ScanError> {
        if !self.shared.lock().resilver_wanted {
            return Ok(());
        }
        let range = self.zio().view().tree.resilver_range();
        if range.is_some() {
            self.end(scan_state::CANCELED, tx)?;
        }
        match range {
            Some(_) if self.shared.lock().running => return Ok(()),
            Some(range) => self.begin(scan_func::RESILVER, range, tx)?,
            None => {}
        }
        self.shared.lock().resilver_wanted = false;
        Ok(())
    }

    fn sync_damaged(&self, tx: &Tx) -> Result<(), ScanError> {
        let damaged = std::mem::take(&mut self.shared.lock().damaged);
        let (log, by_head) = (ErrorLog::new(&self.mos), self.host.has_head_errlog());
        if !unless_damaged("add what a scan found", log.add(Which::Scrub, &damaged, by_head, tx))? {
            self.shared.lock().damaged.extend(damaged);
        }
        let which = if self.shared.lock().is_scanning() { Which::Scrub } else { Which::Last };
        let lost = self.lost.list();
        if unless_damaged("add what could not be read", log.add(which, &lost, by_head, tx))? {
            self.lost.forget(&lost);
        }
        Ok(())
    }

    /// Has the error log kept by head dataset where that was asked for, and the pool has the feature.
    fn upgrade_if_wanted(&self, tx: &Tx) -> Result<(), ScanError> {
        let wanted = std::mem::take(&mut self.shared.lock().upgrade_wanted);
        if wanted && self.host.has_head_errlog() {
            let birth_at = |at: &Bookmark| self.lookup().birth_at(at);
            unless_damaged("keep it by head dataset", ErrorLog::new(&self.mos).upgrade(&birth_at, tx))?;
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        self.exec().wall_clock().0 as u64
    }

    /// Begins a scan of what was born after the first and up to the second txg of `range` (OpenZFS: `dsl_scan_setup_sync`).
    fn begin(&self, function: u64, range: (Txg, Txg), tx: &Tx) -> Result<(), ScanError> {
        if self.shared.lock().phys.scn_state == scan_state::SCANNING {
            return Ok(());
        }
        let errors = Reread { scan: self };
        errors.end(scan_state::CANCELED, tx)?;
        errors.forget(tx)?;
        let phys = DslScanPhys {
            scn_func: function,
            scn_state: scan_state::SCANNING,
            scn_queue_obj: zap::create(&self.mos, ObjectType::SCAN_QUEUE, tx)?.0,
            scn_min_txg: range.0.0,
            scn_max_txg: range.1.0,
            scn_start_time: self.now(),
            // Blocks of the dedup table are visited where they are used: nothing of the table is left to walk.
            scn_ddt_bookmark: DdtBookmark { ddb_class: 1, ..DdtBookmark::default() },
            scn_to_examine: self.host.allocated_bytes(),
            ..DslScanPhys::default()
        };
        self.frees.set_active(true);
        self.fed.set_active(function == scan_func::RESILVER);
        self.progress.set(Counters::default(), Counters::default(), self.exec().now_ns());
        let text = format!("func={} mintxg={} maxtxg={}", phys.scn_func, phys.scn_min_txg, phys.scn_max_txg);
        self.host.log("scan setup", &text, tx);
        if function == scan_func::RESILVER {
            self.host.resilver_begins(range.1);
        }
        let repaired_before = self.repaired_by_leaf();
        let mut shared = self.shared.lock();
        (shared.repaired_base, shared.repaired_shown) = (i128::from(self.repaired_total()), 0);
        shared.repaired_before = repaired_before;
        (shared.cursor, shared.checkpoint) = (Cursor::default(), Checkpoint::default());
        shared.failed = Some(BTreeSet::new());
        (shared.complete, shared.paused_since, shared.phys) = (false, None, phys);
        (shared.unclaimed, shared.list) = (!shared.running, Arc::default());
        shared.pass = Pass { start: shared.phys.scn_start_time, ..Pass::default() };
        shared.queued = Queued::default();
        drop(shared);
        self.clear_queue();
        self.checkpoint_ns.store(self.exec().now_ns(), Ordering::Relaxed);
        Ok(())
    }

    fn pause_now(&self) {
        let mut shared = self.shared.lock();
        if shared.is_scanning() {
            shared.phys.scn_flags |= scan_flags::SCRUB_PAUSED;
            shared.paused_since = Some(self.now());
            self.stopping.store(true, Ordering::Release);
        }
    }

    fn resume_now(&self) {
        let mut shared = self.shared.lock();
        shared.phys.scn_flags &= !scan_flags::SCRUB_PAUSED;
        let paused_since = shared.paused_since.take();
        shared.pass.spent_paused += paused_since.map_or(0, |since| self.now().saturating_sub(since));
        self.progress.forget_rates(self.exec().now_ns());
    }

    /// Ends the scrub (OpenZFS: `dsl_scan_done`).
    fn end(&self, state: u64, tx: &Tx) -> Result<(), ScanError> {
        self.stopping.store(true, Ordering::Release);
        let (mut phys, base, failed, restarts) = {
            let shared = self.shared.lock();
            if !shared.is_scanning() {
                return Ok(());
            }
            let restarts = state == scan_state::CANCELED && shared.resilver_wanted;
            (shared.phys.clone(), shared.repaired_base, shared.failed.clone(), restarts)
        };
        if phys.scn_queue_obj != 0 {
            zap::destroy(&self.mos, ondisk::ObjectId(phys.scn_queue_obj), tx)?;
        }
        let Counters { examined, skipped, errors, .. } = self.progress.counters();
        phys.scn_state = state;
        phys.scn_queue_obj = 0;
        phys.scn_flags &= !scan_flags::SCRUB_PAUSED;
        phys.scn_end_time = self.now();
        (phys.scn_examined, phys.scn_errors, phys.scn_processed) = (examined, errors, self.repaired_since(base));
        set_cursor(&mut phys, &Cursor { dataset: Some(0), position: Position::default() }, &[]);
        phys.scn_skipped = skipped;
        record::forget_shown(&self.mos, tx)?;
        if state == scan_state::FINISHED {
            let through = Txg(phys.scn_max_txg);
            let function = if phys.scn_func == scan_func::SCRUB { ScanFunction::Scrub } else { ScanFunction::Resilver };
            if function == ScanFunction::Scrub {
                Zap::hold(&self.mos, DIRECTORY)?.update_u64(LAST_SCRUBBED, through.0, tx)?;
            }
            // A scrub of what was born lately says nothing of the rest.
            let saw_all = function == ScanFunction::Resilver || phys.scn_min_txg == 0;
            if let Some(except) = failed.filter(|_| saw_all) {
                self.host.scanned(&ScanOutcome { function, through, except });
            }
        }
        unless_damaged("end the one of the scan", ErrorLog::new(&self.mos).rotate(tx))?;
        // Devices that came while it ran have waited for its end (OpenZFS: `vdev_clear_resilver_deferred`).
        let tree = self.zio().view().tree;
        let waiting = state == scan_state::FINISHED && tree.leaves.iter().any(|leaf| leaf.resilver_deferred);
        let name = match state {
            scan_state::FINISHED => "scan done",
            _ if restarts => "scan aborted, restarting",
            _ => "scan cancelled",
        };
        self.host.log(name, &format!("errors={errors}"), tx);
        let is_new = |leaf: &vdev::Leaf| leaf.state.is_usable() && !leaf.missing_txgs.is_empty() && leaf.resilver_txg.0 == 0;
        let comes = |leaf: &vdev::Leaf| leaf.resilver_deferred || is_new(leaf);
        if waiting || restarts && phys.scn_func == scan_func::RESILVER && tree.leaves.iter().any(comes) {
            self.host.log("starting deferred resilver", &format!("errors={errors}"), tx);
        }
        record::store(&self.mos, &phys, tx)?;
        self.frees.set_active(false);
        self.fed.set_active(false);
        let mut shared = self.shared.lock();
        (shared.phys, shared.view, shared.complete, shared.paused_since) = (phys, None, false, None);
        shared.resilver_wanted |= waiting;
        drop(shared);
        self.clear_queue();
        Ok(())
    }

    /// Hands the roots as of now to the walk.
    fn renew_view(&self, tx: &Tx) -> Result<(), ScanError> {
        self.add_newer_snapshots()?;
        let items = {
            let shared = self.shared.lock();
            let first = shared.cursor.dataset.unwrap_or(usize::MAX).min(shared.list.len());
            shared.list[first..].iter().take(ROOTS_MAX).copied().collect::<Vec<_>>()
        };
        let mut roots = HashMap::with_capacity(items.len());
        for item in &items {
            roots.insert(item.object, datasets::root(&self.mos, item)?);
        }
        let mut shared = self.shared.lock();
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        shared.view = Some(Arc::new(View { generation, mos_root: self.mos.root_bp(), roots }));
        drop(shared);
        // Nothing is in flight, and nothing is queued any more by an older view. What this txg's sync still frees was found by none or
        // is looked up before it is read, until the next sync comes by here.
        self.drop_freed();
        self.frees.forget_before(tx.txg());
        Ok(())
    }

    /// Snapshots taken since the scan began are put in front of the heads that come next.
    fn add_newer_snapshots(&self) -> Result<(), ScanError> {
        let (heads, until) = {
            let shared = self.shared.lock();
            let first = shared.cursor.dataset.unwrap_or(usize::MAX).min(shared.list.len());
            let heads: Vec<_> = shared.list[first..].iter().take(ROOTS_MAX).filter(|item| item.is_head).copied().collect();
            (heads, Txg(shared.phys.scn_max_txg))
        };
        for head in heads {
            for snapshot in datasets::newer_snapshots(&self.mos, &head, until)? {
                let mut shared = self.shared.lock();
                if !shared.list.contains(&snapshot)
                    && let Some(index) = shared.list.iter().position(|item| *item == head)
                {
                    Arc::make_mut(&mut shared.list).insert(index, snapshot);
                }
            }
        }
        Ok(())
    }

    /// Writes down where a restart goes on from.
    fn store(&self, tx: &Tx) -> Result<(), ScanError> {
        let shown = self.progress.shown();
        let (mut phys, cursor, list, mut queued, repaired) = {
            let mut shared = self.shared.lock();
            let Checkpoint { cursor, counters, repaired } = shared.checkpoint;
            let repaired_now = self.repaired_since(shared.repaired_base);
            (shared.phys.scn_examined, shared.phys.scn_skipped) = (counters.examined, counters.skipped);
            shared.phys.scn_errors = counters.errors;
            // What a scrub repaired stays repaired; a resilver brings again what it brought after the checkpoint.
            shared.phys.scn_processed = if shared.is_resilvering() { repaired } else { repaired_now };
            let repaired_shown = repaired_now.max(shared.repaired_shown);
            (shared.phys.clone(), cursor, shared.list.clone(), std::mem::take(&mut shared.queued), repaired_shown)
        };
        record::store_shown(&self.mos, &phys, (shown, repaired), tx)?;
        record::set_place(&self.mos, &mut phys, &cursor, &list, &mut queued, tx)?;
        record::store(&self.mos, &phys, tx)?;
        let mut shared = self.shared.lock();
        (shared.phys, shared.queued) = (phys, queued);
        Ok(())
    }
}
