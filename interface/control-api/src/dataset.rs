//! Requests and reports about datasets, snapshots and mounts.

use crate::Property;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `zfs create`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetCreate {
    /// Full name.
    pub name: String,
    /// `-o`; of a volume `volsize` too (`-V`).
    pub properties: BTreeMap<String, String>,
    /// `-V`: a volume, whose size is the property `volsize`; else a file system.
    #[serde(default)]
    pub volume: bool,
    /// `-s`: keep no space for the volume.
    #[serde(default)]
    pub sparse: bool,
    /// `-p`: create missing parents, and do not mind if it exists.
    pub parents: bool,
    /// `-u`: do not mount.
    pub no_mount: bool,
    /// `-n`.
    pub dry_run: bool,
}

/// `zfs destroy`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetDestroy {
    /// Dataset, or `fs@a`, `fs@a,b`, `fs@a%c`.
    pub name: String,
    /// `-r`.
    pub recursive: bool,
    /// `-f`: unmount by force.
    pub force: bool,
    /// `-n`.
    pub dry_run: bool,
}

/// Which datasets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetQuery {
    /// Names; empty means every pool's.
    pub names: Vec<String>,
    /// `-r`/`-d`: how deep to go below each name; None is without limit.
    pub depth: Option<u32>,
    /// `filesystem`, `snapshot`, `volume`, `bookmark`.
    pub types: Vec<String>,
    /// Properties that are only worked out when they are named: `written@SNAPSHOT`, `userused@UID` and their kind.
    #[serde(default)]
    pub asked: Vec<String>,
}

/// One dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetReport {
    /// Full name.
    pub name: String,
    /// `filesystem`, `snapshot`, `volume`.
    pub kind: String,
    /// Pool.
    pub pool: String,
    /// Txg in which it was created.
    pub create_txg: u64,
    /// Every property, in `zfs get all` order; user properties last.
    pub properties: Vec<Property>,
}

/// `zfs userspace`, `groupspace`, `projectspace`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UserspaceQuery {
    /// File system or snapshot.
    pub name: String,
    /// Whose: `user`, `group`, `project`.
    pub who: Vec<String>,
}

/// What one user, group or project uses and may use; none where nothing is counted or limited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OwnerReport {
    /// `user`, `group`, `project`.
    pub who: String,
    /// Its number.
    pub id: u64,
    /// Bytes used.
    pub used: Option<u64>,
    /// Bytes allowed.
    pub quota: Option<u64>,
    /// Objects used.
    pub objects_used: Option<u64>,
    /// Objects allowed.
    pub objects_quota: Option<u64>,
}

/// `zfs set`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetSet {
    /// Dataset.
    pub name: String,
    /// New values.
    pub properties: BTreeMap<String, String>,
    /// `-u`: leave mounts as they are until the next mount.
    #[serde(default)]
    pub no_mount: bool,
}

/// `zfs inherit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetInherit {
    /// Dataset.
    pub name: String,
    /// Property.
    pub property: String,
    /// `-r`.
    pub recursive: bool,
}

/// `zfs snapshot`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SnapshotCreate {
    /// Full names `fs@snap`.
    pub names: Vec<String>,
    /// `-r`.
    pub recursive: bool,
    /// `-o`: user properties.
    pub properties: BTreeMap<String, String>,
}

/// `zfs rename`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetRename {
    /// Old name.
    pub from: String,
    /// New name.
    pub to: String,
    /// `-p`.
    pub parents: bool,
    /// `-r` (snapshots).
    pub recursive: bool,
    /// `-f`.
    pub force: bool,
    /// `-u`: what is mounted stays where it is.
    #[serde(default)]
    pub no_unmount: bool,
}

/// `zfs mount`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MountRequest {
    /// Dataset; None with `all` mounts everything, without lists.
    pub name: Option<String>,
    /// `-a`.
    pub all: bool,
    /// `-o`.
    pub options: Vec<String>,
    /// `-O`: mount over a directory that is not empty.
    pub overlay: bool,
    /// Where, instead of where its properties say: mount(8) with legacy mountpoints and snapshots.
    #[serde(default)]
    pub place: Option<String>,
    /// Options that nobody knows are passed over (mount(8) with `-s`).
    #[serde(default)]
    pub sloppy: bool,
}

/// `zfs unmount`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnmountRequest {
    /// Dataset or mountpoint; None with `all`.
    pub target: Option<String>,
    /// `-a`.
    pub all: bool,
    /// `-f`.
    pub force: bool,
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MountReport {
    /// Dataset.
    pub name: String,
    /// Where.
    pub mountpoint: String,
}
