//! Error scrub: reads again only what the error log has (OpenZFS: `dsl_errorscrub_sync`). What reads well now, or is gone, leaves the log.
//!
//! The work is done by the sync, a bounded number of blocks per txg: so no block that it reads is given away meanwhile. The scan's loop
//! has one txg follow the other until the end. The state is a record in the pool's directory, as OpenZFS keeps it; the place in the log
//! is not (`dep_cursor` stays 0), so one that goes on after an import reads the log from its beginning.

use crate::ScanError;
use crate::errlog::{ErrorLog, LogEntry, LoggedBlock, Which};
use crate::lookup::Found;
use crate::queue::scan_read;
use crate::record::DIRECTORY;
use crate::scan::Scan;
use dmu::{Objset, Tx};
use ondisk::{BlockPtr, Bookmark, ErrorScrubPhys, ObjsetId, scan_func, scan_state};
use std::collections::BTreeSet;
use std::sync::Arc;
use zap::{Value, Zap};

/// The state's name in the directory (OpenZFS: `DMU_POOL_ERRORSCRUB`).
const ERROR_SCRUB: &str = "error_scrub";
/// Entries looked at in one txg (OpenZFS: `zfs_scrub_error_blocks_per_txg`, 4096).
const BLOCKS_PER_TXG: usize = 512;

/// The error scrub of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorScrub {
    pub(crate) phys: ErrorScrubPhys,
    /// Seconds since the epoch when it was paused.
    pub(crate) paused_since: Option<u64>,
    /// What was read and is still damaged.
    seen: BTreeSet<LogEntry>,
}

impl ErrorScrub {
    /// It runs, or is paused.
    pub(crate) fn is_scrubbing(&self) -> bool {
        self.phys.dep_func == scan_func::ERRORSCRUB && self.phys.dep_state == scan_state::ERRORSCRUBBING
    }
    pub(crate) fn is_paused(&self) -> bool {
        self.phys.dep_paused_flags != 0
    }
    /// There is work for it.
    pub(crate) fn is_active(&self) -> bool {
        self.is_scrubbing() && !self.is_paused()
    }

    /// Reads the state.
    pub(crate) fn load(mos: &Arc<Objset>, now: u64) -> Result<ErrorScrub, ScanError> {
        let phys = match Zap::hold(mos, DIRECTORY)?.try_lookup(ERROR_SCRUB)? {
            Some(Value::U64(words)) => ErrorScrubPhys::from_words(&words),
            _ => ErrorScrubPhys::default(),
        };
        let scrub = ErrorScrub { phys, ..ErrorScrub::default() };
        let paused_since = (scrub.is_scrubbing() && scrub.is_paused()).then_some(now);
        Ok(ErrorScrub { paused_since, ..scrub })
    }
}

/// What a user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorScrubRequest {
    Start,
    Pause,
    Resume,
    Stop,
}

impl Scan {
    fn store_errorscrub(&self, phys: &ErrorScrubPhys, tx: &Tx) -> Result<(), ScanError> {
        Ok(Zap::hold(&self.mos, DIRECTORY)?.update(ERROR_SCRUB, &Value::U64(phys.to_words().to_vec()), tx)?)
    }

    /// Does what was asked for, in syncing context.
    pub(crate) fn errorscrub_asked(&self, request: ErrorScrubRequest, tx: &Tx) -> Result<(), ScanError> {
        let now = self.exec().wall_clock().0 as u64;
        let mut scrub = self.shared.lock().errorscrub.clone();
        match request {
            ErrorScrubRequest::Start => {
                let phys = ErrorScrubPhys {
                    dep_func: scan_func::ERRORSCRUB,
                    dep_state: scan_state::ERRORSCRUBBING,
                    dep_start_time: now,
                    dep_to_examine: ErrorLog::new(&self.mos).last_count()?,
                    ..ErrorScrubPhys::default()
                };
                scrub = ErrorScrub { phys, ..ErrorScrub::default() };
                let text = format!("func={} mintxg=0 maxtxg={}", scan_func::ERRORSCRUB, tx.txg());
                self.host.log("error scrub setup", &text, tx);
            }
            ErrorScrubRequest::Pause => (scrub.phys.dep_paused_flags, scrub.paused_since) = (1, Some(now)),
            ErrorScrubRequest::Resume => (scrub.phys.dep_paused_flags, scrub.paused_since) = (0, None),
            ErrorScrubRequest::Stop => return self.errorscrub_end(scan_state::CANCELED, tx),
        }
        self.store_errorscrub(&scrub.phys, tx)?;
        self.shared.lock().errorscrub = scrub;
        Ok(())
    }

    /// Ends the error scrub that runs, if any (OpenZFS: `dsl_errorscrub_done`).
    pub(crate) fn errorscrub_end(&self, state: u64, tx: &Tx) -> Result<(), ScanError> {
        let mut scrub = self.shared.lock().errorscrub.clone();
        if !scrub.is_scrubbing() {
            return Ok(());
        }
        scrub.phys.dep_state = state;
        (scrub.phys.dep_end_time, scrub.phys.dep_paused_flags) = (self.exec().wall_clock().0 as u64, 0);
        let name = if state == scan_state::FINISHED { "error scrub done" } else { "error scrub canceled" };
        let left = ErrorLog::new(&self.mos).entries()?.len();
        self.host.log(name, &format!("errors={left}"), tx);
        self.store_errorscrub(&scrub.phys, tx)?;
        self.shared.lock().errorscrub = ErrorScrub { phys: scrub.phys, ..ErrorScrub::default() };
        Ok(())
    }

    /// A scrub begins: the state of the last error scrub is erased (OpenZFS: `dsl_scan_setup_sync`).
    pub(crate) fn errorscrub_forget(&self, tx: &Tx) -> Result<(), ScanError> {
        if self.shared.lock().errorscrub.phys != ErrorScrubPhys::default() {
            self.store_errorscrub(&ErrorScrubPhys::default(), tx)?;
            self.shared.lock().errorscrub = ErrorScrub::default();
        }
        Ok(())
    }

    /// Reads some of the log's blocks, in syncing context.
    pub(crate) fn errorscrub_some(&self, tx: &Tx) -> Result<(), ScanError> {
        let mut scrub = self.shared.lock().errorscrub.clone();
        if !scrub.is_active() || self.is_suspended() {
            return Ok(());
        }
        let log = ErrorLog::new(&self.mos);
        let todo: Vec<LogEntry> =
            log.entries()?.into_iter().filter(|entry| entry.which == Which::Last && !scrub.seen.contains(entry)).collect();
        let mut well = Vec::new();
        for entry in todo.iter().take(BLOCKS_PER_TXG) {
            if self.reads_well(entry) {
                well.push(*entry);
            } else {
                scrub.phys.dep_errors += 1;
                scrub.seen.insert(*entry);
            }
            scrub.phys.dep_examined += 1;
            scrub.phys.dep_to_examine = scrub.phys.dep_to_examine.saturating_sub(1);
        }
        log.remove(&well, tx)?;
        self.store_errorscrub(&scrub.phys, tx)?;
        self.shared.lock().errorscrub = scrub;
        if todo.len() <= BLOCKS_PER_TXG { self.errorscrub_end(scan_state::FINISHED, tx) } else { Ok(()) }
    }

    /// True when nobody has a damaged block there any more. Repairs what can be repaired.
    fn reads_well(&self, entry: &LogEntry) -> bool {
        let holders = self.holders_of(&entry.block);
        let read = |(objset, bp): &(ObjsetId, Option<BlockPtr>)| {
            let Some(bp) = bp else { return false };
            let at = Bookmark { objset: *objset, ..entry.block.place() };
            self.zio().read_wait(scan_read(*bp, at, false)).is_ok()
        };
        let mut read_before = BTreeSet::new();
        // Those who share a block share its address.
        holders.iter().filter(|(_, bp)| bp.is_none_or(|bp| read_before.insert((bp.dva(0).vdev, bp.dva(0).offset)))).all(read)
    }

    /// Everybody who has the block of an entry.
    pub(crate) fn holders_of(&self, block: &LoggedBlock) -> Vec<(ObjsetId, Option<BlockPtr>)> {
        match block {
            LoggedBlock::OfHead(head, block) => self.holders(*head, block),
            LoggedBlock::At(at) => {
                let root = match at.objset.0 {
                    0 => self.mos.root_bp(),
                    objset => match crate::datasets::phys(&self.mos, objset) {
                        Ok(Some(phys)) => phys.ds_bp,
                        Ok(None) => return Vec::new(),
                        Err(_) => return vec![(at.objset, None)],
                    },
                };
                match self.find(&root, at) {
                    Found::Block(bp) => vec![(at.objset, Some(bp))],
                    Found::Nothing => Vec::new(),
                    Found::Unknown => vec![(at.objset, None)],
                }
            }
        }
    }
}
