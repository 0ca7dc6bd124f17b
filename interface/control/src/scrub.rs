//! `zpool scrub` and what `zpool status` says of it.

use crate::failure::because;
use crate::{Control, OpenPool};
use control_api::{ErrorKind, Failure, PoolScrub, Response, ScanReport};
use pool::Pool;

/// The scrub of one pool.
pub struct ScrubSlot;

impl ScrubSlot {
    /// Takes up what the pool remembers.
    pub fn open(_pool: &Pool) -> ScrubSlot {
        ScrubSlot
    }
}

impl OpenPool {
    /// The running or last scan.
    pub fn scan_report(&self) -> Option<ScanReport> {
        None
    }
    /// Background work that runs, by the names of `zpool wait`.
    pub fn busy(&self) -> Vec<String> {
        Vec::new()
    }
    /// Stops the scan so that the pool can be closed; it goes on after the next import.
    pub fn stop_scan(&self) {}
    /// Number of damaged blocks known, and their names when wanted.
    pub fn errors(&self, _names: bool) -> (u64, Vec<String>) {
        (0, Vec::new())
    }
}

impl Control {
    pub(crate) fn pool_scrub(&self, request: &PoolScrub) -> Result<Response, Failure> {
        self.open_pool(&request.pool)?;
        Err(because(ErrorKind::Unsupported, format!("cannot scrub '{}'", request.pool), "not available in this version"))
    }
}
