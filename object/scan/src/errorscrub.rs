//! The state of an error scrub: a record in the pool's directory, as OpenZFS keeps it, and what was read since. What reads the blocks is
//! `reread`.
//!
//! The place in the log is not in the record (`dep_cursor` stays 0), so one that goes on after an import reads the log from its beginning.

use crate::ScanError;
use crate::errlog::LogEntry;
use crate::record::DIRECTORY;
use dmu::{Objset, Tx};
use ondisk::{ErrorScrubPhys, scan_func, scan_state};
use std::collections::BTreeSet;
use std::sync::Arc;
use zap::{Value, Zap};

/// The state's name in the directory (OpenZFS: `DMU_POOL_ERRORSCRUB`).
const ERROR_SCRUB: &str = "error_scrub";

/// The error scrub of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorScrub {
    pub(crate) phys: ErrorScrubPhys,
    /// Seconds since the epoch when it was paused.
    pub(crate) paused_since: Option<u64>,
    /// Entries of the log that were read and are still damaged.
    pub(crate) seen: BTreeSet<LogEntry>,
}

impl ErrorScrub {
    /// True when the error scrub runs or is paused.
    pub(crate) fn is_scrubbing(&self) -> bool {
        self.phys.dep_func == scan_func::ERRORSCRUB && self.phys.dep_state == scan_state::ERRORSCRUBBING
    }
    pub(crate) fn is_paused(&self) -> bool {
        self.phys.dep_paused_flags != 0
    }
    /// True when the error scrub runs and is not paused.
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

    /// Writes the state.
    pub(crate) fn store(phys: &ErrorScrubPhys, mos: &Arc<Objset>, tx: &Tx) -> Result<(), ScanError> {
        Ok(Zap::hold(mos, DIRECTORY)?.update(ERROR_SCRUB, &Value::U64(phys.to_words().to_vec()), tx)?)
    }
}

/// Request of a user for the error scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorScrubRequest {
    Start,
    Pause,
    Resume,
    Stop,
}
