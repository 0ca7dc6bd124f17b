//! Requests about single vdevs of an open pool.

use crate::NewVdevs;
use serde::{Deserialize, Serialize};

/// Change of a device of a pool.
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

/// Device that comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NewDevice {
    /// Absolute path of the device; None for the path that the old one has.
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
    /// Name of the pool.
    pub pool: String,
    /// Device that is changed: its path, the last part of it, or its guid.
    pub device: String,
    /// Change of the device.
    pub change: VdevVerb,
}

impl VdevChange {
    /// First words of a failure, as OpenZFS has them: `cannot attach b to a`.
    pub fn what(&self) -> String {
        let device = &self.device;
        match &self.change {
            VdevVerb::Offline { .. } | VdevVerb::Fault { .. } => format!("cannot offline {device}"),
            VdevVerb::Online { expand: true } => format!("cannot expand {device}"),
            VdevVerb::Online { .. } => format!("cannot online {device}"),
            VdevVerb::Attach(new) => format!("cannot attach {} to {device}", new.path.as_deref().unwrap_or_default()),
            VdevVerb::Replace(new) => format!("cannot replace {device} with {}", new.path.as_deref().unwrap_or(device)),
            VdevVerb::Detach => format!("cannot detach {device}"),
        }
    }
}

/// `zpool add`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolAdd {
    /// Name of the pool.
    pub pool: String,
    /// Vdevs that join the pool.
    #[serde(flatten)]
    pub new: NewVdevs,
    /// `-o ashift`: log2 of the sector size.
    pub ashift: Option<u32>,
    /// `-f`, `--allow-in-use`: also devices that belong to another pool.
    pub allow_in_use: bool,
    /// `-f`, `--allow-ashift-mismatch`: also vdevs with other sector sizes.
    pub allow_ashift_mismatch: bool,
    /// `-n`: check and change nothing.
    pub dry_run: bool,
}

/// `zpool remove`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VdevRemove {
    /// Name of the pool.
    pub pool: String,
    /// Spare, cache or top-level vdev: its path, the last part of it, its name (`mirror-1`) or its guid.
    pub device: String,
    /// `-n`: only say what it would cost.
    pub dry_run: bool,
}

/// `zpool reopen`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolReopen {
    /// Names of pools; empty means all.
    pub pools: Vec<String>,
    /// `-n`: a resilver that runs is not begun again.
    pub keep_resilver: bool,
}
