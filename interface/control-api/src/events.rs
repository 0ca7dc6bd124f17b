//! Requests and reports about events (`zpool events`).

use serde::{Deserialize, Serialize};

/// `zpool events`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolEvents {
    /// Only events of this pool.
    pub pool: Option<String>,
    /// Only events with a larger number.
    pub after: u64,
    /// `-c`: forget all events; answers [`crate::Response::EventsCleared`].
    pub clear: bool,
    /// When there is none yet, wait for one, at most for so many milliseconds (two seconds at the longest).
    #[serde(default)]
    pub wait_ms: u64,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EventReport {
    /// Its number.
    pub eid: u64,
    /// Seconds and nanoseconds since the epoch.
    pub time: (i64, u32),
    /// Class, such as `ereport.fs.zfs.dio_verify_wr`.
    pub class: String,
    /// Fields in order, each value as `zpool events -v` prints it.
    pub fields: Vec<(String, String)>,
}
