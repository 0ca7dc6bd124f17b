//! The pool as a tree of datasets: the MOS, the special directories, sync tasks, and the dataset side of every txg.

use crate::{DatasetHandle, DslError, PoolServices};
use dmu::{BlockIo, Objset, ObjsetProps, SyncError, Tx, TxgManager};
use ondisk::{BlockPtr, ObjsetType, Txg};
use std::sync::Arc;

/// The meta object set with the ledger that counts its space. Made or opened before [`DslPool`], since the pool reads
/// its features and configuration from it first.
#[derive(Clone)]
pub struct Mos {
    objset: Arc<Objset>,
}

impl Mos {
    /// Makes an empty MOS, dirty in the transaction's txg.
    pub fn create(_io: Arc<dyn BlockIo>, _props: ObjsetProps, _tx: &Tx) -> Result<Mos, DslError> {
        Err(DslError::Unsupported)
    }
    /// Opens the MOS at the uberblock's root pointer.
    pub fn open(_io: Arc<dyn BlockIo>, _root: BlockPtr, _props: ObjsetProps) -> Result<Mos, DslError> {
        Err(DslError::Unsupported)
    }
    /// The object set.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }
}

/// How to make a dataset.
pub struct CreateDataset {
    /// File system or volume.
    pub kind: ObjsetType,
    /// Properties to set locally, by name, as the user gave them.
    pub properties: Vec<(String, String)>,
    /// Fills the new object set, in syncing context (OpenZFS: `zfs_create_fs`).
    pub init: DatasetInit,
}

/// See [`CreateDataset::init`].
pub type DatasetInit = Box<dyn FnOnce(&Arc<Objset>, &Tx) -> Result<(), DslError> + Send>;

/// A snapshot in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The part behind `@`.
    pub name: String,
    /// Its object set number.
    pub object: u64,
    /// The txg that it was taken in.
    pub creation_txg: u64,
    /// Seconds since the epoch.
    pub creation_time: u64,
}

/// The datasets of a pool. All methods may be called from any thread; those that change something wait for a txg and
/// must not be called in syncing context.
pub struct DslPool {
    mos: Mos,
}

impl DslPool {
    /// Fills a new MOS (`mos` has the pool directory already when the pool made it; otherwise it is claimed): root
    /// directory, `$MOS`, `$FREE`, `$ORIGIN` with its snapshot, and the list of blocks to free (OpenZFS: `dsl_pool_create`).
    pub fn create(_mos: Mos, _services: Arc<dyn PoolServices>, _txgs: Arc<TxgManager>, _tx: &Tx) -> Result<Arc<DslPool>, DslError> {
        Err(DslError::Unsupported)
    }

    /// Makes the root dataset, in syncing context, after the pool made its feature objects.
    pub fn create_root(self: &Arc<Self>, _options: CreateDataset, _tx: &Tx) -> Result<(), DslError> {
        Err(DslError::Unsupported)
    }

    /// Opens what [`DslPool::create`] or OpenZFS made.
    pub fn open(_mos: Mos, _services: Arc<dyn PoolServices>, _txgs: Arc<TxgManager>) -> Result<Arc<DslPool>, DslError> {
        Err(DslError::Unsupported)
    }

    /// The meta object set.
    pub fn mos(&self) -> &Arc<Objset> {
        self.mos.objset()
    }

    // ---- the pool's sync loop, in this order ----

    /// Syncs every object set that is dirty in `txg` and settles what was born and killed. True when there was one.
    /// Call it before [`DslPool::run_sync_tasks`] and again after it (for object sets that tasks made).
    pub fn sync_datasets(&self, _txg: Txg) -> Result<bool, SyncError> {
        Err(SyncError::Pool)
    }

    /// Runs the tasks that were queued for `txg`; once per txg, after the datasets were synced.
    pub fn run_sync_tasks(&self, _txg: Txg) -> Result<(), SyncError> {
        Err(SyncError::Pool)
    }

    /// Frees blocks of destroyed snapshots and datasets, at most `blocks_max` of them, and says how many. Once per txg,
    /// after the tasks (OpenZFS: `dsl_process_async_destroys`).
    pub fn sync_frees(&self, _txg: Txg, _blocks_max: u64) -> Result<u64, SyncError> {
        Err(SyncError::Pool)
    }

    /// True when blocks wait to be freed by [`DslPool::sync_frees`].
    pub fn has_frees(&self) -> bool {
        false
    }

    /// Charges what the MOS gained and lost since the last call to `$MOS`. Call it before each sync of the MOS.
    pub fn sync_mos_usage(&self, _txg: Txg) -> Result<(), SyncError> {
        Err(SyncError::Pool)
    }

    /// Runs `check` then `sync` in syncing context of one txg and waits until it is on disk. An error of `check` goes to
    /// the caller alone; an error of `sync` fails the txg (OpenZFS: `dsl_sync_task`).
    pub fn sync_task<C, R, F, G>(self: &Arc<Self>, _check: F, _sync: G) -> Result<R, DslError>
    where
        C: Send + 'static,
        R: Send + 'static,
        F: FnOnce(&Arc<DslPool>) -> Result<C, DslError> + Send + 'static,
        G: FnOnce(&Arc<DslPool>, C, &Tx) -> Result<R, DslError> + Send + 'static,
    {
        Err(DslError::Unsupported)
    }

    // ---- the name space ----

    /// Holds a dataset by its full name (`pool/fs` or `pool/fs@snapshot`).
    pub fn hold(self: &Arc<Self>, _name: &str) -> Result<DatasetHandle, DslError> {
        Err(DslError::Unsupported)
    }

    /// Holds a dataset by its object.
    pub fn hold_object(self: &Arc<Self>, _object: u64) -> Result<DatasetHandle, DslError> {
        Err(DslError::Unsupported)
    }

    /// Makes a dataset; its parent must exist.
    pub fn create_dataset(self: &Arc<Self>, _name: &str, _options: CreateDataset) -> Result<(), DslError> {
        Err(DslError::Unsupported)
    }

    /// Makes a dataset that starts as the snapshot `origin`.
    pub fn clone_snapshot(self: &Arc<Self>, _name: &str, _origin: &str, _properties: Vec<(String, String)>) -> Result<(), DslError> {
        Err(DslError::Unsupported)
    }

    /// Takes snapshots (full names), all in one txg or none.
    pub fn snapshot(self: &Arc<Self>, _names: &[String], _properties: Vec<(String, String)>) -> Result<(), DslError> {
        Err(DslError::Unsupported)
    }

    /// Destroys a file system or volume without children and snapshots.
    pub fn destroy_dataset(self: &Arc<Self>, _name: &str) -> Result<(), DslError> {
        Err(DslError::Unsupported)
    }

    /// Destroys snapshots (full names), all in one txg or none; `defer` marks those that are in use.
    pub fn destroy_snapshots(self: &Arc<Self>, _names: &[String], _defer: bool) -> Result<(), DslError> {
        Err(DslError::Unsupported)
    }

    /// Renames a dataset (with all below it) or a snapshot.
    pub fn rename(self: &Arc<Self>, _from: &str, _to: &str) -> Result<(), DslError> {
        Err(DslError::Unsupported)
    }

    /// Names of the children of a dataset, sorted, without its own name.
    pub fn children(&self, _name: &str) -> Result<Vec<String>, DslError> {
        Err(DslError::Unsupported)
    }

    /// The snapshots of a dataset, oldest first.
    pub fn snapshots(&self, _name: &str) -> Result<Vec<SnapshotEntry>, DslError> {
        Err(DslError::Unsupported)
    }
}
