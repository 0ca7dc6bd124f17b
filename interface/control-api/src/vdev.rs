//! Requests about single vdevs of an open pool.

use serde::{Deserialize, Serialize};

/// What is to become of a device of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum VdevVerb {
    /// `zpool offline`.
    Offline {
        /// `-t`: until the next import only.
        temporary: bool,
    },
    /// `zpool offline -f`.
    Fault {
        /// `-t`: until the next import only.
        temporary: bool,
    },
    /// `zpool online`.
    Online {
        /// `-e`: use all the room that the device has now.
        expand: bool,
    },
}

/// `zpool offline`, `zpool online`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VdevChange {
    /// Pool.
    pub pool: String,
    /// The device: its path, the last part of it, or its guid.
    pub device: String,
    /// What to do with it.
    pub change: VdevVerb,
}
