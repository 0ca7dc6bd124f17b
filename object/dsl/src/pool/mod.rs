//! The pool as a tree of datasets: what is in memory, lookup by name, creation and opening of the whole.
//!
//! The configuration lock orders looks at the name space against sync tasks, which take it for writing. It may be held for
//! reading while the MOS is read; nobody who holds it waits for a txg.

mod bptree;
mod changed;
mod clone;
mod create;
mod destroy;
mod facts;
mod limits;
mod logs;
mod rename;
mod settings;
mod snapshot;
mod sync;
mod task;

pub use create::{CreateDataset, DatasetInit};
pub use logs::EmptyLogs;
pub(crate) use settings::{in_object_set, is_text};
pub use snapshot::SnapshotEntry;

use crate::bpobj::Bpobj;
use crate::dataset::Dataset;
use crate::dir::{Dir, NewDir};
use crate::handle::DatasetHandle;
use crate::ledger::{DirtySets, MosLedger};
use crate::meta::{Meta, POOL_DIRECTORY, Usage, damaged};
use crate::names;
use crate::{DslError, PoolServices};
use dmu::{BlockIo, Objset, ObjsetEnv, ObjsetProps, Tx, TxgManager};
use exec::{Mutex, RwLock, RwLockReadGuard};
use ondisk::{BlockPtr, ObjectId, ObjectType, ObjsetId, ObjsetType, dd_used, ds_flags};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zap::{CreateOptions, Match};

const MOS_DIR: &str = "$MOS";
const FREE_DIR: &str = "$FREE";
/// Space of destroyed datasets that nobody can find any more; made when there is some (OpenZFS: `LEAK_DIR_NAME`).
const LEAK_DIR: &str = "$LEAK";
pub(crate) const ORIGIN_DIR: &str = "$ORIGIN";
const FREE_BPOBJ_NAME: &str = "free_bpobj";

/// The meta object set with the ledger that counts its space. Made or opened before [`DslPool`], since the pool reads
/// its features and configuration from it first.
#[derive(Clone)]
pub struct Mos {
    objset: Arc<Objset>,
    ledger: Arc<MosLedger>,
}

impl Mos {
    fn env(io: Arc<dyn BlockIo>) -> (ObjsetEnv, Arc<MosLedger>) {
        let ledger = Arc::new(MosLedger::new(io.clone()));
        (ObjsetEnv { io, ledger: Some(ledger.clone()), id: ObjsetId(0) }, ledger)
    }
    /// Makes an empty MOS with its pool directory (object 1), dirty in the transaction's txg.
    pub fn create(io: Arc<dyn BlockIo>, props: ObjsetProps, tx: &Tx) -> Result<Mos, DslError> {
        let (env, ledger) = Mos::env(io);
        let objset = Objset::create(env, ObjsetType::META, props, tx)?;
        let directory = CreateOptions { claim: Some(ObjectId(POOL_DIRECTORY)), ..CreateOptions::new(ObjectType::OBJECT_DIRECTORY) };
        zap::create_with(&objset, directory, tx)?;
        Ok(Mos { objset, ledger })
    }
    /// Opens the MOS at the uberblock's root pointer.
    pub fn open(io: Arc<dyn BlockIo>, root: BlockPtr, props: ObjsetProps) -> Result<Mos, DslError> {
        let (env, ledger) = Mos::env(io);
        Ok(Mos { objset: Objset::open(env, root, props)?, ledger })
    }
    /// The object set.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }
}

/// The datasets of a pool. All methods may be called from any thread; those that change something wait for a txg and
/// must not be called in syncing context.
pub struct DslPool {
    mos: Mos,
    meta: Meta,
    txgs: Arc<TxgManager>,
    config: RwLock<()>,
    dirs: Mutex<HashMap<u64, Arc<Dir>>>,
    datasets: Mutex<HashMap<u64, Arc<Dataset>>>,
    dirty: Arc<DirtySets>,
    tasks: Mutex<Vec<task::Queued>>,
    root_dir: Arc<Dir>,
    mos_dir: Arc<Dir>,
    /// None in pools before version 26, which are read only.
    free_dir: Option<Arc<Dir>>,
    /// 0 there.
    free_bpobj: u64,
    origin_snap: AtomicU64,
    /// The queue of destroyed datasets; 0 when there is none.
    bptree: AtomicU64,
}

impl std::fmt::Debug for DslPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DslPool {{ name: {:?} }}", self.root_dir.name())
    }
}

impl DslPool {
    /// Fills a new MOS: root directory, `$MOS`, `$FREE`, `$ORIGIN` with its snapshot, and the list of blocks to free
    /// (OpenZFS: `dsl_pool_create`). In syncing context of the pool's first txg.
    pub fn create(mos: Mos, services: Arc<dyn PoolServices>, txgs: Arc<TxgManager>, tx: &Tx) -> Result<Arc<DslPool>, DslError> {
        let meta = Meta::new(mos.objset().clone(), services.clone());
        let root = Dir::create(&meta, &NewDir { parent: None, name: "" }, tx)?;
        let root = Dir::load(&meta, root, None, services.pool_name())?;
        Dir::create(&meta, &NewDir { parent: Some(&root), name: MOS_DIR }, tx)?;
        Dir::create(&meta, &NewDir { parent: Some(&root), name: FREE_DIR }, tx)?;
        let free_bpobj = meta.bpobj_alloc(tx)?;
        meta.directory()?.add_u64(FREE_BPOBJ_NAME, free_bpobj, tx)?;
        let pool = DslPool::assemble(mos, meta, txgs, root, free_bpobj)?;
        let origin = pool.create_record(&pool.root_dir, ORIGIN_DIR, None, 0, tx)?;
        pool.take_snapshot(&pool.dataset(origin)?, ORIGIN_DIR, tx)?;
        let snap = pool.dataset(origin)?.phys().ds_prev_snap_obj;
        pool.origin_snap.store(snap, Ordering::Relaxed);
        Ok(pool)
    }

    /// Opens what [`DslPool::create`] or OpenZFS made.
    pub fn open(mos: Mos, services: Arc<dyn PoolServices>, txgs: Arc<TxgManager>) -> Result<Arc<DslPool>, DslError> {
        let meta = Meta::new(mos.objset().clone(), services.clone());
        let directory = meta.directory()?;
        let root = Dir::load(&meta, directory.lookup_u64("root_dataset")?, None, services.pool_name())?;
        let free_bpobj = match directory.try_lookup_u64(FREE_BPOBJ_NAME)? {
            None if services.is_writeable() => return Err(DslError::NotFound),
            found => found.unwrap_or(0),
        };
        meta.load_empty_bpobj()?;
        let pool = DslPool::assemble(mos, meta, txgs, root, free_bpobj)?;
        pool.load_bptree()?;
        let children = pool.meta.zap(pool.root_dir.phys().dd_child_dir_zapobj)?;
        if let Some(origin) = children.try_lookup_u64(ORIGIN_DIR)? {
            let head = pool.dir(origin)?.phys().dd_head_dataset_obj;
            let snap = pool.dataset(head)?.phys().ds_prev_snap_obj;
            pool.origin_snap.store(snap, Ordering::Relaxed);
        }
        Ok(pool)
    }

    fn assemble(mos: Mos, meta: Meta, txgs: Arc<TxgManager>, root: Arc<Dir>, free_bpobj: u64) -> Result<Arc<DslPool>, DslError> {
        let children = meta.zap(root.phys().dd_child_dir_zapobj)?;
        let special = |object: u64, name: &str| Dir::load(&meta, object, Some(root.clone()), name.to_string());
        let mos_dir = special(children.lookup_u64(MOS_DIR)?, MOS_DIR)?;
        let free_dir = match free_bpobj {
            0 => None,
            _ => Some(special(children.lookup_u64(FREE_DIR)?, FREE_DIR)?),
        };
        let dirs = [&root, &mos_dir].into_iter().chain(&free_dir).map(|dir| (dir.object, dir.clone())).collect();
        Ok(Arc::new(DslPool {
            mos,
            txgs,
            config: RwLock::new(()),
            dirs: Mutex::new(dirs),
            datasets: Mutex::default(),
            dirty: Arc::default(),
            tasks: Mutex::default(),
            root_dir: root,
            mos_dir,
            free_dir,
            free_bpobj,
            origin_snap: AtomicU64::new(0),
            bptree: AtomicU64::new(0),
            meta,
        }))
    }

    /// The meta object set.
    pub fn mos(&self) -> &Arc<Objset> {
        self.mos.objset()
    }
    /// The transaction groups.
    pub fn txgs(&self) -> &Arc<TxgManager> {
        &self.txgs
    }
    pub(crate) fn meta(&self) -> &Meta {
        &self.meta
    }
    pub(crate) fn dirty(&self) -> &Arc<DirtySets> {
        &self.dirty
    }
    pub(crate) fn config(&self) -> RwLockReadGuard<'_, ()> {
        self.config.read()
    }
    /// Bytes used in the pool: what the root directory counts.
    pub fn used_bytes(&self) -> u64 {
        self.root_dir.used()
    }
    /// Bytes that wait to be freed in the background (the `freeing` property).
    pub fn freeing_bytes(&self) -> u64 {
        self.free_dir.as_ref().map_or(0, |dir| dir.used())
    }

    /// Charges space that waits to be freed, or no longer does.
    pub(super) fn charge_free(&self, change: Usage, tx: &Tx) -> Result<(), DslError> {
        self.free_dir.as_ref().map_or(Ok(()), |dir| dir.charge(dd_used::HEAD, change, tx))
    }

    /// Bytes of destroyed datasets that could not be freed because what led to them is damaged (the `leaked` property).
    ///
    /// # Errors
    /// Those of reading the MOS.
    pub fn leaked_bytes(&self) -> Result<u64, DslError> {
        let _config = self.config.read();
        Ok(self.leak_dir()?.map_or(0, |dir| dir.used()))
    }

    fn leak_dir(&self) -> Result<Option<Arc<Dir>>, DslError> {
        match self.meta.zap(self.root_dir.phys().dd_child_dir_zapobj)?.try_lookup_u64(LEAK_DIR)? {
            Some(object) => self.dir(object).map(Some),
            None => Ok(None),
        }
    }

    /// Charges space that is lost for good to `$LEAK` (OpenZFS: `dsl_process_async_destroys`).
    pub(super) fn charge_leak(&self, left: Usage, tx: &Tx) -> Result<(), DslError> {
        if left.is_zero() {
            return Ok(());
        }
        let dir = match self.leak_dir()? {
            Some(dir) => dir,
            None => self.dir(Dir::create(&self.meta, &NewDir { parent: Some(&self.root_dir), name: LEAK_DIR }, tx)?)?,
        };
        dir.charge(dd_used::HEAD, left, tx)
    }

    // ---- objects in memory ----

    pub(crate) fn dir(&self, object: u64) -> Result<Arc<Dir>, DslError> {
        if let Some(dir) = self.dirs.lock().get(&object) {
            return Ok(dir.clone());
        }
        let bonus = self.meta.hold(object)?.bonus()?;
        let phys = ondisk::DslDirPhys::decode(&bonus).map_err(|_| damaged(object, "the record of a DSL directory is short"))?;
        if phys.dd_parent_obj == 0 || phys.dd_parent_obj == object {
            return Err(damaged(object, "a DSL directory has no parent"));
        }
        let parent = self.dir(phys.dd_parent_obj)?;
        let name = self.meta.zap(parent.phys().dd_child_dir_zapobj)?.value_search(object, 0)?;
        self.dir_known(object, parent, String::from_utf8_lossy(&name).into_owned())
    }

    fn dir_known(&self, object: u64, parent: Arc<Dir>, name: String) -> Result<Arc<Dir>, DslError> {
        if let Some(dir) = self.dirs.lock().get(&object) {
            return Ok(dir.clone());
        }
        let dir = Dir::load(&self.meta, object, Some(parent), name)?;
        Ok(self.dirs.lock().entry(object).or_insert(dir).clone())
    }

    pub(crate) fn dataset(&self, object: u64) -> Result<Arc<Dataset>, DslError> {
        if let Some(dataset) = self.datasets.lock().get(&object) {
            return Ok(dataset.clone());
        }
        let dataset = Dataset::load(self, object)?;
        if !dataset.is_snapshot {
            let (quota, reservation) = self.load_ref_limits(&dataset)?;
            dataset.refquota.store(quota, Ordering::Relaxed);
            dataset.refreservation.store(reservation, Ordering::Relaxed);
        }
        Ok(self.datasets.lock().entry(object).or_insert(dataset).clone())
    }

    /// Drops a destroyed dataset from memory. It may be dirty in the open txg too: that dirt is gone with it.
    fn forget(&self, dataset: &Dataset) {
        dataset.set_objset(None);
        self.dirty.remove(dataset.object);
        self.datasets.lock().remove(&dataset.object);
    }

    /// The head dataset of a directory.
    pub(crate) fn head(&self, dir: &Dir) -> Result<Arc<Dataset>, DslError> {
        self.dataset(dir.phys().dd_head_dataset_obj)
    }

    fn origin_snap(&self) -> Option<Result<Arc<Dataset>, DslError>> {
        match self.origin_snap.load(Ordering::Relaxed) {
            0 => None,
            object => Some(self.dataset(object)),
        }
    }

    /// True when the directory is a real clone: its origin is not the pool's empty one (OpenZFS: `dsl_dir_is_clone`).
    pub(crate) fn is_clone(&self, dir: &Dir) -> bool {
        let origin = dir.phys().dd_origin_obj;
        origin != 0 && origin != self.origin_snap.load(Ordering::Relaxed)
    }

    /// The txg of the snapshot that a clone starts from; 0 for what is not a clone.
    pub(crate) fn origin_txg(&self, dir: &Dir) -> Result<u64, DslError> {
        if self.is_clone(dir) { Ok(self.dataset(dir.phys().dd_origin_obj)?.phys().ds_creation_txg) } else { Ok(0) }
    }

    // ---- lookup by name ----

    /// The directory of a dataset by its full name.
    pub(crate) fn find_dir(&self, name: &str) -> Result<Arc<Dir>, DslError> {
        let mut components = name.split('/');
        if components.next() != Some(self.root_dir.name().as_str()) {
            return Err(DslError::NotFound);
        }
        let mut dir = self.root_dir.clone();
        for component in components {
            let children = self.meta.zap(dir.phys().dd_child_dir_zapobj)?;
            let object = children.try_lookup_u64(component)?.ok_or(DslError::NotFound)?;
            dir = self.dir_known(object, dir, component.to_string())?;
        }
        Ok(dir)
    }

    /// The dataset of this full name.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Dataset>, DslError> {
        let (name, snapshot) = names::split(name)?;
        let dir = self.find_dir(name)?;
        let head = self.head(&dir)?;
        match snapshot {
            None => Ok(head),
            Some(snapshot) => self.find_snapshot(&head, snapshot),
        }
    }

    /// A snapshot of `head` by the part behind `@` (OpenZFS: `dsl_dataset_snap_lookup`).
    pub(crate) fn find_snapshot(&self, head: &Dataset, name: &str) -> Result<Arc<Dataset>, DslError> {
        let phys = head.phys();
        let table = self.meta.zap(phys.ds_snapnames_zapobj)?;
        let object = if phys.ds_flags & ds_flags::CI_DATASET != 0 {
            match table.lookup_norm(name, Match::Normalize) {
                Ok(found) => found.value.as_u64(),
                Err(zap::ZapError::NotFound) => None,
                Err(error) => return Err(error.into()),
            }
        } else {
            table.try_lookup_u64(name)?
        };
        let snapshot = self.dataset(object.ok_or(DslError::NotFound)?)?;
        *snapshot.snapname.write() = Some(name.to_string());
        Ok(snapshot)
    }

    /// The part behind `@` of a snapshot.
    pub(crate) fn snapshot_name(&self, snapshot: &Dataset) -> Result<String, DslError> {
        if let Some(name) = snapshot.snapname.read().clone() {
            return Ok(name);
        }
        let head = self.head(&snapshot.dir)?;
        let name = self.meta.zap(head.phys().ds_snapnames_zapobj)?.value_search(snapshot.object, 0)?;
        let name = String::from_utf8_lossy(&name).into_owned();
        *snapshot.snapname.write() = Some(name.clone());
        Ok(name)
    }

    /// The full name of a dataset.
    pub(crate) fn full_name(&self, dataset: &Dataset) -> Result<String, DslError> {
        let name = dataset.dir.full_name();
        if dataset.is_snapshot { Ok(format!("{name}@{}", self.snapshot_name(dataset)?)) } else { Ok(name) }
    }

    /// Holds a dataset by its full name (`pool/fs` or `pool/fs@snapshot`).
    pub fn hold(self: &Arc<Self>, name: &str) -> Result<DatasetHandle, DslError> {
        let _config = self.config();
        Ok(DatasetHandle::new(self.clone(), self.find(name)?))
    }

    /// Holds a dataset by its object.
    pub fn hold_object(self: &Arc<Self>, object: u64) -> Result<DatasetHandle, DslError> {
        let _config = self.config();
        Ok(DatasetHandle::new(self.clone(), self.dataset(object)?))
    }

    /// Last components of the names of a dataset's children, sorted.
    pub fn children(&self, name: &str) -> Result<Vec<String>, DslError> {
        let _config = self.config();
        let dir = self.find_dir(name)?;
        let mut names = Vec::new();
        self.meta.zap(dir.phys().dd_child_dir_zapobj)?.for_each(|entry| {
            names.push(String::from_utf8_lossy(&entry.name).into_owned());
            Ok(())
        })?;
        names.retain(|name| !name.starts_with('$') && !name.starts_with('%'));
        names.sort();
        Ok(names)
    }

    /// True when blocks wait to be freed by [`DslPool::sync_frees`].
    pub fn has_frees(&self) -> bool {
        let has_list = || self.free_bpobj != 0 && Bpobj::open(&self.meta, self.free_bpobj).is_ok_and(|list| !list.is_empty());
        self.bptree.load(Ordering::Relaxed) != 0 || has_list()
    }

    /// Sets the name of the root dataset, after the pool was imported under another name.
    pub fn rename_pool(&self, name: &str) {
        self.root_dir.rename(None, name);
    }
}
