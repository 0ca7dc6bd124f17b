//! Requests and reports about datasets, snapshots and mounts.

use crate::{Property, UserKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `zfs create`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetCreate {
    /// Full name of the dataset.
    pub name: String,
    /// `-o`: properties to set; of a volume `volsize` too (`-V`).
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
    /// `-n`: only check, and answer what would be created.
    pub dry_run: bool,
    /// Key of a new encryption root: with the property `keyformat`.
    #[serde(default)]
    pub key: Option<UserKey>,
}

/// `zfs destroy`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetDestroy {
    /// Name of a dataset, of a bookmark, or of snapshots: `fs@a`, `fs@a,b`, `fs@a%c`.
    pub name: String,
    /// `-r`: everything below too.
    pub recursive: bool,
    /// `-R`: everything below, and clones wherever they are.
    #[serde(default)]
    pub clones: bool,
    /// `-f`: unmount by force.
    pub force: bool,
    /// `-n`: only check, and answer what would be destroyed.
    pub dry_run: bool,
    /// `-d`: snapshots that are held or have clones go with the last hold or clone.
    #[serde(default)]
    pub defer: bool,
}

/// Datasets to report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetQuery {
    /// Names of datasets; empty means every pool's.
    pub names: Vec<String>,
    /// `-r`/`-d`: number of levels below each name; None is without limit.
    pub depth: Option<u32>,
    /// Kinds of datasets: `filesystem`, `snapshot`, `volume`, `bookmark`.
    pub types: Vec<String>,
    /// Properties that are only worked out when they are named: `written@SNAPSHOT`, `written#BOOKMARK`, `userused@UID` and their kind.
    #[serde(default)]
    pub asked: Vec<String>,
}

/// Report of one dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetReport {
    /// Full name of the dataset.
    pub name: String,
    /// Kind of the dataset: `filesystem`, `snapshot`, `volume`, `bookmark`.
    pub kind: String,
    /// Name of its pool.
    pub pool: String,
    /// Txg in which the dataset was created; of a bookmark that of its snapshot.
    pub create_txg: u64,
    /// Properties, every one, in `zfs get all` order; user properties last.
    pub properties: Vec<Property>,
    /// Reason why some of them are missing: what they are read from is damaged; None when all could be read.
    #[serde(default)]
    pub unread: Option<String>,
}

/// `zfs userspace`, `groupspace`, `projectspace`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UserspaceQuery {
    /// Name of a file system or snapshot.
    pub name: String,
    /// Kinds of owners: `user`, `group`, `project`.
    pub who: Vec<String>,
}

/// Use and limits of one user, group or project; none where nothing is counted or limited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OwnerReport {
    /// Kind of the owner: `user`, `group`, `project`.
    pub who: String,
    /// Number of the user, group or project.
    pub id: u64,
    /// Bytes used.
    pub used: Option<u64>,
    /// Bytes allowed.
    pub quota: Option<u64>,
    /// Number of objects used.
    pub objects_used: Option<u64>,
    /// Number of objects allowed.
    pub objects_quota: Option<u64>,
}

/// `zfs wait`: waits until no file without a name is left to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetWait {
    /// Name of the file system.
    pub name: String,
    /// Milliseconds after which the answer comes in any case.
    pub deadline_ms: u64,
}

/// `zfs set`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetSet {
    /// Name of the dataset.
    pub name: String,
    /// New values of properties, by name.
    pub properties: BTreeMap<String, String>,
    /// `-u`: leave mounts as they are until the next mount.
    #[serde(default)]
    pub no_mount: bool,
}

/// `zfs inherit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetInherit {
    /// Name of the dataset.
    pub name: String,
    /// Name of the property.
    pub property: String,
    /// `-r`: datasets below too.
    pub recursive: bool,
    /// `-S`: go back to the received value, if there is one.
    #[serde(default)]
    pub received: bool,
}

/// `zfs snapshot`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SnapshotCreate {
    /// Full names of the snapshots: `fs@snap`.
    pub names: Vec<String>,
    /// `-r`: of datasets below too.
    pub recursive: bool,
    /// `-o`: user properties of the snapshots.
    pub properties: BTreeMap<String, String>,
}

/// `zfs rename`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetRename {
    /// Old name of the dataset or snapshot.
    pub from: String,
    /// New name of the dataset or snapshot.
    pub to: String,
    /// `-p`: create missing parents.
    pub parents: bool,
    /// `-r`: snapshots of that name of datasets below too.
    pub recursive: bool,
    /// `-f`: unmount by force.
    pub force: bool,
    /// `-u`: what is mounted stays where it is.
    #[serde(default)]
    pub no_unmount: bool,
}

/// `zfs clone`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetClone {
    /// Full name of the snapshot that the clone starts as.
    pub origin: String,
    /// Full name of the clone.
    pub name: String,
    /// `-o`: properties to set.
    pub properties: BTreeMap<String, String>,
    /// `-p`: create missing parents, and do not mind if the clone exists.
    pub parents: bool,
}

/// `zfs promote`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetPromote {
    /// Name of the clone.
    pub name: String,
}

/// `zfs rollback`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetRollback {
    /// Full name of the snapshot to go back to.
    pub name: String,
    /// `-r`: destroy newer snapshots and bookmarks.
    pub recursive: bool,
    /// `-R`: destroy newer snapshots and bookmarks, and their clones.
    pub clones: bool,
    /// `-f`: unmount by force.
    pub force: bool,
}

/// Part of the sent name that is kept below the name that a stream is received at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SentName {
    /// Names below the dataset that was sent.
    #[default]
    Below,
    /// `-d`: all but the pool.
    WithoutPool,
    /// `-e`: the last component.
    Last,
}

/// `zfs receive`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DatasetReceive {
    /// Name of a dataset or snapshot.
    pub target: String,
    /// `-d`, `-e`.
    pub sent_name: SentName,
    /// `-o`: properties to set.
    pub properties: BTreeMap<String, String>,
    /// `-x`: properties that are not taken from the stream.
    pub excluded: Vec<String>,
    /// `-o origin=SNAPSHOT`: what a full stream becomes a clone of.
    pub origin: Option<String>,
    /// `-F`: take back what changed since the snapshot that the stream goes on from; of a package destroy what it lacks.
    pub force: bool,
    /// `-M`: unmount by force.
    pub force_unmount: bool,
    /// `-s`: keep what came when the stream is interrupted.
    pub resumable: bool,
    /// `-u`: do not mount.
    pub no_mount: bool,
    /// `-n`: only look, and say what would be received.
    pub dry_run: bool,
    /// `-v`: say what is received.
    pub verbose: bool,
    /// `-A`: destroy what an interrupted receive left, and read no stream.
    pub abort: bool,
    /// `-h`: take no holds from the stream.
    #[serde(default)]
    pub no_holds: bool,
    /// `-c`: heal damaged contents of a snapshot that is there, and receive nothing.
    #[serde(default)]
    pub heal: bool,
}

/// `zfs mount`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MountRequest {
    /// Name of a dataset; None with `all` mounts everything, without lists.
    pub name: Option<String>,
    /// `-a`: everything that is to be mounted by itself.
    pub all: bool,
    /// `-o`: options of the mount.
    pub options: Vec<String>,
    /// `-O`: mount over a directory that is not empty.
    pub overlay: bool,
    /// Path to mount at, instead of where its properties say: mount(8) with legacy mountpoints and snapshots.
    #[serde(default)]
    pub place: Option<String>,
    /// True to pass over options that nobody knows (mount(8) with `-s`).
    #[serde(default)]
    pub sloppy: bool,
    /// `-f`: mount also what lacks what was redacted.
    #[serde(default)]
    pub force: bool,
}

/// `zfs unmount`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnmountRequest {
    /// Name of a dataset, or a mountpoint; None with `all`.
    pub target: Option<String>,
    /// `-a`: everything but what is mounted by hand.
    pub all: bool,
    /// `-f`: by force.
    pub force: bool,
}

/// Report of a mounted file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MountReport {
    /// Name of the dataset.
    pub name: String,
    /// Path at which it is mounted.
    pub mountpoint: String,
}
