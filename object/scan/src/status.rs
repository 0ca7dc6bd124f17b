//! What a scan tells the outside: its function, state, progress and the blocks that it found damaged.
//!
//! Plain values: nothing here changes after it was handed out.

use crate::errorscrub::ErrorScrub;
use ondisk::{BlockId, DslScanPhys, Level, ObjectId, ObjsetId, scan_func, scan_state};

/// Kind of a scan (OpenZFS: `pool_scan_func_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanFunction {
    /// Verifies every copy of every block.
    Scrub,
    /// Rewrites what a leaf missed.
    Resilver,
}

/// State of a scan (OpenZFS: `dsl_scan_state_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanState {
    /// Scan runs, or is paused.
    Scanning,
    /// Scan saw everything.
    Finished,
    /// Scan was stopped.
    Canceled,
}

/// The pool's last or current scan (OpenZFS: `pool_scan_stat_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanStatus {
    /// Kind of the scan.
    pub function: ScanFunction,
    /// State of the scan.
    pub state: ScanState,
    /// Seconds since the epoch when it was paused; None when it isn't.
    pub paused_since: Option<u64>,
    /// Seconds since the epoch when it began.
    pub start_time: u64,
    /// Seconds since the epoch when it ended; 0 while it runs.
    pub end_time: u64,
    /// Allocated bytes that are to be looked at.
    pub to_examine: u64,
    /// Allocated bytes whose pointers were seen.
    pub examined: u64,
    /// Allocated bytes read.
    pub issued: u64,
    /// Allocated bytes that were seen and need not be read, because no leaf lacks them.
    pub skipped: u64,
    /// Bytes rewritten because they were wrong or missing.
    pub repaired: u64,
    /// Blocks that could not be repaired.
    pub errors: u64,
    /// Allocated bytes whose pointers were seen per second, of late.
    pub examined_rate: u64,
    /// Allocated bytes read per second, of late.
    pub rate: u64,
    /// Seconds since the epoch when it began, or went on after an import.
    pub pass_start: u64,
    /// Allocated bytes whose pointers were seen since then.
    pub pass_examined: u64,
    /// Allocated bytes read since then.
    pub pass_issued: u64,
    /// Seconds that it was paused since then.
    pub pass_spent_paused: u64,
    /// Seconds until the end at this rate; None when nothing is read at the moment.
    pub seconds_left: Option<u64>,
}

impl ScanStatus {
    /// The persistent part of a scan's state; None when there never was a scan.
    pub(crate) fn from_phys(phys: &DslScanPhys) -> Option<ScanStatus> {
        let function = match phys.scn_func {
            scan_func::SCRUB => ScanFunction::Scrub,
            scan_func::RESILVER => ScanFunction::Resilver,
            _ => return None,
        };
        let state = match phys.scn_state {
            scan_state::SCANNING => ScanState::Scanning,
            scan_state::FINISHED => ScanState::Finished,
            scan_state::CANCELED => ScanState::Canceled,
            _ => return None,
        };
        Some(ScanStatus {
            function,
            state,
            paused_since: None,
            start_time: phys.scn_start_time,
            end_time: phys.scn_end_time,
            to_examine: phys.scn_to_examine,
            examined: phys.scn_examined,
            issued: phys.scn_examined.saturating_sub(phys.scn_skipped),
            skipped: phys.scn_skipped,
            repaired: phys.scn_processed,
            errors: phys.scn_errors,
            examined_rate: 0,
            rate: 0,
            pass_start: 0,
            pass_examined: 0,
            pass_issued: 0,
            pass_spent_paused: 0,
            seconds_left: None,
        })
    }

    /// Allocated bytes that are to be read, as far as is known.
    pub fn to_issue(&self) -> u64 {
        self.to_examine.saturating_sub(self.skipped)
    }

    /// Part of the bytes to be read that was read, in percent; never falls while the scan runs, across imports too.
    pub fn percent(&self) -> f64 {
        match self.to_issue() {
            0 => 0.0,
            total => self.issued.min(total) as f64 * 100.0 / total as f64,
        }
    }
}

/// The pool's last or current error scrub (OpenZFS: the `pss_error_scrub` fields of `pool_scan_stat_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorScrubStatus {
    /// State of the error scrub.
    pub state: ScanState,
    /// Seconds since the epoch when it was paused; None when it isn't.
    pub paused_since: Option<u64>,
    /// Seconds since the epoch when it began.
    pub start_time: u64,
    /// Seconds since the epoch when it ended; 0 while it runs.
    pub end_time: u64,
    /// Blocks of the log that are still to be read.
    pub to_examine: u64,
    /// Blocks that were read.
    pub examined: u64,
}

impl ErrorScrubStatus {
    pub(crate) fn of(scrub: &ErrorScrub) -> Option<ErrorScrubStatus> {
        let phys = &scrub.phys;
        let state = match (phys.dep_func, phys.dep_state) {
            (scan_func::ERRORSCRUB, scan_state::ERRORSCRUBBING) => ScanState::Scanning,
            (scan_func::ERRORSCRUB, scan_state::FINISHED) => ScanState::Finished,
            (scan_func::ERRORSCRUB, scan_state::CANCELED) => ScanState::Canceled,
            _ => return None,
        };
        Some(ErrorScrubStatus {
            state,
            paused_since: scrub.paused_since,
            start_time: phys.dep_start_time,
            end_time: phys.dep_end_time,
            to_examine: phys.dep_to_examine,
            examined: phys.dep_examined,
        })
    }
}

/// A block that is damaged for good: no copy of it could be read (OpenZFS: an entry of the error log).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Damaged {
    /// Object set: the dataset's object in the MOS, 0 for the MOS itself.
    pub objset: ObjsetId,
    /// Number of the object.
    pub object: ObjectId,
    /// Level of the block: 0 is data.
    pub level: Level,
    /// Block within the level.
    pub block: BlockId,
}
