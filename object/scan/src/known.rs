//! What is known of a scan at any time: its status, and the blocks that are damaged for good.

use crate::errlog::{ErrorLog, LogEntry, LoggedBlock, Which};
use crate::scan::Scan;
use crate::{Damaged, ErrorScrubStatus, ScanError, ScanState, ScanStatus};
use abd::Abd;
use ondisk::{BlockPtr, Bookmark, Guid};
use std::collections::{BTreeMap, BTreeSet};
use zio::{ErrorKind, ZioError};

/// Blocks of the error log that are looked for each time it is shown; the others are taken to be there still.
const CHECKED_MAX: usize = 1000;

impl Scan {
    /// The scan as of now; None when the pool never had one.
    pub fn status(&self) -> Option<ScanStatus> {
        let (phys, paused_since, repaired, pass) = {
            let shared = self.shared.lock();
            let repaired = self.repaired_since(shared.repaired_base).max(shared.repaired_shown);
            (shared.phys.clone(), shared.paused_since, repaired, shared.pass)
        };
        let done = self.progress.counters();
        let status = ScanStatus {
            pass_start: pass.start,
            pass_examined: done.examined.saturating_sub(pass.before.examined),
            pass_issued: done.issued.saturating_sub(pass.before.issued),
            pass_spent_paused: pass.spent_paused,
            ..ScanStatus::from_phys(&phys)?
        };
        if status.state != ScanState::Scanning {
            return Some(status);
        }
        let shown = self.progress.shown();
        let (examined_rate, rate) = if paused_since.is_some() { (0, 0) } else { self.progress.rates(self.exec().now_ns()) };
        let status = ScanStatus {
            examined: shown.examined.min(phys.scn_to_examine),
            skipped: shown.skipped,
            errors: shown.errors,
            repaired,
            examined_rate,
            rate,
            paused_since,
            ..status
        };
        let total = status.to_issue();
        let seconds_left = total.saturating_sub(done.issued).checked_div(rate);
        Some(ScanStatus { issued: shown.issued.min(total), seconds_left, ..status })
    }

    /// Bytes that the leaves have repaired so far.
    pub(crate) fn repaired_total(&self) -> u64 {
        self.zio().repaired_bytes()
    }
    pub(crate) fn repaired_since(&self, base: i128) -> u64 {
        u64::try_from(i128::from(self.repaired_total()) - base).unwrap_or(0)
    }

    /// Bytes that each leaf in use has repaired so far.
    pub(crate) fn repaired_by_leaf(&self) -> BTreeMap<Guid, u64> {
        let tree = self.zio().view().tree;
        let repaired = |guid: Guid| self.zio().leaf_stats_of(guid).counts().repaired_bytes;
        tree.leaves.iter().map(|leaf| (leaf.guid, repaired(leaf.guid))).collect()
    }

    /// Leaves to which something was brought since the scrub that runs began, or its pool was imported (OpenZFS: `vs_scan_processed`); none while no
    /// scrub runs.
    pub fn repaired_leaves(&self) -> BTreeSet<Guid> {
        let before = {
            let shared = self.shared.lock();
            if !shared.is_scanning() || shared.is_resilvering() {
                return BTreeSet::new();
            }
            shared.repaired_before.clone()
        };
        let is_repaired = |(leaf, bytes): &(Guid, u64)| *bytes > before.get(leaf).copied().unwrap_or(0);
        self.repaired_by_leaf().into_iter().filter(is_repaired).map(|(leaf, _)| leaf).collect()
    }

    /// The error scrub that runs or was the last; None when a scrub or resilver came after it.
    pub fn error_scrub_status(&self) -> Option<ErrorScrubStatus> {
        ErrorScrubStatus::of(&self.shared.lock().errorscrub)
    }

    /// The blocks known to be damaged for good: of the scan that runs and of the last one (OpenZFS: `spa_get_errlog`). Each as often as
    /// data sets have it: snapshots and clones share blocks. What was freed or rewritten everywhere is not among them, and leaves the log.
    /// Given with the number of different blocks.
    pub fn damaged_blocks(&self) -> Result<(u64, Vec<Damaged>), ScanError> {
        let log = ErrorLog::new(&self.mos);
        let mut entries = log.entries()?;
        let by_head = self.host.has_head_errlog();
        if by_head && entries.iter().any(LogEntry::is_old) {
            self.log_by_head();
        }
        let mut waiting = self.shared.lock().damaged.clone();
        waiting.extend(self.lost.list());
        entries.extend(waiting.iter().map(|block| log.entry_of(Which::Scrub, block, by_head)));
        let mut by_block: BTreeMap<LoggedBlock, Vec<LogEntry>> = BTreeMap::new();
        entries.into_iter().for_each(|entry| by_block.entry(entry.block).or_default().push(entry));
        let (mut blocks, mut count) = (Vec::new(), 0);
        for (index, (block, logged)) in by_block.into_iter().enumerate() {
            let at = block.place();
            let holders = if index < CHECKED_MAX { self.lookup().holders_of(&block) } else { vec![(at.objset, None)] };
            if holders.is_empty() {
                self.shared.lock().gone.extend(logged);
                continue;
            }
            count += 1;
            let of = |(objset, _)| Damaged { objset, object: at.object, level: at.level, block: at.block };
            blocks.extend(holders.into_iter().map(of));
        }
        blocks.sort_unstable();
        blocks.dedup();
        Ok((count, blocks))
    }

    /// Has the error log kept by head dataset from the sync under way, or the next one: the feature `head_errlog` was enabled (OpenZFS:
    /// `spa_upgrade_errlog`).
    pub fn log_by_head(&self) {
        self.shared.lock().upgrade_wanted = true;
    }

    /// A block is damaged for good.
    pub(crate) fn damaged(&self, bp: &BlockPtr, at: &Bookmark) {
        self.progress.error();
        let mut shared = self.shared.lock();
        shared.damaged.push((*at, bp.birth()));
        if let Some(failed) = &mut shared.failed {
            failed.insert(bp.physical_birth());
        }
    }

    /// The outcome of reading a queued block.
    pub(crate) fn block_read(&self, bp: &BlockPtr, at: &Bookmark, result: Result<Abd, ZioError>) {
        match result {
            Err(error) if error.kind != ErrorKind::Unsupported && !self.frees.contains(bp) => self.damaged(bp, at),
            _ => {}
        }
        self.progress.issued(bp.asize());
    }
}
