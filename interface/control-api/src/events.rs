//! Requests and reports about events (`zpool events`).

use serde::{Deserialize, Serialize};

/// `zpool events`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolEvents {
    /// Name of the pool whose events are wanted; None for all.
    pub pool: Option<String>,
    /// Number of an event: only events with a larger number are wanted.
    pub after: u64,
    /// `-c`: forget all events; answers [`crate::Response::EventsCleared`].
    pub clear: bool,
    /// Milliseconds to wait for an event when there is none yet (two seconds at the longest).
    #[serde(default)]
    pub wait_ms: u64,
}

/// Report of one event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EventReport {
    /// Number of the event.
    pub eid: u64,
    /// Time of the event in seconds and nanoseconds since the epoch.
    pub time: (i64, u32),
    /// Class of the event, such as `ereport.fs.zfs.dio_verify_wr`.
    pub class: String,
    /// Fields in order, each value as `zpool events -v` prints it.
    pub fields: Vec<(String, String)>,
}
