//! What the crate consumes: the pool's features, space and history. Implemented by the pool.

use crate::DslError;
use dmu::{Objset, ObjsetProps, Tx};
use ondisk::names::spa_version;
use ondisk::{ObjsetId, Txg};
use std::sync::Arc;

/// The pool's space as datasets see it, in deflated bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSpace {
    /// Bytes that datasets can use in total (OpenZFS: `spa_get_dspace`).
    pub usable_bytes: u64,
    /// Bytes kept back so that removing files always works (OpenZFS: `spa_get_slop_space`).
    pub slop_bytes: u64,
    /// Bytes freed in the last txgs, allocatable soon (OpenZFS: `metaslab_class_get_deferred`).
    pub deferred_bytes: u64,
}

/// A line of the pool's history made by the engine itself (OpenZFS: `spa_history_log_internal_ds`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEvent {
    /// Operation: `create`, `destroy`, `snapshot`, `set`, `inherit`, `rename`, `clone` …
    pub name: &'static str,
    /// Full name of the dataset.
    pub dataset: String,
    /// Object of the dataset in the MOS.
    pub dataset_object: u64,
    /// Details as OpenZFS words them.
    pub text: String,
}

/// Snapshots that change hands, with all that they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inheritance {
    /// Head dataset that had them.
    pub from: ObjsetId,
    /// Head dataset that has them now.
    pub to: ObjsetId,
    /// Txg of the newest of them: they have nothing that was born later.
    pub until: Txg,
}

/// The pool, as far as datasets need it. Methods with a [`Tx`] are called in syncing context only.
pub trait PoolServices: Send + Sync {
    /// The pool's name: the first component of every dataset's name.
    fn pool_name(&self) -> String;
    /// The pool's version on disk (see `ondisk::names::spa_version`). Unless implemented, one with feature flags.
    fn version(&self) -> u64 {
        spa_version::FEATURES
    }
    /// True when the feature with this guid (see [`crate::features`]) is enabled.
    fn feature_enabled(&self, guid: &str) -> bool;
    /// The feature's reference count; it is active when this is not 0.
    fn feature_refs(&self, guid: &str) -> u64;
    /// Changes the reference count (OpenZFS: `spa_feature_incr`, `spa_feature_decr`).
    fn feature_add(&self, guid: &'static str, delta: i64, tx: &Tx) -> Result<(), DslError>;
    /// Space in the pool now.
    fn space(&self) -> PoolSpace;
    /// Bytes, as datasets count them, that a block of so many bytes takes at most.
    fn worst_dsize(&self, block_bytes: u64) -> u64 {
        block_bytes
    }
    /// Writes a line of history.
    fn history(&self, event: HistoryEvent, tx: &Tx);
    /// A dataset or snapshot of this object goes in this transaction; `mos` is the pool's own object set.
    fn dataset_destroyed(&self, mos: &Arc<Objset>, object: u64, tx: &Tx) -> Result<(), DslError> {
        let _ = (mos, object, tx);
        Ok(())
    }
    /// Snapshots changed hands in this transaction: a clone was promoted; `mos` is the pool's own object set.
    fn snapshots_inherited(&self, mos: &Arc<Objset>, inheritance: &Inheritance, tx: &Tx) -> Result<(), DslError> {
        let _ = (mos, inheritance, tx);
        Ok(())
    }
    /// Properties that every object set of the pool starts from: copies of metadata, hole births, compression of metadata.
    fn objset_props(&self) -> ObjsetProps;
    /// False when the pool was imported read-only.
    fn is_writeable(&self) -> bool {
        true
    }
    /// True while new writes are to fail at once: the pool is suspended and its `failmode` lets nobody wait.
    fn refuses_writes(&self) -> bool {
        false
    }
}
