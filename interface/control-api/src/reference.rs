//! Requests and reports about what keeps snapshots and what remembers them: holds of users, and bookmarks, also those that redact.

use serde::{Deserialize, Serialize};

/// `zfs hold`, `zfs release`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SnapshotHold {
    /// Full name of the snapshot.
    pub name: String,
    /// Tag of the hold.
    pub tag: String,
    /// `-r`: snapshots of this name of datasets below too.
    pub recursive: bool,
}

/// `zfs holds`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HoldsQuery {
    /// Full name of the snapshot.
    pub name: String,
    /// `-r`: snapshots of this name of datasets below too.
    pub recursive: bool,
}

/// Holds on a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HoldsReport {
    /// Full name of the snapshot.
    pub name: String,
    /// Holds on it, by tag.
    pub holds: Vec<HoldReport>,
}

/// Hold on a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HoldReport {
    /// Tag of the hold.
    pub tag: String,
    /// Time at which it was taken, in seconds since the epoch.
    pub time: i64,
}

/// `zfs bookmark`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BookmarkCreate {
    /// Full name of the snapshot or bookmark that it is made of.
    pub source: String,
    /// Full name of the new bookmark.
    pub bookmark: String,
}

/// `zfs redact`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RedactRequest {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Part behind the `#` of the name of the new bookmark.
    pub bookmark: String,
    /// Full names of snapshots of clones: what all of them have replaced is in the bookmark's list.
    pub clones: Vec<String>,
}
