//! Requests and reports about permissions that were delegated to users.

use serde::{Deserialize, Serialize};

/// `zfs allow`: who was delegated what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AllowQuery {
    /// Name of the dataset.
    pub name: String,
}

/// `zfs allow`, `zfs unallow`: delegates permissions, or takes them back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AllowChange {
    /// Name of the dataset.
    pub name: String,
    /// Permissions, by whom they are for. Those that are taken back are all of somebody's where none is named.
    pub entries: Vec<AllowEntry>,
    /// True to take them back.
    pub remove: bool,
    /// `-r`: take them back below the dataset, too.
    pub recursive: bool,
}

/// Permissions that were delegated at a dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AllowReport {
    /// Name of the dataset.
    pub name: String,
    /// Permissions, by whom they were delegated to.
    pub entries: Vec<AllowEntry>,
}

/// Permissions that somebody was delegated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AllowEntry {
    /// Somebody, as pools store it: a letter for the kind (`u`ser, `g`roup, `e`veryone, `c`reator, `s`et; large where the permissions are sets),
    /// one for the place (`l`ocal, `d`escendants, `-`), `$`, number or name.
    pub who: String,
    /// Permissions, or names of sets.
    pub permissions: Vec<String>,
}
