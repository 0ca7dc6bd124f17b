//! Error scrub: reads again only what the error log has (OpenZFS: `dsl_errorscrub_sync`). What reads well now, or is gone, leaves the log.
//!
//! The work is done by the sync, for a bounded time and number of blocks per txg: so no block that it reads is given away meanwhile. The scan's
//! loop has one txg follow the other until the end.

use crate::ScanError;
use crate::errlog::{ErrorLog, LogEntry, Which};
use crate::errorscrub::{ErrorScrub, ErrorScrubRequest};
use crate::queue::scan_read;
use crate::scan::{Scan, ScanTunables};
use dmu::Tx;
use ondisk::{BlockPtr, Bookmark, ErrorScrubPhys, ObjsetId, scan_func, scan_state};
use std::collections::BTreeSet;

/// The error scrub's part of a txg's sync.
pub(crate) struct Reread<'a> {
    pub(crate) scan: &'a Scan,
}

impl Reread<'_> {
    /// Does what was asked for, in syncing context.
    pub(crate) fn asked(&self, request: ErrorScrubRequest, tx: &Tx) -> Result<(), ScanError> {
        let now = self.scan.exec().wall_clock().0 as u64;
        let mut scrub = self.scan.shared.lock().errorscrub.clone();
        match request {
            ErrorScrubRequest::Start => {
                let phys = ErrorScrubPhys {
                    dep_func: scan_func::ERRORSCRUB,
                    dep_state: scan_state::ERRORSCRUBBING,
                    dep_start_time: now,
                    dep_to_examine: ErrorLog::new(&self.scan.mos).last_count()?,
                    ..ErrorScrubPhys::default()
                };
                scrub = ErrorScrub { phys, ..ErrorScrub::default() };
                let text = format!("func={} mintxg=0 maxtxg={}", scan_func::ERRORSCRUB, tx.txg());
                self.scan.host.log("error scrub setup", &text, tx);
            }
            ErrorScrubRequest::Pause => (scrub.phys.dep_paused_flags, scrub.paused_since) = (1, Some(now)),
            ErrorScrubRequest::Resume => (scrub.phys.dep_paused_flags, scrub.paused_since) = (0, None),
            ErrorScrubRequest::Stop => return self.end(scan_state::CANCELED, tx),
        }
        ErrorScrub::store(&scrub.phys, &self.scan.mos, tx)?;
        self.scan.shared.lock().errorscrub = scrub;
        Ok(())
    }

    /// Ends the error scrub that runs, if any (OpenZFS: `dsl_errorscrub_done`).
    pub(crate) fn end(&self, state: u64, tx: &Tx) -> Result<(), ScanError> {
        let mut scrub = self.scan.shared.lock().errorscrub.clone();
        if !scrub.is_scrubbing() {
            return Ok(());
        }
        scrub.phys.dep_state = state;
        (scrub.phys.dep_end_time, scrub.phys.dep_paused_flags) = (self.scan.exec().wall_clock().0 as u64, 0);
        let name = if state == scan_state::FINISHED { "error scrub done" } else { "error scrub canceled" };
        let left = ErrorLog::new(&self.scan.mos).entries()?.len();
        self.scan.host.log(name, &format!("errors={left}"), tx);
        ErrorScrub::store(&scrub.phys, &self.scan.mos, tx)?;
        self.scan.shared.lock().errorscrub = ErrorScrub { phys: scrub.phys, ..ErrorScrub::default() };
        Ok(())
    }

    /// A scrub begins: the state of the last error scrub is erased (OpenZFS: `dsl_scan_setup_sync`).
    pub(crate) fn forget(&self, tx: &Tx) -> Result<(), ScanError> {
        if self.scan.shared.lock().errorscrub.phys != ErrorScrubPhys::default() {
            ErrorScrub::store(&ErrorScrubPhys::default(), &self.scan.mos, tx)?;
            self.scan.shared.lock().errorscrub = ErrorScrub::default();
        }
        Ok(())
    }

    /// Reads some of the log's blocks, in syncing context (OpenZFS: `dsl_error_scrub_check_suspend`; the loop always waits for the sync).
    pub(crate) fn some(&self, tx: &Tx) -> Result<(), ScanError> {
        let mut scrub = self.scan.shared.lock().errorscrub.clone();
        if !scrub.is_active() || self.scan.is_suspended() {
            return Ok(());
        }
        let log = ErrorLog::new(&self.scan.mos);
        let todo: Vec<LogEntry> =
            log.entries()?.into_iter().filter(|entry| entry.which == Which::Last && !scrub.seen.contains(entry)).collect();
        let ScanTunables { error_blocks_per_txg, scrub_min_time_ms, .. } = self.scan.tunables();
        let until_ns = self.scan.exec().now_ns().saturating_add(scrub_min_time_ms.saturating_mul(1_000_000));
        let (mut well, mut count) = (Vec::new(), 0);
        for entry in todo.iter().take(error_blocks_per_txg.max(1) as usize) {
            if self.reads_well(entry) {
                well.push(*entry);
            } else {
                scrub.phys.dep_errors += 1;
                scrub.seen.insert(*entry);
            }
            scrub.phys.dep_examined += 1;
            scrub.phys.dep_to_examine = scrub.phys.dep_to_examine.saturating_sub(1);
            count += 1;
            if self.scan.exec().now_ns() >= until_ns {
                break;
            }
        }
        log.remove(&well, tx)?;
        ErrorScrub::store(&scrub.phys, &self.scan.mos, tx)?;
        self.scan.shared.lock().errorscrub = scrub;
        if count == todo.len() { self.end(scan_state::FINISHED, tx) } else { Ok(()) }
    }

    /// True when nobody has a damaged block there any more. Repairs what can be repaired.
    fn reads_well(&self, entry: &LogEntry) -> bool {
        let holders = self.scan.lookup().holders_of(&entry.block);
        let read = |(objset, bp): &(ObjsetId, Option<BlockPtr>)| {
            let Some(bp) = bp else { return false };
            let at = Bookmark { objset: *objset, ..entry.block.place() };
            self.scan.zio().read_wait(scan_read(*bp, at, false)).is_ok()
        };
        let mut read_before = BTreeSet::new();
        // Those who share a block share its address.
        holders.iter().filter(|(_, bp)| bp.is_none_or(|bp| read_before.insert((bp.dva(0).vdev, bp.dva(0).offset)))).all(read)
    }
}
