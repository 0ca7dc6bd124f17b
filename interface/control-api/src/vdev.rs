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
    /// `zpool attach`: a mirror of the device and a new one.
    Attach(NewDevice),
    /// `zpool replace`: the new device, or what is now at the same place, instead of the old one.
    Replace(NewDevice),
    /// `zpool detach`.
    Detach,
}

/// The device that comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NewDevice {
    /// Absolute path; None for the path that the old one has.
    pub path: Option<String>,
    /// `-f`: also when it belongs to another pool.
    pub force: bool,
    /// `-s`: sequential reconstruction instead of a resilver.
    pub sequential: bool,
}

/// `zpool offline`, `online`, `attach`, `replace`, `detach`.
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
