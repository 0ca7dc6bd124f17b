//! Scrubs of a pool: start, pause, stop, progress, and the blocks found damaged. The work is done by the `scan` crate.

use crate::{Pool, PoolError};
use scan::{Damaged, ScanStatus};

const NOT_YET: PoolError = PoolError::Invalid("scrubs are not supported yet");

impl Pool {
    /// Begins a scrub, or goes on with a paused one. Fails when one runs already.
    pub fn scrub_start(&self) -> Result<(), PoolError> {
        Err(NOT_YET)
    }
    /// Pauses the scrub that runs; its place is kept, across imports too. Fails when none runs.
    pub fn scrub_pause(&self) -> Result<(), PoolError> {
        Err(NOT_YET)
    }
    /// Ends the scrub that runs or is paused. Fails when there is none.
    pub fn scrub_stop(&self) -> Result<(), PoolError> {
        Err(NOT_YET)
    }
    /// The last or current scan; None when the pool never had one.
    pub fn scan_status(&self) -> Option<ScanStatus> {
        None
    }
    /// The blocks that are known to be damaged for good.
    pub fn damaged(&self) -> Result<Vec<Damaged>, PoolError> {
        Ok(Vec::new())
    }
    /// Waits until no scrub runs: it ended, or was paused.
    pub fn scrub_wait(&self) -> Result<(), PoolError> {
        Ok(())
    }
    /// Does the work of the scrub on this thread until it ends; for executors that have no threads of their own.
    pub fn scrub_drive(&self) -> Result<(), PoolError> {
        Ok(())
    }
}
