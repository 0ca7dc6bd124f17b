//! [`DatasetHandle`]: an owned hold on a dataset, as a mount or a command has it.

use crate::{DslError, DslPool, PropEntry, PropSource, SnapshotEntry};
use dmu::{Objset, Tx};
use std::sync::Arc;

/// What a transaction will do to the space in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxSpace {
    /// May need this many bytes more; refused when a quota or the pool is full.
    Writes(u64),
    /// Frees more than it writes: allowed until the very last reserve is used.
    Frees,
}

/// Space of a dataset, in bytes (OpenZFS: `dsl_dir_stats`, `dsl_dataset_space`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatasetSpace {
    /// Used by the dataset with its snapshots and children, reservations included (of a snapshot: its unique space).
    pub used: u64,
    /// What can still be written.
    pub available: u64,
    /// Reachable in the dataset.
    pub referenced: u64,
    /// Used by the dataset itself.
    pub used_by_dataset: u64,
    /// Used by snapshots alone.
    pub used_by_snapshots: u64,
    /// Used by children.
    pub used_by_children: u64,
    /// Kept by the refreservation.
    pub used_by_refreservation: u64,
    /// Written since the last snapshot.
    pub written: u64,
    /// `used` before compression.
    pub logical_used: u64,
    /// `referenced` before compression.
    pub logical_referenced: u64,
    /// Ratio of compression of all that is used, in hundredths.
    pub compress_ratio: u64,
    /// Ratio of compression of what is referenced, in hundredths.
    pub ref_compress_ratio: u64,
}

/// A hold on a dataset: it cannot be destroyed while one exists.
pub struct DatasetHandle {
    pool: Arc<DslPool>,
}

impl DatasetHandle {
    /// The pool.
    pub fn pool(&self) -> &Arc<DslPool> {
        &self.pool
    }
    /// The full name now.
    pub fn name(&self) -> String {
        String::new()
    }
    /// Its object in the MOS: the object set's number.
    pub fn object(&self) -> u64 {
        0
    }
    /// True for a snapshot.
    pub fn is_snapshot(&self) -> bool {
        false
    }
    /// The globally unique id.
    pub fn guid(&self) -> u64 {
        0
    }
    /// The 56-bit id that file handles carry.
    pub fn fsid_guid(&self) -> u64 {
        0
    }
    /// Creation in seconds since the epoch.
    pub fn creation_time(&self) -> u64 {
        0
    }
    /// The txg of the creation.
    pub fn creation_txg(&self) -> u64 {
        0
    }
    /// The object set; of a snapshot it cannot be modified.
    pub fn objset(&self) -> Result<Arc<Objset>, DslError> {
        Err(DslError::Unsupported)
    }
    /// A transaction, after a look at quotas and at the pool's space. May wait.
    pub fn assign(&self, _space: TxSpace) -> Result<Tx, DslError> {
        Err(DslError::Unsupported)
    }
    /// Space now.
    pub fn space(&self) -> DatasetSpace {
        DatasetSpace::default()
    }
    /// A property's number (index properties by value) and source.
    pub fn prop_u64(&self, _name: &str) -> Result<(u64, PropSource), DslError> {
        Err(DslError::Unsupported)
    }
    /// A property's text (of properties that are text) and source.
    pub fn prop_text(&self, _name: &str) -> Result<(String, PropSource), DslError> {
        Err(DslError::Unsupported)
    }
    /// One property as `zfs get` shows it.
    pub fn prop(&self, _name: &str) -> Result<PropEntry, DslError> {
        Err(DslError::Unsupported)
    }
    /// All properties that apply to this kind of dataset, in `zfs get all` order, user properties last.
    pub fn props(&self) -> Result<Vec<PropEntry>, DslError> {
        Err(DslError::Unsupported)
    }
    /// Sets properties locally, all or none.
    pub fn set_props(&self, _properties: &[(String, String)]) -> Result<(), DslError> {
        Err(DslError::Unsupported)
    }
    /// Removes a local value, so that the property is inherited.
    pub fn inherit_prop(&self, _name: &str) -> Result<(), DslError> {
        Err(DslError::Unsupported)
    }
    /// Counts the dataset among the users of a feature (see [`crate::features::PER_DATASET`]) from this txg on.
    pub fn activate_feature(&self, _guid: &'static str, _tx: &Tx) {}
    /// Its snapshots, oldest first.
    pub fn snapshots(&self) -> Result<Vec<SnapshotEntry>, DslError> {
        Err(DslError::Unsupported)
    }
    /// Holds one of its snapshots by the part behind `@`.
    pub fn hold_snapshot(&self, _name: &str) -> Result<DatasetHandle, DslError> {
        Err(DslError::Unsupported)
    }
}
