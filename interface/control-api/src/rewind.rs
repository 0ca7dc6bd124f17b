//! Reports of pools that went back to an older state at their import, or could.

use crate::Failure;
use serde::{Deserialize, Serialize};

/// Pool that an import took back to an older state, or would.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RewindReport {
    /// Name of the pool.
    pub pool: String,
    /// True when nothing was done: this is what an import would do.
    pub dry_run: bool,
    /// Seconds since the epoch of the state that was, or would be, taken; None when none can be.
    pub time: Option<u64>,
    /// Seconds between that state and the newest one, which are given up.
    pub lost_seconds: u64,
    /// Number of damaged blocks of files and volumes that were found in that state.
    #[serde(default)]
    pub data_errors: u64,
    /// States that were tried, newest first; only of a dry run.
    pub points: Vec<RewindPointReport>,
    /// Reason why no state can be taken.
    pub failure: Option<Failure>,
}

/// State that a pool could go back to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RewindPointReport {
    /// Transaction group of the state.
    pub txg: u64,
    /// Seconds since the epoch of the state.
    pub time: u64,
    /// Seconds between it and the newest state.
    pub lost_seconds: u64,
    /// Number of damaged blocks of files and volumes that were found in it.
    #[serde(default)]
    pub data_errors: u64,
    /// Reason why it cannot be taken; None when it can.
    pub problem: Option<String>,
    /// Number of datasets and snapshots that it has; None where that could not be read.
    pub datasets: Option<u64>,
    /// Names of datasets and snapshots that it lacks, and the newest state that can be read has.
    pub missing: Vec<String>,
    /// Names of datasets that it has without changes of theirs that the newest state that can be read has.
    pub changed: Vec<String>,
}
