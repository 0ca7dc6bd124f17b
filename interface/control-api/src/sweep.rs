//! Requests to sweep the free space of devices: initializing and trimming.

use serde::{Deserialize, Serialize};

/// Sweep over free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SweepVerb {
    /// `zpool initialize`.
    Initialize,
    /// `zpool trim`.
    Trim,
}

/// Change of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum SweepChange {
    /// Begin, or go on.
    Start {
        /// `-r`: bytes per second and device at most, 0 for no limit.
        rate_bytes_per_second: u64,
        /// `-d`: what is trimmed must not be readable any more.
        secure: bool,
    },
    /// `-c`: cancel.
    Cancel,
    /// `-s`: suspend.
    Suspend,
    /// `-u`: forget that devices were initialized.
    Forget,
}

/// `zpool initialize`, `zpool trim`; answers [`crate::Response::Swept`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolSweep {
    /// Name of the pool.
    pub pool: String,
    /// Devices, each by its path, the last part of it, or its guid; none named means all.
    pub devices: Vec<String>,
    /// Sweep that is changed.
    pub verb: SweepVerb,
    /// Change of the sweep.
    pub change: SweepChange,
}

/// Progress of the last or current sweep of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SweepReport {
    /// State of the sweep: `active`, `canceled`, `suspended`, `complete`.
    pub state: String,
    /// Seconds since the epoch of the last change of the state.
    pub action_time: i64,
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes to do, in all.
    pub estimated_bytes: u64,
    /// Number of I/Os that failed.
    pub errors: u64,
}
